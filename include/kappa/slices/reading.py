"""The records of one slice: read once, parsed once, counted before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from kappa.archive.reader import Archive
from kappa.offsets.coverage import without
from kappa.offsets.floors import Floors, least_frontiers
from kappa.offsets.releases import Releases, merged, times_after
from kappa.offsets.vector import OffsetRange, Offsets, ranges_from_json
from kappa.slices import dead_letters, tallies
from kappa.slices.ahead import Parsed, ReadAhead, Wanted, parse_large
from kappa.slices.schemas import Schemas
from kappa.slices.tallies import Counts
from kappa.spark.event_time import LATEST, by_spark, in_memory, latest
from kappa.spark.kafka_source import read_log
from kappa.spark.parsing import parse_counted, typed_rows
from kappa.spark.parsing.avro import UNRESOLVED, unresolved_ids
from kappa.spark.parsing.batches import LEFT
from kappa.spark.parsing.small import parse_rows
from kappa.spark.session import frame_of
from kappa.topology import Source
from kappa.topology.ddl import quoted
from kappa.topology.event_time import Frontier, frontier_of
from kappa.topology.wire_schemas import WriterSchemas

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kappa.lake.ledger_rows import LedgerRow


#: Most records of a source whose step is one task: more of them are worth a second core.
ONE_TASK_ROWS = 10_000


def is_small(ranges: Sequence[OffsetRange], small_slice: int) -> bool:
    """Whether the records of a slice are taken into the driver's memory: its span is at most so many offsets."""
    return sum(r.count for r in ranges) <= small_slice


