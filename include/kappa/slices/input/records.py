"""The records of one source in a slice, from the log, from its archive, or as they are given: rows, counts and dead
letters.

Those of the log and given ones are taken into the driver's memory when they are few; what comes of it is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kappa.archive.reader import Archive
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.slices.input import dead_letters
from kappa.spark.session import frame_of
from kappa.topology import Source
from kappa.topology.ddl import quoted
from kappa.topology.schemas.wire_schemas import WriterSchemas
from kappa.wire.batches import Aside, Start
from kappa.wire.parsing import LookUp, frame_of_records, ids_of, layout_of, resolved, row_columns, rows_of_records
from kappa.wire.row_times import EVENT_MS, latest_time, latest_time_of_archive, timed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_IS_GOOD = "_read IS NULL AND _dead IS NULL"
#: Aggregates of rows: their number, that of dead letters, and the largest timestamp.
_COUNTS = ("COUNT(_offset) AS rows", "COUNT(_dead) AS dead", "MAX(_order_timestamp) AS newest")


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts of a partition's records.

    Attributes:
        partition: the partition.
        rows: records.
        dead: dead letters among them.
        newest_ms: running maximum of Kafka's timestamps after the last record, epoch milliseconds.
        event_ms: largest event time that moves its stream time, epoch milliseconds; None where none does.
    """

    partition: int
    rows: int
    dead: int
    newest_ms: int
    event_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Records:
    """The records of one source.

    Attributes:
        frame: good rows, with event time where the source has it.
        tallies: one per partition that has records.
        dead: dead letters in the columns of :data:`kappa.slices.input.dead_letters.COLUMNS`.
        read: how many records there were, counted before they were parsed.
        bytes: size of their keys and values; None where they were not looked at.
        persisted: frames to release after the slice.
    """

    frame: DataFrame
    tallies: tuple[Tally, ...]
    dead: pa.Table | None
    read: int
    bytes: int | None
    persisted: tuple[DataFrame, ...] = ()

    def close(self) -> None:
        """Release what is kept in Spark's memory."""
        for frame in self.persisted:
            frame.unpersist()

    def after(self, start: Start) -> Start:
        """Where the source stands after them."""
        timestamps = {tally.partition: tally.newest_ms for tally in self.tallies}
        times = dict(start.stream_times)
        for tally in self.tallies:
            if tally.event_ms is not None:
                times[tally.partition] = max(tally.event_ms, times.get(tally.partition, tally.event_ms))
        return replace(start, timestamps={**start.timestamps, **timestamps}, stream_times=times)


def in_memory(session: SparkSession, records: pa.Table, source: Source, start: Start, look_up: LookUp) -> Records:
    """Records of a log that are in the driver's memory.

    Args:
        session: has the frame of the good rows.
        records: the columns of :func:`~kappa.wire.parsing.columns_to_read`, of each partition in the order of offsets.
        source: how keys and values are read.
        start: where the source stands before the first record.
        look_up: gives the schemas of ids.
    """
    import pyarrow.compute as pc

    layout = layout_of(source, look_up(ids_of(records, source)))
    parsed = rows_of_records(records, layout, start)
    is_good = pc.is_null(parsed.rows["_dead"])
    good = parsed.rows.filter(is_good).select(row_columns(source))
    sums = [("_offset", "count"), ("_dead", "count"), ("_order_timestamp", "max")]
    counts = parsed.rows.group_by("_partition").aggregate(sums).rename_columns(["_partition", "rows", "dead", "newest"])
    tallies = _tallies(counts)
    reached = parsed.stream_times
    return Records(
        frame=frame_of(session, good),
        tallies=tuple(replace(tally, event_ms=reached.get(tally.partition)) for tally in tallies),
        dead=parsed.rows.filter(pc.invert(is_good)).select(list(dead_letters.COLUMNS)),
        read=parsed.read,
        bytes=parsed.bytes,
    )


def where_they_are(raw: DataFrame, source: Source, start: Start, look_up: LookUp) -> Records:
    """Records of a log, parsed in Spark's tasks; the rows are kept there."""
    import pyarrow.compute as pc
    from pyspark.sql import functions as F

    frame = resolved(source, lambda schemas: frame_of_records(raw, layout_of(source, schemas), start), look_up)
    try:
        sums = ["SUM(_read) AS read", "SUM(_bytes) AS bytes"]
        counted = (*map(F.expr, [*_COUNTS, *sums]), latest_time(source, _IS_GOOD))
        counts = frame.groupBy("_partition").agg(*counted).toArrow()
        tallies = _tallies(counts.filter(pc.is_valid(counts["_partition"])))
        dead = None
        if any(tally.dead for tally in tallies):
            dead = frame.where("_dead IS NOT NULL").select(*dead_letters.COLUMNS).toArrow()
    except BaseException:
        frame.unpersist()
        raise
    return Records(
        frame=frame.where(_IS_GOOD).selectExpr(*quoted(row_columns(source))),
        tallies=tallies,
        dead=dead,
        read=pc.sum(counts["read"]).as_py() or 0,
        bytes=pc.sum(counts["bytes"]).as_py() or 0,
        persisted=(frame,),
    )


