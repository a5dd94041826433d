"""Merging: the changes of several slices are brought into a table at once.

Between two merges a table is its last merged version and the changes since (:mod:`kappa.record.merge_on_read`). A
reader of a commit sees no difference. The Delta commit of a merge carries the number of the slice up to which it goes.
What is merged is read from that number and not remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.delta import table_files, tables
from kappa.delta.fsync import may_have_moved
from kappa.delta.retention import is_first_after
from kappa.errors import LedgerError
from kappa.faults import crash_point
from kappa.record import merge_on_read as contents
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import MERGED, Contents
from kappa.slices.places import record_files
from kappa.slices.state import most_changes
from kappa.topology import Table
from kappa.topology.ddl import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from kappa.slices.run import EpochRun


@dataclass(frozen=True, kw_only=True)
class Unmerged:
    """What is not merged into a table after a slice.

    Attributes:
        contents: the table's rows after the slice, by the merged version that is there now.
        rows: changes since that version, of a key all.
        since: when the first of them was committed, as far as that is known.
    """

    contents: Contents
    rows: int
    since: datetime

    @property
    def entry(self) -> dict[str, Any]:
        """What the slice's commit says of it."""
        return {
            "seq": self.contents.merged,
            "key": list(self.contents.key),
            "rows": self.rows,
            "since": self.since.isoformat(),
        }


def unmerged(run: EpochRun, table: Table, committed: LedgerRow, effects: LedgerRow | None = None) -> Unmerged:
    """What is not merged into a table, by the table itself: an attempt that died may have merged it.

    Args:
        committed: the last commit.
        effects: effects of the slice that comes after it; None for what is not merged after the commit.
    """
    known: Mapping[str, Any] | None = committed.detail.get(MERGED, {}).get(table.name)
    last = effects or committed
    path, version = run.paths.table(table.name), committed.delta_versions[f"tables/{table.name}"]
    # Mostly nothing was merged since.
    version, merged = tables.merged(path) if may_have_moved(path, version) else (version, None)
    least = committed.seq if known is None else known["seq"]
    found = Contents(
        path=path,
        version=version,
        merged=max(least, merged or 0),
        seq=last.seq,
        key=tuple(table.key),
        changes=run.paths.changes(table.name),
        changes_version=last.delta_versions.get(f"changes/{table.name}", 0),
    )
    if found.is_merged:
        return Unmerged(contents=found, rows=0, since=clock.now())
    is_known = known is not None and found.merged == least
    before: int | None = 0 if found.merged >= committed.seq else None
    if known is not None and is_known:
        before = known["rows"]
    mine = run.scratch.written.get(f"changes/{table.name}")
    added = 0 if effects is None else None if mine is None else mine.num_rows
    return Unmerged(
        contents=found,
        rows=contents.changed_rows(found) if before is None or added is None else before + added,
        since=datetime.fromisoformat(known["since"]) if known is not None and is_known else clock.now(),
    )


def unmerged_since(committed: LedgerRow) -> list[datetime]:
    """Since when tables have changes that are not merged, as their last commit says; none for those that have none."""
    return [datetime.fromisoformat(entry["since"]) for entry in committed.detail.get(MERGED, {}).values()]


def is_due(run: EpochRun, pending: Unmerged, now: datetime, last: datetime | None = None) -> bool:
    """Whether a table is to be merged: for long it was not, or so much changed that the next steps had better read it
    anew.

    Also with the commit that becomes a savepoint: to be read it would hold on to all changes that are there, for a day.

    Args:
        pending: what is not merged.
        last: when the last commit was made, where this is for the next one.
    """
    if not pending.rows:
        return False
    if last is not None and is_first_after(last, now, run.engines.savepoint_grain):
        return True
    if (
        abs(now - pending.since) >= timedelta(seconds=run.engines.merge_seconds)
        or pending.rows > run.engines.arrow_rows
    ):
        return True
    at = pending.contents
    return pending.rows > most_changes(0) and pending.rows > most_changes(table_files.count(at.path, at.version))


def merge(run: EpochRun, table: Table, pending: Unmerged) -> None:
    """Merge what is pending into a table. Idempotent; a crash leaves all of it in the table or nothing.

    Raises:
        StaleWriterError: another driver claimed the epoch.
        ConflictError: another process wrote to the table at the same time.
    """
    run.ledger.check_claim(run.writer)
    run.look_at_commits()  # a merge rewrites rows: what it is made from could not be told apart afterwards
    at = pending.contents
    own = _own_changes(run, table, at)
    if own is not None and (rows := _rows_after(run, table, own)) is not None:
        version = tables.overwrite(at.path, rows, at.seq)
        if version is not None:
            run.state(table).written(rows, version)
        return
    if pending.rows <= run.engines.arrow_rows:
        changed = own if own is not None and at.merged == at.seq - 1 else contents.changed(at)
        assert changed is not None
        tables.merge(at.path, changed, table.key, table.columns, at.seq)
        return
    names = quoted(column.name for column in table.columns)
    tables.overwrite_frame(at.path, contents.frame(run.engines.session, at).select(*names), at.seq)


def _rows_after(run: EpochRun, table: Table, changes: pa.Table) -> pa.Table | None:
    """The table's rows after the slice at hand, which changed these; None where the driver lacks those before it."""
    committed = run.ledger.state().committed
    assert committed is not None
    return run.state(table).after(contents.contents_of(run.paths, committed, table.name), changes)


def _own_changes(run: EpochRun, table: Table, at: Contents) -> pa.Table | None:
    """The changes of the slice at hand where the driver has just written them, of each key one; None between slices.

    What an attempt left behind that was abandoned is not of the commit that is merged then.
    """
    committed = run.ledger.state().committed
    if committed is None or at.seq <= committed.seq:
        return None
    return run.scratch.written.get(f"changes/{table.name}")


def merge_between(run: EpochRun, *, is_asked: bool = False) -> bool:
    """Merge what is due, or where it is asked for everything, while no slice is being worked on; whether it merged
    something.

    The last commit reads as before, from the version that it names; the next one names the version that it finds. A
    ledger row says what the new files hold. Idempotent; a crash leaves some tables merged, without that row.

    Raises:
        StaleWriterError: another driver claimed the epoch.
        LedgerError: nothing is committed.
    """
    committed = run.ledger.state().committed
    if committed is None:
        raise LedgerError("Tables are merged after a commit; the epoch has none.")
    done = False
    for table in run.topology.tables:
        pending = unmerged(run, table, committed)
        if pending.rows and (is_asked or is_due(run, pending, clock.now())):
            merge(run, table, pending)
            done = True
            crash_point("merge.between", committed.seq)
    if done:
        record_files(run)
    return done
