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
from kappa.delta.log_entries import may_have_moved
from kappa.delta.retention import is_first_after
from kappa.delta.spark_merge import merge_frame
from kappa.faults import crash_point
from kappa.record import merge_on_read as contents
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import MERGED, Contents
from kappa.slices.places import record_files
from kappa.slices.state import most_changes
from kappa.spark.tuning import merging_session
from kappa.topology import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from kappa.slices.run import EpochRun


@dataclass(frozen=True, kw_only=True)
class Unmerged:
    """What is not merged into a table after a slice.

    Attributes:
        contents: the table's rows after the slice, by the merged version that is there now.
        rows: changes since that version; a key may have several.
        since: when the first of them was committed, if that is known.
    """

    contents: Contents
    rows: int
    since: datetime

    @property
    def entry(self) -> dict[str, Any]:
        """The entry in the detail of the slice's commit."""
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
    last_entry: Mapping[str, Any] | None = committed.detail.get(MERGED, {}).get(table.name)
    last = effects or committed
    path, version = run.paths.table(table.name), committed.delta_versions[f"tables/{table.name}"]
    newest = run.watch.newest(f"tables/{table.name}")
    has_moved = may_have_moved(path, version) if newest is None else newest > version
    version, merged = tables.merged(path) if has_moved else (version, None)  # mostly nothing was merged since
    least = committed.seq if last_entry is None else last_entry["seq"]
    at = Contents(
        path=path,
        version=version,
        merged=max(least, merged or 0),
        seq=last.seq,
        key=tuple(table.key),
        changes=run.paths.changes(table.name),
        changes_version=last.delta_versions.get(f"changes/{table.name}", 0),
    )
    if at.is_merged:
        return Unmerged(contents=at, rows=0, since=clock.now())
    is_current = last_entry is not None and at.merged == least
    before: int | None = 0 if at.merged >= committed.seq else None
    if last_entry is not None and is_current:
        before = last_entry["rows"]
    changes = run.scratch.written.get(f"changes/{table.name}")
    added = 0 if effects is None else None if changes is None else changes.num_rows
    return Unmerged(
        contents=at,
        rows=contents.changed_rows(at) if before is None or added is None else before + added,
        since=datetime.fromisoformat(last_entry["since"]) if last_entry is not None and is_current else clock.now(),
    )


def unmerged_since(committed: LedgerRow) -> list[datetime]:
    """When the oldest unmerged change of each table was committed, by the last commit; nothing for a merged table."""
    return [datetime.fromisoformat(entry["since"]) for entry in committed.detail.get(MERGED, {}).values()]


def is_due(run: EpochRun, pending: Unmerged, now: datetime, last: datetime | None = None) -> bool:
    """Whether a table is to be merged: the last merge is long ago, or so much changed that the next steps had better
    read it anew.

    Also at a commit that becomes a savepoint: unmerged, it would hold on to all of the changes for a day.

    Args:
        pending: what is not merged.
        last: when the last commit was made, where this is for the next one.
    """
    if not pending.rows:
        return False
    if last is not None and is_first_after(last, now, run.engines.savepoint_grain):
        return True
    if (
        clock.is_due(pending.since, timedelta(seconds=run.engines.merge_seconds), now)
        or pending.rows > run.engines.arrow_rows
    ):
        return True
    at = pending.contents
    return pending.rows > most_changes(0) and pending.rows > most_changes(table_files.count(at.path, at.version))


def merge(run: EpochRun, table: Table, pending: Unmerged) -> None:
    """Merge what is pending into a table. Idempotent; a crash leaves all of it in the table or nothing.

    The driver does it while both the table and its changes fit into its memory; otherwise Spark does.

    Raises:
        StaleWriterError: another driver claimed the epoch.
        ConflictError: another process wrote to the table at the same time.
    """
    run.ledger.check_claim(run.writer)
    run.look_at_commits()  # a merge rewrites rows: after it, foreign ones cannot be told apart
    run.watch.expire(f"tables/{table.name}")
    at = pending.contents
    own = _own_changes(run, table, at)
    rows = None if own is None else _rows_after(run, table, own)
    if rows is not None and rows.nbytes < run.engines.merge_bytes:
        version = tables.overwrite(at.path, rows, at.seq)
        if version is not None:
            run.state(table).written(rows, version)
        return
    if not is_for_spark(run, pending):
        changed = own if own is not None and at.merged == at.seq - 1 else contents.changed(at)
        if changed is not None:
            tables.merge(at.path, changed, table.key, table.columns, at.seq)
        return
    session, size = run.engines.session, table_files.size_bytes(at.path, at.version)
    changes = contents.newest_changes(session, at, [column.name for column in table.columns])
    merge_frame(merging_session(session, size), at.path, changes, table.key, table.columns, at.seq)


def is_for_spark(run: EpochRun, pending: Unmerged) -> bool:
    """Whether a table or its changes are too large for the driver's process: Spark merges them, in minutes."""
    at, engines = pending.contents, run.engines
    return pending.rows > engines.arrow_rows or table_files.size_bytes(at.path, at.version) >= engines.merge_bytes


def _rows_after(run: EpochRun, table: Table, changes: pa.Table) -> pa.Table | None:
    """The table's rows after the slice at hand, which changed these; None where the driver has none before it."""
    committed = run.ledger.begun(look=False).committed
    return run.state(table).after(contents.contents_of(run.paths, committed, table.name), changes)


def _own_changes(run: EpochRun, table: Table, at: Contents) -> pa.Table | None:
    """The changes of the slice at hand, one per key, where the driver has just written them; None between slices.

    Changes of an abandoned attempt do not belong to the commit that is merged between slices.
    """
    if at.seq <= run.ledger.begun(look=False).committed.seq:
        return None
    return run.scratch.written.get(f"changes/{table.name}")


def merge_between(run: EpochRun, *, is_asked: bool = False, is_hasty: bool = False) -> bool:
    """Merge the tables that are due, or all on request, while no slice is in work; return whether any was merged.

    The last commit reads as before, from the version that it names; the next one names the version that it finds. A
    ledger row says what the new files hold. Idempotent; a crash leaves some tables merged, without that row.

    Args:
        is_asked: whether those that are not due are merged as well.
        is_hasty: whether those that Spark would merge are left: somebody waits.

    Raises:
        ForeignCommitError: another program wrote into one of the tables, also meanwhile.
        StaleWriterError: another driver claimed the epoch.
        LedgerError: the epoch was not seeded.
    """
    committed = run.ledger.begun().committed
    has_merged = False
    for table in run.topology.tables:
        pending = unmerged(run, table, committed)
        is_wanted = pending.rows and (is_asked or is_due(run, pending, clock.now()))
        if is_wanted and not (is_hasty and is_for_spark(run, pending)):
            merge(run, table, pending)
            has_merged = True
            crash_point("merge.between", committed.seq)
    if has_merged:
        record_files(run)
    return has_merged
