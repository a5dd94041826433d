"""A range of an epoch computed again: into a folder of its own within the epoch's, without sending, removed afterwards.

It goes through the slice protocol like everything else, with a ledger of its own: killed in the middle it goes on from
there; a run that is never resumed is removed with the epoch, or by ``kappa housekeeping``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kappa.archive.reader import Archives
from kappa.errors import SchemaRefusedError
from kappa.faults import crash_point
from kappa.kafka.registry import Registry
from kappa.names import EpochPaths
from kappa.offsets import set_asides
from kappa.offsets.cuts import TimeIndex
from kappa.offsets.floors import Floors
from kappa.offsets.releases import Releases, copied
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState, LedgerState
from kappa.record.merge_on_read import frame_at
from kappa.replay.plan import ReplayPlan
from kappa.replay.proof.determinism import Determinism, other_size
from kappa.slices.abandoning import abandon_slice
from kappa.slices.input.cuts import cut_by_time
from kappa.slices.input.reader_schemas import Schemas
from kappa.slices.protocol import finish_slice, run_slice
from kappa.slices.run import Engines, EpochRun, Scratch, Sent
from kappa.slices.seeding import SeedSource, seed
from kappa.spark.session import merge_bytes
from kappa.store.stores import store_of
from kappa.verify.content_hash import twice
from kappa.verify.diff import Mask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa.config import Config
    from kappa.kafka.broker import Broker
    from kappa.topology import Append, Table, Topology

#: Name of the second run of a replay.
SECOND_RUN = "replay"


def beside(
    config: Config,
    session: SparkSession,
    broker: Broker,
    paths: EpochPaths,
    topology: Topology,
    *,
    writer: str,
    code: str,
    archived: tuple[OffsetRange, ...] = (),
) -> EpochRun:
    """An epoch in another process than its driver, to compute a range of it apart by :func:`opened`.

    Args:
        paths: the epoch; it is seeded.
        topology: the code, the epoch's or another.
        writer: the id that claims the ledgers of ranges computed apart; the epoch's own is only read.
        code: the code in these ledgers.
        archived: the ranges that are read from archives.
    """
    engines = Engines(
        session=session,
        broker=broker,
        bootstrap_servers=config.bootstrap_servers,
        arrow_rows=config.arrow_rows,
        merge_bytes=merge_bytes(config),
        small_slice=config.small_slice,
        mask_key=config.mask_key,
        schemas=Schemas(config.lake, _Unwritten(config.schema_registry)),
        archives=Archives(config.lake),
    )
    ledger = Ledger(paths.ledger)
    seeded = ledger.state().commits[0].detail
    return EpochRun(
        topology=topology,
        paths=paths,
        writer=writer,
        code=code,
        ledger=ledger,
        topic_ids=seeded["topic_ids"],
        bound=seeded.get("bound", {}),
        archived=archived,
        engines=engines,
    )


class _Unwritten(Registry):
    """A schema registry that is only read: nothing is sent, so no schema is needed that is not there."""

    def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        raise SchemaRefusedError(
            f"The {kind} schema of subject {subject!r} would be another one than that under which its values are sent",
            subject=subject,
        )


def opened(run: EpochRun, name: str, source: SeedSource, start: Offsets) -> EpochRun:
    """A run into a folder of its own, claimed and seeded; the slices of an earlier one of that name stay.

    Args:
        run: the epoch; its sender is not taken along.
        name: of the folder.
        source: the content of the tables at the start. Append outputs start empty.
        start: offsets to begin with.
    """
    paths = run.paths.recomputed(name)
    second = replace(run, paths=paths, ledger=Ledger(paths.ledger), copied=run.ledger, sent=Sent(), scratch=Scratch())
    second.ledger.create()
    second.ledger.claim(second.writer, second.code, second.ledger.state())
    seed(second, replace(source, lake=source.lake or run.paths.lake, outputs=False), start)
    return second


def compute(run: EpochRun, ranges: Sequence[OffsetRange]) -> LedgerRow:
    """One slice of a run of :func:`opened`."""
    releases: Releases = {}
    floors: Floors = {}
    aside: SetAsides = ()
    frontiers: Mapping[str, int] = {}
    if run.copied is not None:
        frontiers = _frontiers(run, run.copied, ranges_end(ranges))
        state, own = run.copied.state(), run.ledger.state()
        aside = set_asides.within(state.set_aside, ranges)
        if run.topology.has_event_time:
            floors = copied(state.floors, own.floored, ranges)
        if run.topology.idle_after:
            releases = copied(state.releases, own.released, ranges)
    row = run_slice(
        run, ranges, sends="held", logged=False, releases=releases, set_aside=aside, floors=floors, frontiers=frontiers
    )
    crash_point("recomputed.slice", row.seq)
    return row


def _frontiers(run: EpochRun, copied: Ledger, end: Offsets) -> dict[str, int]:
    """The time up to which rows of followed topics are final at an offset, from the slices of the epoch."""
    frontiers: dict[str, int] = {}
    for piece in copied.history() if run.followed else ():
        for row in reversed(piece):
            if row.kind == "commit" and end.dominates(ranges_end(row.ranges).only(end.topics)):
                frontiers = row.frontiers | frontiers
            if frontiers.keys() >= run.followed:
                return frontiers
    return frontiers


def advance(
    run: EpochRun,
    end: Offsets,
    index: TimeIndex,
    size: int,
    *,
    check: Callable[[Sequence[OffsetRange]], None] = lambda _: None,
) -> bool:
    """Compute one more slice of a run of :func:`opened`; False when it has reached the end.

    Idempotent: a run that was killed goes on with its own ledger.

    Args:
        run: the run.
        end: where it ends.
        index: looks times up, for the cuts.
        size: most offsets of a slice.
        check: raises when the records of a slice are no longer in the log; without it, reading the slice raises.
    """
    state = run.ledger.begun()
    if state.open_plan is not None:
        _finish(run, state, state.open_plan, size)
        return True
    if state.position == end:
        return False
    ranges = state.position.span_to(cut_by_time(index, state, end, size))
    check(ranges)
    compute(run, ranges)
    return True


def rows_of(run: EpochRun, row: LedgerRow, member: Table | Append) -> DataFrame:
    """Rows of a table or append output as of a commit, without those that an output was seeded with."""
    is_table = f"tables/{member.name}" in row.delta_versions
    place = f"{'tables' if is_table else 'outputs'}/{member.name}"
    frame = frame_at(run.engines.session, run.paths, row, place)
    return frame if is_table else frame.where("_seq > 0")


def discard(paths: EpochPaths, name: str) -> None:
    """Remove a run's folder. Idempotent; a crash leaves some of it."""
    folder = paths.recomputed(name).lake
    store_of(folder).delete_folder(folder)


