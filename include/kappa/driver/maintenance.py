"""Maintenance of an epoch's Delta tables by its driver, between two slices: merges small files, removes old ones.

Rows never change by it: the Delta versions that the ledger names stay what they are, as long as they are held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from kappa import clock
from kappa.config import Config
from kappa.delta import vacuum
from kappa.delta.retention import Retention, held, with_merges
from kappa.errors import LedgerError
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.record.merge_on_read import contents_of
from kappa.slices.places import effect_places, record_files
from kappa.slices.run import EpochRun
from kappa.spark.tuning import MERGED_FILE_BYTES
from kappa.topology import Table

#: Merged versions of a table that may be in use since the last look, with that of the look: each may be a whole copy.
MERGES = 1
#: Files of changes are merged up to this size: a larger one would be written again and again, and each time be kept for
#: a while.
CHANGES_BYTES = 1 << 20
#: Files of a table are merged up to this size. A merge of Spark writes larger ones, or at least no two that fit into
#: one: otherwise the driver's process would write all of a large table again after each.
TABLE_BYTES = MERGED_FILE_BYTES // 4


def maintain(
    run: EpochRun,
    config: Config,
    now: datetime,
    named: Callable[[], Collection[int] | None] = frozenset,
    *,
    published: Callable[[str], Collection[str] | None] = lambda place: (),
) -> LedgerRow:
    """Merge small files of every table, remove those that no held commit needs, and put it on record.

    To be called between two slices. Idempotent; a crash in the middle leaves some tables done and the others not. Which
    commits are no longer readable is on record before any file goes.

    Args:
        config: how long the past stays readable.
        named: gives slices whose commits stay readable in any case, as of the call; None where nothing may go now,
            because old commits are about to be compared.
        published: place -> files in its Delta table that readers of its published table may need; None where that is
            not known: none of them goes.

    Raises:
        LedgerError: a slice is planned and not committed.
        ForeignCommitError: another program wrote into one of the tables, also meanwhile.
        StaleWriterError: another driver claimed the epoch.
    """
    state = run.ledger.state()
    if state.open_plan is not None or not state.commits:
        raise LedgerError("Tables are maintained between two slices.", seq=state.seq)
    run.look_at_commits()  # files that a foreign commit removed are needed to undo it
    names = named()
    row = run.ledger.append(_look(run, config, now, state, names))
    while (later := named()) != names:  # whoever gave a name may have looked before the row was there
        names = later
        row = run.ledger.append(_look(run, config, now, state, names))
    crash_point("maintain", state.seq)
    check = partial(run.ledger.check_claim, run.writer)
    for name, seq in row.detail["forgotten"].items():
        check()
        vacuum.forget_before(run.paths.changes(name), seq + 1)
    age, sizes = timedelta(hours=config.delete_after_hours), {"changes": CHANGES_BYTES, "tables": TABLE_BYTES}
    for place in [*effect_places(run.topology), *(f"tables/{table.name}" for table in run.topology.tables)]:
        path = run.paths.place(place)
        check()
        run.watch.look({one: version for one, version in state.recorded.items() if one == place})
        vacuum.compact(path, sizes.get(place.partition("/")[0]))
        spared = None if names is None else published(place)
        if spared is not None:
            vacuum.vacuum(path, partial(_held_now, run, place), age=age, check=check, spared=spared)
        crash_point(f"maintain.{place.partition('/')[0]}", state.seq)
    record_files(run)
    return row


def _look(run: EpochRun, config: Config, now: datetime, state: LedgerState, named: Collection[int] | None) -> LedgerRow:
    """The row that says which commits stay readable, and by which versions of tables."""
    keeps_all, named = named is None, named or ()
    readable = state.readable
    held_seqs = set(held([(commit.seq, commit.at) for commit in readable], now, retention(config), named))
    if keeps_all:
        held_seqs = {commit.seq for commit in readable}
    dropped_seqs = [commit.seq for commit in readable if commit.seq not in held_seqs]
    # Never earlier than before: those files are gone.
    before = max([state.readable_from, *(seq + 1 for seq in dropped_seqs)])
    kept_commits = [commit for commit in readable if commit.seq in held_seqs]
    since = now - retention(config).keep
    recent_from = max(_recent_from(state), next((c.seq for c in kept_commits if c.at >= since), kept_commits[-1].seq))
    merge_seqs = held_seqs
    if not keeps_all:
        times = [(commit.seq, commit.at) for commit in kept_commits]
        merge_seqs = with_merges(times, now, retention(config), named)
        # The changes of a commit that is not recent are no longer kept: it stays with the version that it has.
        merge_seqs |= {seq for seq in held_seqs if seq < _recent_from(state) or seq == recent_from}
    merges = {
        table.name: _kept_merges(run.paths, table, state, kept_commits, merge_seqs) for table in run.topology.tables
    }
    draft = LedgerRow(
        n=state.last + 1,
        kind="maintain",
        seq=state.seq,
        writer=run.writer,
        at=now,
        code=run.code,
        detail={
            "readable_from": before,
            "savepoints": sorted(seq for seq in held_seqs if seq < before),
            "merges": merges,
            "recent_from": recent_from,
        },
    )
    resolved = [replace(state, maintained=draft).resolved(commit) for commit in kept_commits]
    recent = [commit for commit in resolved if commit.seq >= recent_from]
    forgotten = {table.name: _forgotten(run.paths, table, state, recent) for table in run.topology.tables}
    return replace(draft, detail={**draft.detail, "forgotten": forgotten})


def _held_now(run: EpochRun, place: str) -> set[int]:
    """Delta versions of one of an epoch's Delta tables that its readable commits need, by the ledger as it is now.

    Raises:
        StaleWriterError: another driver claimed the epoch: what it holds is not for this one to judge.
    """
    run.ledger.check_claim(run.writer)
    state = run.ledger.state()
    kind, _, name = place.partition("/")
    versions = set()
    for commit in map(state.resolved, state.readable):
        # The changes of an older commit whose table is merged are read by nothing any more.
        is_unread = (
            kind == "changes" and commit.seq < _recent_from(state) and contents_of(run.paths, commit, name).is_merged
        )
        if place in commit.delta_versions and not is_unread:
            versions.add(commit.delta_versions[place])
    return versions


def is_due(state: LedgerState, config: Config, now: datetime) -> bool:
    """Whether it is time to look after files: the last look was long ago, or merges have piled up since."""
    last = state.maintained or state.commits[0]
    return clock.is_due(last.at, timedelta(minutes=config.maintain_minutes), now) or is_piled_up(state)


def is_piled_up(state: LedgerState) -> bool:
    """Whether more merges were written since the last look than may stay."""
    merges: set[tuple[str, int]] = set()
    for commit in reversed(state.commits):
        if state.maintained is None or commit.n < state.maintained.n:
            break
        merges |= {item for item in commit.delta_versions.items() if item[0].startswith("tables/")}
    counts = Counter(place for place, _ in merges)
    return any(count > MERGES for count in counts.values())


def _recent_from(state: LedgerState) -> int:
    """The first commit of which the last look kept the changes; earlier code kept those of the last commit."""
    return 0 if state.maintained is None else int(state.maintained.detail.get("recent_from", state.maintained.seq))


def _kept_merges(
    paths: EpochPaths, table: Table, state: LedgerState, commits: Sequence[LedgerRow], merge_seqs: Collection[int]
) -> dict[str, Any]:
    """Delta versions that stay, oldest first, each with the slice up to which it is merged; and the key to merge by.

    Those of the commits ``merge_seqs``, and of a commit that could not be read from any of them.
    """
    merges: dict[int, int] = {}
    for commit in commits:
        own = commit.delta_versions.get(f"tables/{table.name}")
        if own is None:
            continue
        if commit.seq not in merge_seqs and any(
            state.serves(merge, commit, table.name, own) for merge in merges.items()
        ):
            continue
        at = contents_of(paths, state.resolved(commit), table.name)
        merges[at.version] = max(at.merged, merges.get(at.version, 0))
    return {"key": list(table.key), "kept": [list(merge) for merge in sorted(merges.items())]}


def _forgotten(paths: EpochPaths, table: Table, state: LedgerState, recent: Sequence[LedgerRow]) -> int:
    """The slice up to which a table's changes may go: recent commits need none, older ones keep their own files.

    What went once stays gone, also when the settings say by now that more is to be kept.
    """
    merged = min(contents_of(paths, commit, table.name).merged for commit in recent)
    return max(state.forgotten(table.name), min(merged, recent[-1].seq - 1))


def retention(config: Config) -> Retention:
    """How long the past of an epoch stays readable, by the settings."""
    return Retention(
        keep=timedelta(minutes=config.keep_minutes),
        grain=timedelta(minutes=config.savepoint_minutes),
        horizon=timedelta(hours=config.savepoint_hours),
    )