class Reading:
    """The records of one slice, while it is worked on; what is kept in memory is let go at the end.

    Args:
        sources: what is read.
        plan: the slice.
        committed: the commit before it.
        raw: the records, when Spark has read them already.
        archives: archives of the topics, by topic; the plan says which of its ranges are read from there.
        begun: where the epoch's own reading begins.
        bound: source -> the versioned topic of another topology's epoch that is read as it; the step sees the source's
            name.
        mask_key: key of what is kept of dead letters from sensitive sources.
        schemas: of sources whose values begin with the id of a schema.
        small_slice: largest span of a slice whose parsed records are taken into the driver's memory.
        released: releases of the slices before.
        floored: floors of the frontiers up to the slice.
        ahead: what was read before the slice was planned; closed at the end.

    Attributes:
        records: topic -> parsed records.
        frontiers: topic -> its frontier at the end of the slice, of sources with event time.
        is_small: whether they are in the driver's memory. Rows of an archive never are.
    """

    def __init__(
        self,
        session: SparkSession,
        bootstrap_servers: str,
        sources: Sequence[Source],
        plan: LedgerRow,
        committed: LedgerRow,
        raw: DataFrame | None = None,
        *,
        archives: Mapping[str, Archive] | None = None,
        begun: Offsets | None = None,
        bound: Mapping[str, str] | None = None,
        small_slice: int = 50_000,
        mask_key: str = "",
        schemas: Schemas | None = None,
        released: Releases | None = None,
        floored: Floors | None = None,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._session = session
        self._bootstrap_servers = bootstrap_servers
        self._sources = sources
        self._plan = plan
        self._carried = committed.max_timestamps
        self._stream_times = {topic: dict(parts) for topic, parts in committed.stream_times.items()}
        self._released = merged([released or {}, plan.releases])
        self._floored = merged([floored or {}, plan.floors])
        self._raw = raw
        self._ahead = ahead
        self._archives = archives or {}
        self._archived = archived_ranges(plan)
        self._begun = begun or Offsets()
        self._bound = bound or {}
        self._read: list[int] = []
        self._bytes: list[int | None] = []
        self._held: list[DataFrame] = []
        self._dead: list[pa.Table] = []
        self._rows: list[tuple[str, int, int, int, int]] = []
        self._threads = ThreadPoolExecutor(1, "counting")
        self._to_count: list[Callable[[], None]] = []
        self._counting: list[Future[None]] = []
        self.records: dict[str, DataFrame] = {}
        self.frontiers: dict[str, Frontier] = {}
        self._small_slice = small_slice
        self._mask_key = mask_key
        self._schemas = schemas
        self._is_history = plan.sends != "live"
        self._now_ms = round(plan.at.timestamp() * 1000)
        self.is_small = is_small(plan.ranges, small_slice) and not self._archived

    def __enter__(self) -> Reading:
        try:
            if self._raw is not None and len(self._sources) > 1:
                self.hold([self._raw])
            for source in self._sources:
                self.records[source.topic] = self._source(source)
                if source.grace_ms is not None:
                    self.frontiers[source.topic] = self._frontier(source, source.grace_ms)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        if self._ahead is not None:
            self._ahead.close()
        for frame in self._held:
            frame.unpersist()

    def hold(self, frames: Sequence[DataFrame]) -> None:
        """Keep the rows of these, once computed, until the end of the slice."""
        self._held.extend(frame.persist() for frame in frames)

    def _source(self, source: Source) -> DataFrame:
        """The records of one source, from its archive and from the log behind that."""
        topic = self._topic(source)
        before = dict(self._carried.get(topic, {}))
        archived = [r for r in self._archived if r.topic == topic]
        ranges = [r for r in self._plan.ranges if r.topic == topic]
        if not archived:
            return self._logged(source, ranges, before)
        frame = self._from_archive(source, archived, before)
        rest = without(ranges, archived)
        if not rest:
            return frame
        self.settle()
        before |= {row[1]: row[4] for row in self._rows if row[0] == topic}
        return frame.unionByName(self._logged(source, rest, before))

    def _frontier(self, source: Source, grace_ms: int) -> Frontier:
        """The frontier of a source at the end of the slice, with what is released up to there."""
        topic = self._topic(source)
        partitions = [r.partition for r in self._plan.ranges if r.topic == topic]
        reached = times_after(self._stream_times.get(topic, {}), self._released.get(topic, {}))
        self._stream_times[topic] = reached
        return frontier_of(reached, partitions, grace_ms, least_frontiers(self._floored.get(topic, {})))

    def _timed(self, source: Source, rows: DataFrame, tally: pa.Table) -> DataFrame:
        """Good rows with their event times, where the source has them, and how far those have come by partition."""
        if source.grace is None:
            return rows
        topic = self._topic(source)
        before = self._stream_times.get(topic, {})
        released, floors = self._released.get(topic, {}), self._floored.get(topic, {})
        timed = by_spark(rows, source, before, self._now_ms, released, floors)
        reached = dict(before)
        for row in tally.select(["_partition", LATEST]).to_pylist():
            if row["_partition"] is not None and row[LATEST] is not None:
                reached[row["_partition"]] = max(row[LATEST], reached.get(row["_partition"], row[LATEST]))
        self._stream_times[topic] = reached
        return timed

    def _topic(self, source: Source) -> str:
        """What the source's topic is called in Kafka, and in the ledger."""
        return self._bound.get(source.topic, source.topic)

    def _logged(self, source: Source, ranges: Sequence[OffsetRange], before: Mapping[int, int]) -> DataFrame:
        return self._small(source, ranges, before) if self.is_small else self._large(source, ranges, before)

    def _from_archive(self, source: Source, ranges: Sequence[OffsetRange], before: Mapping[int, int]) -> DataFrame:
        """Rows of the archive, never taken into memory whole: a step reads few of the columns, and only those are
        fetched.
        """
        archive = self._archives[self._topic(source)]
        is_parsed = archive.is_parsed(source, archive.overlapping(ranges))

        def rows(schemas: WriterSchemas) -> DataFrame:
            return archive.rows(self._session, source, ranges, before=before, begun=self._begun, schemas=schemas)

        frame = rows({}) if is_parsed else self._kept(source, rows)
        good = frame.where("_dead IS NULL").selectExpr(*quoted(source.row_columns))
        if is_parsed and source.grace is None:
            self._to_count.append(lambda: self._count_archived(archive, source, ranges, frame))
            return good
        # Where there is event time, the frontier has to be known before the step is called.
        return self._timed(source, good, self._count_archived(archive, source, ranges, frame))

    def _count_archived(
        self, archive: Archive, source: Source, ranges: Sequence[OffsetRange], frame: DataFrame
    ) -> pa.Table:
        counted = (*tallies.tally(), latest(source, "_dead IS NULL", self._now_ms))
        by_chunk = frame.groupBy("_partition", "_seq").agg(*counted).toArrow()
        if sum(by_chunk["dead"].to_pylist()):
            self._dead.append(frame.where("_dead IS NOT NULL").select(*dead_letters.COLUMNS).toArrow())
        counts = {(row["_partition"], row["_seq"]): row["rows"] for row in by_chunk.to_pylist()}
        archive.check_rows(counts, ranges)
        tally = by_chunk.group_by("_partition").aggregate([("rows", "sum"), ("dead", "sum"), ("newest", "max")])
        self._count(source, tally.rename_columns(["_partition", "rows", "dead", "newest"]))
        self._note_read(archive.count(ranges), None)
        return by_chunk

    def count_aside(self) -> None:
        """Begin to count what is counted in a thread of its own, while the step's rows are computed; :meth:`settle`
        waits for it.

        To be called when their plans are made: two plans at once hinder each other, while a pass over a few columns
        fills the gaps between the tasks of a job that was there before.
        """
        from pyspark import inheritable_thread_target

        while self._to_count:
            self._counting.append(self._threads.submit(inheritable_thread_target(self._session)(self._to_count.pop(0))))

    def settle(self) -> None:
        """Wait until everything is counted: what is wrong with the records is raised here.

        Raises:
            DataLossError: an archive has lost records, or has some twice.
        """
        self.count_aside()
        while self._counting:
            self._counting.pop(0).result()

    def _records(self, source: Source, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The records as Kafka has them."""
        from pyspark.sql import functions as F

        if self._raw is None:
            topic = self._topic(source)
            return read_log(self._session, self._bootstrap_servers, topic, ranges, headers=source.headers)
        return self._raw.where(F.col("topic") == source.topic)

    def _note_read(self, rows: int, size: int | None) -> None:
        self._read.append(rows)
        self._bytes.append(size)

    def _kept(self, source: Source, rows: Callable[[WriterSchemas], DataFrame]) -> DataFrame:
        """The rows that are made with the schemas of their values, kept; made again where some were not known yet.

        Raises:
            RegistryUnreachableError: one is in neither lake nor registry, as far as the registry answers.
        """
        from pyspark.sql import functions as F

        if source.format != "avro":
            self.hold([frame := rows({})])
            return frame
        assert self._schemas is not None
        known = dict(self._schemas.known(source.topic))
        while True:
            self.hold([frame := rows(known)])
            reasons = frame.where(F.col("_dead").startswith(UNRESOLVED)).select("_dead").distinct().toArrow()
            ids = unresolved_ids(reasons["_dead"].to_pylist())
            if not ids:
                return frame
            self._held.pop().unpersist()
            known |= self._schemas.look_up(source.topic, ids, is_history=self._is_history)

    def _small(self, source: Source, ranges: Sequence[OffsetRange], before: Mapping[int, int]) -> DataFrame:
        import pyarrow.compute as pc

        topic, schemas = self._topic(source), self._schemas
        look_up = partial(schemas.look_up, source.topic, is_history=self._is_history) if schemas else None
        parsed = parse_rows(self._records(source, ranges), source, before, look_up)
        self._note_read(parsed.read, parsed.bytes)
        rows = parsed.rows
        tally = rows.group_by("_partition").aggregate(tallies.SUMS)
        self._count(source, tally.rename_columns(["_partition", "rows", "dead", "newest"]))
        is_good = pc.is_null(rows["_dead"])
        self._dead.append(rows.filter(pc.invert(is_good)))
        good = rows.filter(is_good).select(source.row_columns)
        if source.grace is not None:
            newest = {row[1]: row[4] for row in self._rows if row[0] == topic}
            times, released = self._stream_times.get(topic, {}), self._released.get(topic, {})
            floors = self._floored.get(topic, {})
            good, self._stream_times[topic] = in_memory(good, source, times, newest, self._now_ms, released, floors)
        frame = frame_of(self._session, good)
        # Rows of one task are in every partitioning that a step asks for: Spark moves none of them between two.
        return frame.coalesce(1) if good.num_rows <= ONE_TASK_ROWS else frame

    def _parsed(self, source: Source, ranges: Sequence[OffsetRange], before: Mapping[int, int]) -> Parsed | None:
        """What Arrow reads of the records, kept: as it was read ahead, or read now."""
        wanted = Wanted(source=source, ranges=tuple(ranges), before=before)
        if self._ahead is not None and self._raw is None and (parsed := self._ahead.take(wanted)) is not None:
            return parsed
        return parse_large(self._records(source, ranges), wanted, self._now_ms)

    def _large(self, source: Source, ranges: Sequence[OffsetRange], before: Mapping[int, int]) -> DataFrame:
        import pyarrow as pa
        import pyarrow.compute as pc

        parsed = self._parsed(source, ranges, before)
        if parsed is None:
            return self._by_spark(source, ranges, before)
        frame, tally = parsed.frame, parsed.tally
        self._held.append(frame)
        left, dead = sum(tally["left"].to_pylist()), sum(tally["dead"].to_pylist())
        if left > self._small_slice:  # not worth the detour: read again, and let Spark parse all of it
            self._held.pop().unpersist()
            return self._by_spark(source, ranges, before)
        names = source.row_columns
        good = frame.where(f"_read IS NULL AND _dead IS NULL AND _state <> {LEFT}").selectExpr(*quoted(names))
        if not left:
            self._count_all(source, tally)
            if dead:
                self._dead.append(frame.where("_dead IS NOT NULL").toArrow())
            return self._timed(source, good, tally)
        odd = frame.where(f"_dead IS NOT NULL OR _state = {LEFT}").toArrow()
        to_do = pc.equal(odd["_state"], LEFT)
        rows = typed_rows(self._session, odd.filter(to_do), source)
        is_good = pc.is_null(rows["_dead"])
        self._dead += [odd.filter(pc.invert(to_do)), rows.filter(pc.invert(is_good))]
        self._count_all(source, tally, also_dead=rows.filter(pc.invert(is_good)))
        slow = frame_of(self._session, rows.filter(is_good).select(names))
        if source.grace is None:
            return good.unionByName(slow)
        also = slow.groupBy("_partition").agg(latest(source, "TRUE", self._now_ms)).toArrow()
        both = pa.concat_tables([tally.select(also.column_names), also], promote_options="permissive")
        return self._timed(source, good.unionByName(slow), both)

    def _by_spark(self, source: Source, ranges: Sequence[OffsetRange], before: Mapping[int, int]) -> DataFrame:
        """The same where Arrow reads nothing, or too little."""
        frame = self._kept(
            source,
            lambda schemas: parse_counted(
                self._records(source, ranges), source, before, in_arrow=False, schemas=schemas
            ),
        )
        is_good = "_read IS NULL AND _dead IS NULL"
        tally = (
            frame.groupBy("_partition")
            .agg(*tallies.tally(), *tallies.read_tally(), latest(source, is_good, self._now_ms))
            .toArrow()
        )
        self._count_all(source, tally)
        if sum(tally["dead"].to_pylist()):
            self._dead.append(frame.where("_dead IS NOT NULL").toArrow())
        return self._timed(source, frame.where(is_good).selectExpr(*quoted(source.row_columns)), tally)

    def _count_all(self, source: Source, tally: pa.Table, *, also_dead: pa.Table | None = None) -> None:
        """Note what was parsed and, from the rows that tasks added for it, what was read before."""
        import pyarrow.compute as pc

        self._note_read(*(pc.sum(tally[name]).as_py() or 0 for name in ("read", "bytes")))
        self._count(source, tally.filter(pc.is_valid(tally["_partition"])), also_dead=also_dead)

    def _count(self, source: Source, tally: pa.Table, *, also_dead: pa.Table | None = None) -> None:
        more = Counter(also_dead["_partition"].to_pylist() if also_dead is not None else [])
        # As numbers: a record's time may lie outside the years that Python has.
        newest = tally["newest"].cast("int64").to_pylist()
        counted = tally.select(["_partition", "rows", "dead"]).to_pylist()
        for row, micros in zip(counted, newest, strict=True):
            millis = micros // 1000
            dead = row["dead"] + more[row["_partition"]]
            self._rows.append((self._topic(source), row["_partition"], row["rows"], dead, millis))

    def dead_letters(self) -> pa.Table:
        """Dead letters of all sources, in the columns of the dead letter table."""
        self.settle()
        return dead_letters.table(self._dead, self._sources, self._plan.seq, bound=self._bound, mask_key=self._mask_key)

    def counts(self) -> Counts:
        """What was read; ``rows_read`` is counted before parsing, the others after it."""
        self.settle()
        times: dict[str, dict[int, int]] = {topic: dict(parts) for topic, parts in self._carried.items()}
        for topic, partition, _, _, millis in self._rows:
            times.setdefault(topic, {})[partition] = millis  # what comes from the log stands behind the archive's
        dead = sum(row[3] for row in self._rows)
        return Counts(
            rows_read=sum(self._read),
            bytes_read=None if None in self._bytes else sum(size for size in self._bytes if size is not None),
            rows_parsed=sum(row[2] for row in self._rows) - dead,
            rows_dead=dead,
            max_timestamps=times,
            stream_times={topic: dict(parts) for topic, parts in self._stream_times.items()},
        )


def archived_ranges(row: LedgerRow) -> tuple[OffsetRange, ...]:
    """The part of a slice's ranges that is read from archives, as its plan and its commit say."""
    return ranges_from_json(row.detail.get("archived", {}))
