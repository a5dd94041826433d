"""What an epoch's own driver does to its Delta tables between two slices: merge small files, let go of old ones.

Rows never change by it: the Delta versions that the ledger names stay what they are, as long as they are held.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from kappa.config import Config
from kappa.errors import LedgerError
from kappa.replay.holds import Retention, held
from kappa.runtime import tables
from kappa.runtime.contents import contents_of
from kappa.runtime.faults import crash_point
from kappa.runtime.ledger import LedgerRow
from kappa.slices import EpochRun, effect_paths


def maintain(
    run: EpochRun, config: Config, now: datetime, named: Collection[int] = (), *, keeps_all: bool = False
) -> LedgerRow:
    """Merge small files of every table, remove those that no held commit needs, and put it on record.

    To be called between two slices. Idempotent; a crash in the middle leaves some tables done and the others not. Which commits
    are no longer readable is on record before any file goes.

    Args:
        run: the epoch.
        config: how long the past stays readable.
        now: the time.
        named: slices whose commits stay readable in any case.
        keeps_all: whether nothing may go now, because somebody is about to compare old commits.

    Raises:
        LedgerError: a slice is planned and not committed.
        StaleWriterError: another driver claimed the epoch.
    """
    state = run.ledger.state()
    if state.open_plan is not None or not state.commits:
        raise LedgerError("Tables are maintained between two slices.", seq=state.seq)
    readable = state.readable
    kept = set(held([(commit.seq, commit.at) for commit in readable], now, retention(config), named))
    if keeps_all:
        kept = {commit.seq for commit in readable}
    gone = [commit.seq for commit in readable if commit.seq not in kept]
    before = max(gone) + 1 if gone else state.readable_from
    row = run.ledger.append(
        LedgerRow(
            kind="maintain", seq=state.seq, writer=run.writer, at=now, code=run.code,
            detail={"readable_from": before, "savepoints": sorted(seq for seq in kept if seq < before)},
        )
    )  # fmt: skip
    crash_point("maintain", state.seq)
    for table in run.topology.tables:  # folded and sent: nobody reads the changes of these slices again
        folded = contents_of(run.paths, state.commits[-1], table.name).folded
        tables.forget_before(run.paths.changes(table.name), min(folded + 1, state.seq))
    kept_commits = [commit for commit in readable if commit.seq in kept]
    for path in [*effect_paths(run.topology, run.paths), *(run.paths.table(t.name) for t in run.topology.tables)]:
        place = path.removeprefix(f"{run.paths.root}/")
        tables.compact(path)
        needed = kept_commits
        if place.startswith("changes/"):  # of a commit whose table is folded nobody reads them
            name = place.removeprefix("changes/")
            needed = [row for row in kept_commits[:-1] if not contents_of(run.paths, row, name).is_folded]
            needed += kept_commits[-1:]
        if not keeps_all:
            tables.vacuum(path, {commit.delta_versions[place] for commit in needed if place in commit.delta_versions})
        crash_point(f"maintain.{place.partition('/')[0]}", state.seq)
    return row


def retention(config: Config) -> Retention:
    """How long the past of an epoch stays readable, by the settings."""
    return Retention(
        keep=timedelta(minutes=config.keep_minutes),
        grain=timedelta(minutes=config.savepoint_minutes),
        horizon=timedelta(hours=config.savepoint_hours),
    )