@dataclass(frozen=True, kw_only=True)
class Archived:
    """Records of an archive, never taken into memory whole: a step reads few of the columns, and only those are read.

    Attributes:
        frame: good rows.
        count: counts them, for :class:`Records` of the same frame.
        persisted: frames to release after the slice.

    Raises:
        DataLossError: in ``count``, the archive has lost records, or has some twice.
    """

    frame: DataFrame
    count: Callable[[], Records]
    persisted: tuple[DataFrame, ...] = ()


def of_archive(
    session: SparkSession,
    archive: Archive,
    source: Source,
    ranges: Sequence[OffsetRange],
    start: Start,
    epoch_start: Offsets,
    look_up: LookUp,
) -> Archived:
    """The archived records of these ranges.

    Args:
        archive: of the source's topic.
        source: how keys and values are read, where they were not parsed by it when they were archived.
        ranges: at most one per partition.
        start: where the source stands before the first record.
        epoch_start: where the epoch's own reading begins.
        look_up: gives the schemas of ids.
    """
    is_parsed = archive.is_parsed(source, archive.overlapping(ranges))

    def rows(schemas: WriterSchemas) -> DataFrame:
        times, aside = start.timestamps, start.aside
        return archive.rows(
            session, source, ranges, before=times, history_start=epoch_start, schemas=schemas, aside=aside
        )

    frame = rows({}) if is_parsed else resolved(source, rows, look_up)
    persisted = () if is_parsed else (frame,)
    good = frame.where("_dead IS NULL").selectExpr(*quoted(source.row_columns))
    if source.has_event_time:
        good = timed(good, source, start).selectExpr(*quoted(row_columns(source)))

    def count() -> Records:
        from pyspark.sql import functions as F

        counted = (*map(F.expr, _COUNTS), latest_time_of_archive(source, "_dead IS NULL", start.now_ms))
        by_chunk = frame.groupBy("_partition", "_seq").agg(*counted).toArrow()
        dead = None
        if any(by_chunk["dead"].to_pylist()):
            dead = frame.where("_dead IS NOT NULL").select(*dead_letters.COLUMNS).toArrow()
        archive.check_rows({(row["_partition"], row["_seq"]): row["rows"] for row in by_chunk.to_pylist()}, ranges)
        sums = [("rows", "sum"), ("dead", "sum"), ("newest", "max"), (EVENT_MS, "max")]
        names = ["_partition", "rows", "dead", "newest", EVENT_MS]
        counts = by_chunk.group_by("_partition").aggregate(sums).rename_columns(names)
        read = archive.count(ranges)
        return Records(frame=good, tallies=_tallies(counts), dead=dead, read=read, bytes=None)

    return Archived(frame=good, count=count, persisted=persisted)


def unread(frame: DataFrame, topic: str, aside: Aside) -> Records:
    """Records that cannot be read at all, set aside without their values.

    Args:
        frame: the rows beside them.
        topic: their topic, as the step knows it.
        aside: where they lie, and why they are set aside.
    """
    import pyarrow as pa

    places = [(partition, offset, why) for partition, by_offset in aside.items() for offset, why in by_offset.items()]
    letters = pa.table(
        {
            "_topic": pa.array([topic] * len(places), pa.string()),
            "_partition": pa.array([place[0] for place in places], pa.int32()),
            "_offset": pa.array([place[1] for place in places], pa.int64()),
            "_timestamp": pa.nulls(len(places), pa.timestamp("us", "UTC")),
            "_key": pa.nulls(len(places), pa.string()),
            "_value": pa.nulls(len(places), pa.binary()),
            "_dead": pa.array([place[2] for place in places], pa.string()),
        }
    )
    tallies = tuple(
        Tally(partition=partition, rows=len(offsets), dead=len(offsets), newest_ms=0)
        for partition, offsets in aside.items()
    )
    return Records(frame=frame, tallies=tallies, dead=letters, read=len(places), bytes=0)


def _tallies(counts: pa.Table) -> tuple[Tally, ...]:
    # As numbers: a record's time may lie outside the years that Python has.
    newest = counts["newest"].cast("int64").to_pylist()
    return tuple(
        Tally(
            partition=row["_partition"],
            rows=row["rows"],
            dead=row["dead"],
            newest_ms=micros // 1000,
            event_ms=row.get(EVENT_MS),
        )
        for row, micros in zip(counts.drop_columns(["newest"]).to_pylist(), newest, strict=True)
    )
