"""The slice protocol: how one slice goes from planned to committed.

Five lines in this order; a crash between any two is repaired by starting again:

1. ``plan``: the ranges and whether the slice sends, on record. If it is there, it is obeyed.
2. ``effects``: the step's rows written once, then an ``effects`` row with their Delta versions.
3. ``send``: one Kafka transaction with topic outputs, changelog, marker and the group's offsets, if the plan says so.
4. ``apply``: the changes of several slices merged into the tables, when it is time (:mod:`kappa.slices.merging`).
5. ``commit``: counts and the Delta version of everything, on record.

This module is the only caller of a topology's step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.errors import LedgerError
from kappa.faults import crash_point
from kappa.offsets import set_asides
from kappa.offsets.coverage import common
from kappa.offsets.floors import Floors, floors_detail
from kappa.offsets.releases import Releases, releases_detail
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import OffsetRange, Offsets, ranges_as_dict
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.record.merge_on_read import MERGED, contents_of
from kappa.replay.chains import frontiers_detail
from kappa.replay.proof.certificate import Sends
from kappa.slices.input.reading import archived_ranges
from kappa.slices.line_timer import Lines
from kappa.slices.merging import is_due, merge, unmerged
from kappa.slices.places import FILES, make_durable
from kappa.slices.run import EpochRun
from kappa.slices.topics.sending import send_effects, sent_ends
from kappa.slices.writing import write_effects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run_slice(
    run: EpochRun,
    ranges: Sequence[OffsetRange],
    *,
    sends: Sends,
    logged: bool,
    raw: DataFrame | None = None,
    roots: Offsets | None = None,
    releases: Releases | None = None,
    set_aside: SetAsides = (),
    floors: Floors | None = None,
    frontiers: Mapping[str, int] | None = None,
) -> LedgerRow:
    """Take one slice from planned to committed.

    Idempotent: whatever part of the slice is there already is used as it is. When the ledger holds a plan that was not
    committed, that one is finished with its own ranges and ``ranges`` must be the same.

    Args:
        ranges: offset ranges, one for each partition of each source.
        sends: which topic outputs are to be sent.
        logged: whether changelog and marker are written.
        raw: the records, when Spark has read them already; otherwise they are read here, from archives where the run
            says so.
        roots: where the slice ends in offsets of root topics, for an epoch that reads versioned topics of others.
        releases: partitions without new records that hold no frontier back from this slice on.
        set_aside: records of the ranges that are dead letters by a decision, and that the step does not get.
        floors: times below which frontiers do not fall from this slice on.
        frontiers: versioned topic that is followed -> up to when its rows are final, epoch milliseconds.

    Returns:
        The commit row.

    Raises:
        StaleWriterError: another driver claimed the epoch.
        LedgerError: the ranges do not join the last commit.
        DataLossError: records of the ranges are no longer in the log.
    """
    run.look_at_commits()
    state = run.ledger.begun(look=False)
    plan = state.open_plan or plan_slice(
        run,
        state,
        ranges,
        sends=sends,
        logged=logged,
        roots=roots,
        releases=releases,
        set_aside=set_aside,
        floors=floors,
        frontiers=frontiers,
    )
    if tuple(plan.ranges) != tuple(ranges):
        raise LedgerError(f"Slice {plan.seq} is planned with other ranges; finish it first.", seq=plan.seq)
    return _finish(run, plan, raw)


def plan_slice(
    run: EpochRun,
    state: BegunState,
    ranges: Sequence[OffsetRange],
    *,
    sends: Sends,
    logged: bool,
    roots: Offsets | None = None,
    releases: Releases | None = None,
    set_aside: SetAsides = (),
    floors: Floors | None = None,
    frontiers: Mapping[str, int] | None = None,
) -> LedgerRow:
    """Line 1: put the ranges of the next slice on record.

    Raises:
        LedgerError: the ranges do not begin where the last commit ended.
    """
    begins = {(r.topic, r.partition): r.start for r in ranges}
    for (topic, partition), start in begins.items():
        expected = state.position.get(topic, partition) or 0
        if start != expected:
            raise LedgerError(
                f"Slice would read {topic}[{partition}] from {start}, the last commit ended at {expected}.",
                topic=topic,
                partition=partition,
            )
    if sends == "live" and state.is_yielded:
        raise LedgerError("The epoch has yielded: it may not plan a slice that sends.")
    row = run.ledger.append(
        LedgerRow(
            kind="plan",
            seq=state.seq + 1,
            writer=run.writer,
            at=clock.now(),
            ranges=tuple(ranges),
            sends=sends,
            logged=logged,
            code=run.code,
            detail={
                **archived_detail(common(ranges, run.archived)),
                **roots_detail(roots),
                **releases_detail(releases or {}),
                **set_asides.detail(set_aside),
                **floors_detail(floors or {}),
                **frontiers_detail({at: ms for at, ms in (frontiers or {}).items() if at in run.followed}),
            },
        )
    )
    crash_point("plan", row.seq)
    return row


def finish_slice(run: EpochRun, plan: LedgerRow, *, raw: DataFrame | None = None) -> LedgerRow:
    """Lines 2 to 5 for a planned slice; see :func:`run_slice`."""
    run.look_at_commits()
    return _finish(run, plan, raw)


def _finish(run: EpochRun, plan: LedgerRow, raw: DataFrame | None) -> LedgerRow:
    state, lines = run.ledger.begun(look=False), Lines(run.engines.begin)
    effects = state.open_effects
    if effects is None:
        with lines.line("effects", plan.seq):
            effects = write_effects(run, plan, state, raw)
    if plan.logged or plan.sends != "held":
        with lines.line("send", plan.seq):
            send_effects(run, plan, effects)
    with lines.line("apply", plan.seq):
        apply_changes(run, plan, effects)
    run.engines.begin(f"commit of slice {plan.seq}")
    return commit_slice(run, plan, effects, lines.seconds)


def archived_detail(archived: Sequence[OffsetRange]) -> dict[str, Any]:
    """Detail of a ledger row on the ranges that are read from archives; empty without such ranges."""
    return {"archived": ranges_as_dict(archived)} if archived else {}


def roots_detail(roots: Offsets | None) -> dict[str, Any]:
    """Detail of a ledger row on the end of a slice in root topics; empty where the slice reads those itself."""
    return {"roots": roots.as_dict()} if roots else {}


def apply_changes(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> None:
    """Line 4: bring the changes of this slice and of those before it into the tables for which that is due."""
    committed = run.ledger.begun(look=False).committed
    for table in run.topology.tables:
        pending = unmerged(run, table, committed, effects)
        if is_due(run, pending, clock.now(), committed.at):
            merge(run, table, pending)
            crash_point("merge", plan.seq)
    crash_point("apply", plan.seq)


def commit_slice(
    run: EpochRun, plan: LedgerRow, effects: LedgerRow, seconds: Mapping[str, float] | None = None
) -> LedgerRow:
    """Line 5: the slice is done; counts and the Delta version of everything on record.

    Args:
        seconds: how long the lines before took, for the row; that of this line, up to the row, is added.
    """
    started = time.monotonic()
    state = run.ledger.begun(look=False)
    committed = state.committed
    run.look_at_commits(effects.delta_versions)  # the row vouches for every commit up to the versions that it names
    # Looked up, not remembered: an attempt that died, or a writer that was replaced, may have merged meanwhile.
    pending = {table.name: unmerged(run, table, committed, effects) for table in run.topology.tables}
    entries = {name: changes.entry for name, changes in pending.items() if changes.rows}
    versions = {f"tables/{name}": changes.contents.version for name, changes in pending.items()}
    run.look_at_commits({**effects.delta_versions, **versions})  # no request, unless a table has moved since
    files = make_durable(run.paths, state.recorded, versions)
    names = ("roots", "frontiers", "releases", "set_aside", "floors")
    carried = {name: plan.detail[name] for name in names if name in plan.detail}
    row = run.ledger.append(
        LedgerRow(
            kind="commit",
            seq=plan.seq,
            writer=run.writer,
            at=clock.now(),
            ranges=plan.ranges,
            sends=plan.sends,
            logged=plan.logged,
            code=run.code,
            rows_read=effects.rows_read,
            rows_parsed=effects.rows_parsed,
            rows_dead=effects.rows_dead,
            rows_set_aside=effects.rows_set_aside,
            rows_late=effects.rows_late,
            max_timestamps=effects.max_timestamps,
            stream_times=effects.stream_times,
            delta_versions={**effects.delta_versions, **versions},
            detail={
                **{name: value for name, value in effects.detail.items() if name != FILES},
                **files,
                "started_at": plan.at.isoformat(),
                "seconds": {**(seconds or {}), "commit": round(time.monotonic() - started, 6)},
                **archived_detail(archived_ranges(plan)),
                **carried,
                **sent_ends(run, plan.sends, replace(effects, ranges=plan.ranges, detail=plan.detail), committed),
                **({MERGED: entries} if entries else {}),
            },
        )
    )
    for table in run.topology.tables:
        before, after = (contents_of(run.paths, commit, table.name) for commit in (committed, row))
        run.state(table).advance(run.scratch.written.get(f"changes/{table.name}"), before, after)
    run.scratch.written = {}
    crash_point("commit", plan.seq)
    return row
