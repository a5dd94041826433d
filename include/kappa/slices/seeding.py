"""The content of an epoch's tables before its first slice: nothing, or the rows of a savepoint, a changelog or tables.

A seed ends with commit 0. Everything before that row is repeated after a crash, into tables that it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kappa import clock
from kappa.delta import tables
from kappa.errors import DataLossError, LedgerError
from kappa.faults import crash_point
from kappa.kafka import markers
from kappa.names import EpochPaths
from kappa.offsets import set_asides
from kappa.offsets.floors import Floors, floors_detail, of_longer_grace
from kappa.offsets.releases import Releases, as_of, merged, releases_detail, up_to
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.record.merge_on_read import frame_at
from kappa.record.past_commits import commit_with
from kappa.replay.adoption import ExistingTable
from kappa.replay.plan import ReplayPlan
from kappa.slices.adopted_rows import copy_tables
from kappa.slices.folding import fold_into
from kappa.slices.places import create_tables, make_durable
from kappa.slices.protocol import roots_detail
from kappa.slices.run import LOST_RELEASES, LOST_SET_ASIDES, MASK, EpochRun
from kappa.slices.seeded_rows import seed_output, seed_table
from kappa.topology.ddl import Column
from kappa.topology.masking import fingerprint
from kappa.topology.shapes import Shape, graces_of, masked_of, shapes_as_dict, shapes_from_dict, shapes_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class SeedSource:
    """Where a seed comes from.

    Attributes:
        kind: ``empty``, ``from-savepoint``, ``from-changelog`` or ``from-tables``.
        epoch: the epoch whose savepoint or changelog it is.
        seq: its ledger row; for a changelog the marker's slice.
        times: whether an empty seed takes over how far the records had come at that row.
        lake: the lake that the other epoch is in; None for that of the run.
        outputs: whether append outputs begin with the savepoint's rows.
        tables: the tables of another job whose rows it is.
        is_first: whether that job must not have written since the plan.
    """

    kind: str
    epoch: int | None = None
    seq: int | None = None
    times: bool = False
    lake: str | None = None
    outputs: bool = True
    tables: tuple[ExistingTable, ...] = ()
    is_first: bool = False

    @classmethod
    def of_plan(cls, plan: ReplayPlan, *, is_first: bool = False) -> SeedSource:
        """The seed of a plan."""
        return cls(kind=plan.seed, epoch=plan.seed_epoch, seq=plan.seed_seq, tables=plan.seed_tables, is_first=is_first)


@dataclass(frozen=True, kw_only=True)
class Times:
    """How far the records had come before the first slice; see :class:`~kappa.record.ledger_rows.LedgerRow`."""

    max_timestamps: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    stream_times: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    releases: Releases = field(default_factory=dict)
    has_lost_releases: bool = False
    set_aside: SetAsides = ()
    has_lost_set_asides: bool = False
    floors: Floors = field(default_factory=dict)


def seed(run: EpochRun, source: SeedSource, start: Offsets) -> LedgerRow:
    """Bring the epoch's tables to their state before its first slice.

    Idempotent.

    Returns:
        Commit 0.

    Raises:
        LedgerError: the savepoint is not in the other epoch's ledger, or lacks a table.
        DataLossError: a marker or changelog is missing, or says other offsets than the plan.
        BrokerUnreachableError: a transaction in a changelog is open; it ends by itself after its timeout.
        AdoptionError: the tables of another job moved on, were made anew, or have rows that the epoch could not hold.
    """
    state = run.ledger.state()
    if state.committed is not None:
        return state.commits[0]
    create_tables(run.topology, run.paths)
    times = Times()
    if source.kind == "from-savepoint":
        times = _from_savepoint(run, source, start)
    elif source.kind == "from-changelog":
        times = _from_changelog(run, source, start)
    elif source.kind == "from-tables":
        copy_tables(run, source.tables, is_first=source.is_first)
    elif source.times:
        times = _times(run, *_commit(run, source)[1:], start)
    crash_point("seed.tables", 0)
    versions = {f"tables/{t.name}": tables.version(run.paths.table(t.name)) for t in run.topology.tables}
    versions |= {f"changes/{t.name}": tables.version(run.paths.changes(t.name)) for t in run.topology.tables}
    versions |= {f"outputs/{a.name}": tables.version(run.paths.output(a.name)) for a in run.topology.appends}
    versions["dead_letters"] = tables.version(run.paths.dead_letters)
    files = make_durable(run.paths, {}, versions)
    row = run.ledger.append(
        LedgerRow(
            kind="commit",
            seq=0,
            writer=run.writer,
            at=clock.now(),
            code=run.code,
            ranges=start.span_to(start),
            max_timestamps=times.max_timestamps,
            stream_times=times.stream_times,
            delta_versions=versions,
            detail={
                "seed": source.kind,
                "of_epoch": source.epoch,
                "of_seq": source.seq,
                "topic_ids": dict(run.topic_ids),
                "shapes": shapes_as_dict(shapes_of(run.topology)),
                "masked": masked_of(run.topology),
                **files,
                **roots_detail(run.roots),
                **releases_detail(times.releases),
                **set_asides.detail(times.set_aside),
                **({LOST_SET_ASIDES: True} if times.has_lost_set_asides else {}),
                **floors_detail(times.floors),
                **({LOST_RELEASES: True} if times.has_lost_releases and run.topology.has_idle_partitions else {}),
                **({"bound": dict(run.bound)} if run.bound else {}),
                **({MASK: fingerprint(run.engines.mask_key)} if run.topology.is_sensitive else {}),
            },
        )
    )
    crash_point("seed", 0)
    return row


def _from_savepoint(run: EpochRun, source: SeedSource, start: Offsets) -> Times:
    paths, state, row = _commit(run, source)
    for table in run.topology.tables:
        place = f"tables/{table.name}"
        if place not in row.delta_versions:
            raise LedgerError(
                f"The savepoint (epoch {source.epoch}, slice {row.seq}) has no table {table.name!r}.", table=table.name
            )
        frame = frame_at(run.engines.session, paths, row, place)
        _check_columns(frame, table.columns)
        seed_table(run, table, frame)
    for append in run.topology.appends if source.outputs else ():
        place = f"outputs/{append.name}"
        if place in row.delta_versions:
            frame = frame_at(run.engines.session, paths, row, place)
            _check_columns(frame, (*append.columns, *tables.LINEAGE))
            seed_output(run, append, frame)
    return _times(run, state, row, start)


def _commit(run: EpochRun, source: SeedSource) -> tuple[EpochPaths, LedgerState, LedgerRow]:
    """The commit of another epoch that a seed begins with, by the versions that are still there.

    A commit that was rolled up will do where only its times are needed.
    """
    assert source.epoch is not None and source.seq is not None
    paths = EpochPaths(lake=source.lake or run.paths.lake, topology=run.paths.topology, epoch=source.epoch)
    ledger = Ledger(paths.ledger)
    state = ledger.state()
    commit = state.commit(source.seq)
    if commit is None and source.kind == "empty":
        commit = commit_with(source.seq, ledger.past_commits())
    if commit is None:
        raise LedgerError(
            f"Epoch {source.epoch} has no commit {source.seq} to start from.", epoch=source.epoch, seq=source.seq
        )
    return paths, state, state.resolved(commit)


def _times(run: EpochRun, state: LedgerState, row: LedgerRow, start: Offsets) -> Times:
    end = ranges_end(row.ranges)
    floors = up_to(state.floored, end, at_end=True)
    longer = _with_longer_grace(run, end, row.stream_times, state.shapes_at(row.seq), floors)
    return Times(
        floors=merged([longer, _of_other_topics(run, state, row, start, floors)]),
        max_timestamps=row.max_timestamps,
        stream_times=row.stream_times,
        releases=as_of((releases for _, releases in state.releases), end, row.stream_times),
        has_lost_releases=LOST_RELEASES in state.commits[0].detail,
        set_aside=set_asides.before(state.set_aside, dict(ranges_end(row.ranges).items())),
        has_lost_set_asides=LOST_SET_ASIDES in state.commits[0].detail,
    )


def _with_longer_grace(
    run: EpochRun,
    end: Offsets,
    stream_times: Mapping[str, Mapping[int, int]],
    shapes: Mapping[str, Shape],
    floors: Floors,
) -> Floors:
    """The floors of a seed, with those that follow from a longer grace in the new code."""
    after = {run.bound.get(source.topic, source.topic): source for source in run.topology.sources}
    graces = {topic: source.grace_ms for topic, source in after.items() if source.grace_ms is not None}
    before = {run.bound.get(topic, topic): ms for topic, ms in graces_of(shapes).items()}
    return merged([floors, of_longer_grace(end, stream_times, before, graces, floors)])


def _of_other_topics(
    run: EpochRun, state: LedgerState, row: LedgerRow, start: Offsets, floors: Floors
) -> dict[str, dict[int, dict[int, int]]]:
    """The floors of versioned topics that are read in the place of others: the frontier by which rows were closed."""
    bound, graces = state.commits[0].detail.get("bound", {}), graces_of(state.shapes_at(row.seq))
    new: dict[str, dict[int, dict[int, int]]] = {}
    for source, topic in run.bound.items():
        was = bound.get(source, source)
        frontier = row.frontier({was: graces[source]}, floors).ms if was != topic and source in graces else None
        if frontier is not None:
            new[topic] = {partition: {start[topic, partition]: frontier} for partition in start.partitions(topic)}
    return new


def _from_changelog(run: EpochRun, source: SeedSource, start: Offsets) -> Times:
    assert source.epoch is not None
    paths = EpochPaths(lake=run.paths.lake, topology=run.paths.topology, epoch=source.epoch)
    if run.engines.broker.has_topic(paths.markers):
        run.engines.broker.settled_ends([paths.markers])
    marker = markers.read(run.engines.broker, paths)
    if marker is None:
        raise DataLossError(f"Epoch {source.epoch} left no marker in {paths.markers!r}.", topic=paths.markers)
    # As a plan reads a marker: a partition that appeared since begins at 0.
    if marker.end.only(start.topics).naming(start) != start or marker.seq != source.seq:
        raise DataLossError(
            f"The marker of epoch {source.epoch} is of slice {marker.seq} at {marker.end.to_json()}; the plan says "
            f"slice {source.seq} at {start.to_json()}. The epoch went on in between: plan again.",
            marker=marker.end.to_json(),
            plan=start.to_json(),
        )
    for table in run.topology.tables:
        fold_into(run, paths, table, marker.seq)
    shapes = shapes_from_dict(marker.shapes)
    floors = {
        topic: {partition: {marker.end.get(topic, partition) or 0: ms} for partition, ms in parts.items()}
        for topic, parts in marker.floors.items()
    }
    decisions = marker.set_aside
    if Ledger(paths.ledger).exists():  # the epoch's lake is not lost, and its ledger names them all
        decisions = set_asides.before(Ledger(paths.ledger).state().set_aside, dict(marker.end.items()))
    return Times(
        max_timestamps=marker.max_timestamps,
        stream_times=marker.stream_times,
        has_lost_releases=True,
        set_aside=decisions,
        has_lost_set_asides=set_asides.count(decisions) < marker.set_aside_count,
        floors=_with_longer_grace(run, marker.end, marker.stream_times, shapes, floors),
    )


def _check_columns(frame: DataFrame, columns: tuple[Column, ...]) -> None:
    """Refuse an older table that lacks a column of a newer schema which may not be null.

    Raises:
        LedgerError: it does.
    """
    missing = [c.name for c in columns if not c.nullable and c.name not in frame.columns]
    if missing:
        raise LedgerError(
            f"The savepoint lacks columns {missing}, which may not be null. Replay from the beginning instead.",
            columns=missing,
        )