class SecondRun:
    """The range of a replay computed again in slices of another size, one slice at a call.

    Args:
        run: the epoch, which has read the range to its end.
        plan: its plan.
    """

    def __init__(self, run: EpochRun, plan: ReplayPlan) -> None:
        self._run = run
        self._plan = plan
        self._again: EpochRun | None = None
        self._size = other_size(plan.request.slice_records, plan.start.count_to(plan.end))

    def advance(
        self, index: TimeIndex, *, most: int, check: Callable[[Sequence[OffsetRange]], None]
    ) -> Determinism | None:
        """Compute one more slice; after the last one compare both runs.

        Idempotent: a run that was killed goes on with its own ledger.

        Args:
            index: looks times up, for the cuts.
            most: most offsets in a slice at the moment: fewer after a slice failed.
            check: raises when the records of a slice are no longer in the log.

        Returns:
            The comparison of both runs; None while there is more to compute.
        """
        if self._again is None:
            self._again = opened(self._run, SECOND_RUN, SeedSource.of_plan(self._plan), self._plan.start)
        again, state = self._again, self._again.ledger.begun()
        size = min(self._size, most) if most < self._plan.request.slice_records else self._size
        if advance(again, self._plan.end, index, size, check=check):
            return None
        return self._compared(again, state)

    def close(self) -> None:
        """Free the memory and remove the folder. Idempotent."""
        if self._again is not None:
            for state in self._again.scratch.states.values():
                state.forget()
        self._again = None
        discard(self._run.paths, SECOND_RUN)

    def _compared(self, again: EpochRun, state: BegunState) -> Determinism:
        first = self._run.ledger.begun()
        mask = Mask()
        topology = self._run.topology
        outcome = Determinism(
            slice_records=self._plan.request.slice_records,
            slice_records_again=self._size,
            slices=first.slices,
            slices_again=state.slices,
            members=tuple(
                twice(m, rows_of(self._run, first.committed, m), rows_of(again, state.committed, m), mask)
                for m in (*topology.tables, *topology.appends)
                if m.cuts != "equal"
            ),
        )
        crash_point("recomputed")
        return outcome


def _finish(run: EpochRun, state: LedgerState, plan: LedgerRow, size: int) -> None:
    """Finish a planned slice, or abandon it when it is too large."""
    if state.open_effects is None and sum(r.count for r in plan.ranges) > size:
        abandon_slice(run, plan)
    else:
        finish_slice(run, plan)
