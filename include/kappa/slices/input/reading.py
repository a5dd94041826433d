"""The records of one slice: read once, parsed once, counted before and after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from kappa.archive.reader import Archive
from kappa.errors import LedgerError
from kappa.offsets import set_asides
from kappa.offsets.coverage import without
from kappa.offsets.floors import Floors, least_frontiers
from kappa.offsets.releases import Releases, merged, times_after
from kappa.offsets.set_asides import SetAside
from kappa.offsets.vector import OffsetRange, Offsets, ranges_from_json
from kappa.slices.input import dead_letters
from kappa.slices.input.reader_schemas import Schemas
from kappa.slices.input.records import Records, in_memory, of_archive, unread, where_they_are
from kappa.spark.kafka_source import read_log
from kappa.topology import Source
from kappa.topology.masking import SHORTEST, fingerprint
from kappa.topology.schemas.wire_schemas import WriterSchemas
from kappa.topology.times.event_time import Frontier, frontier_of
from kappa.wire.batches import Start
from kappa.wire.parsing import columns_to_read

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kappa.record.ledger_rows import LedgerRow


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a slice read.

    Attributes:
        rows_read: records that Kafka or an archive gave, counted before parsing.
        rows_parsed: records that parsed.
        rows_dead: dead letters.
        rows_set_aside: records that a decision set aside.
        max_timestamps: topic -> partition -> running maximum of timestamps, epoch milliseconds.
        stream_times: topic -> partition -> running maximum of event times, epoch milliseconds; of sources with event
            time.
        bytes_read: size of their keys and values; None if some came from an archive, which does not read them.
    """

    rows_read: int
    rows_parsed: int
    rows_dead: int
    max_timestamps: Mapping[str, Mapping[int, int]]
    stream_times: Mapping[str, Mapping[int, int]]
    bytes_read: int | None
    rows_set_aside: int = 0


def is_small(ranges: Sequence[OffsetRange], small_slice: int) -> bool:
    """Whether the records of a slice are taken into the driver's memory: its span is at most this many offsets."""
    return sum(r.count for r in ranges) <= small_slice


class Reading:
    """The records of one slice, while it is in work; what is kept in memory is released at the end.

    Args:
        sources: what is read.
        plan: the slice.
        committed: the commit before it.
        raw: the records, when Spark has read them already.
        archives: archives of the topics, by topic; the plan says which of its ranges are read from there.
        epoch_start: where the epoch's own reading begins.
        bound: source -> the versioned topic of another topology's epoch that is read as it; the step sees the source's
            name.
        mask_key: key of what is kept of dead letters from sensitive sources.
        schemas: of sources whose values begin with the id of a schema.
        small_slice: largest span of a slice whose parsed records are taken into the driver's memory.
        released: releases of the slices before.
        floored: floors of the frontiers up to the slice.

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
        epoch_start: Offsets | None = None,
        bound: Mapping[str, str] | None = None,
        small_slice: int = 50_000,
        mask_key: str = "",
        schemas: Schemas | None = None,
        released: Releases | None = None,
        floored: Floors | None = None,
    ) -> None:
        self._session = session
        self._bootstrap_servers = bootstrap_servers
        self._sources = sources
        self._plan = plan
        self._timestamps = {topic: dict(parts) for topic, parts in committed.max_timestamps.items()}
        self._committed = committed
        self._stream_times = {topic: dict(parts) for topic, parts in committed.stream_times.items()}
        self._released = merged([released or {}, plan.releases])
        self._floored = merged([floored or {}, plan.floors])
        self._raw = raw
        self._raw_rows: pa.Table | None = None
        self._archives = archives or {}
        self._archived = archived_ranges(plan)
        self._epoch_start = epoch_start or Offsets()
        self._bound = bound or {}
        self._read: list[Records] = []
        self._held: list[DataFrame] = []
        self._threads = ThreadPoolExecutor(1, "counting")
        self._to_count: list[Callable[[], None]] = []
        self._counting: list[Future[None]] = []
        self.records: dict[str, DataFrame] = {}
        self.frontiers: dict[str, Frontier] = {}
        self._mask_key = mask_key
        self._schemas = schemas
        self._now_ms = round(plan.at.timestamp() * 1000)
        self._asides = set_asides.by_partition(plan.set_aside)
        self._set_aside = 0
        self.is_small = is_small(plan.ranges, small_slice) and not self._archived

    def __enter__(self) -> Reading:
        try:
            if self._raw is not None and len(self._sources) > 1 and not self.is_small:
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
        for records in self._read:
            records.close()
        for frame in self._held:
            frame.unpersist()

    def hold(self, frames: Sequence[DataFrame]) -> None:
        """Keep the rows of these, once computed, until the end of the slice."""
        self._held.extend(frame.persist() for frame in frames)

    def _source(self, source: Source) -> DataFrame:
        """The records of one source, from its archive and from the log after that."""
        topic = self._topic(source)
        archived = [r for r in self._archived if r.topic == topic]
        ranges = [r for r in self._plan.ranges if r.topic == topic]
        if not archived:
            return self._logged(source, ranges)
        frame = self._from_archive(source, archived)
        rest = without(ranges, archived)
        if not rest:
            return frame
        self.settle()  # the log goes on from the archive's times
        return frame.unionByName(self._logged(source, rest))

    def _frontier(self, source: Source, grace_ms: int) -> Frontier:
        """The frontier of a source at the end of the slice, with what is released up to there."""
        topic = self._topic(source)
        partitions = [r.partition for r in self._plan.ranges if r.topic == topic]
        if not source.follows_upstream:
            reached = times_after(self._stream_times.get(topic, {}), self._released.get(topic, {}))
        elif topic in self._plan.frontiers:  # its records say nothing of those that are still to come
            reached = dict.fromkeys(partitions, self._plan.frontiers[topic])
        else:
            reached = dict(self._committed.stream_times.get(topic, {}))
        self._stream_times[topic] = reached
        return frontier_of(reached, partitions, grace_ms, least_frontiers(self._floored.get(topic, {})))

    def _topic(self, source: Source) -> str:
        """The name of the source's topic in Kafka, and in the ledger."""
        return self._bound.get(source.topic, source.topic)

    def _start(self, source: Source) -> Start:
        """Where a source stands now."""
        topic = self._topic(source)
        now_ms, aside = self._now_ms, self._aside(topic)
        start = Start(timestamps=dict(self._timestamps.get(topic, {})), now_ms=now_ms, aside=aside)
        if not source.has_event_time:
            return start
        times, released = dict(self._stream_times.get(topic, {})), self._released.get(topic, {})
        return replace(start, stream_times=times, released=released, floors=self._floored.get(topic, {}))

    def _aside(self, topic: str) -> dict[int, dict[int, str]]:
        """The records of a topic that are set aside: partition -> offset -> why."""
        return {
            partition: {offset: one.dead_reason for offset, one in offsets.items()}
            for (name, partition), offsets in self._asides.items()
            if name == topic
        }

    def _logged(self, source: Source, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Records of the log, or given ones: a micro-batch's. Those that cannot be read are not asked for."""
        gaps = {item.at: offsets for item in ranges if (offsets := self._unreadable(item))}
        if self._raw is not None or not gaps:
            return self._read_on(source, ranges)
        frames = [self._read_on(source, turn) for turn in set_asides.layers(ranges, gaps)]
        aside = self._aside(self._topic(source))
        lost = {at[1]: {offset: aside[at[1]][offset] for offset in offsets} for at, offsets in gaps.items()}
        self._read.append(unread(frames[0], source.topic, lost))
        self._set_aside += sum(map(len, lost.values()))
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _unreadable(self, item: OffsetRange) -> list[int]:
        """Offsets of a range that cannot be read at all, as a decision says."""
        return [
            offset
            for offset, one in self._asides.get(item.at, {}).items()
            if item.start <= offset < item.end and one.offsets[offset] == set_asides.UNREADABLE
        ]

    def _read_on(self, source: Source, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The next records of the log; at most one range per partition."""
        from pyspark.sql import functions as F

        start = self._start(source)
        if self.is_small:
            records = self._in_memory(source, ranges)
            return self._noted(source, start, in_memory(self._session, records, source, start, self._look_up(source)))
        raw = self._log(source, ranges) if self._raw is None else self._raw.where(F.col("topic") == source.topic)
        return self._noted(source, start, where_they_are(raw, source, start, self._look_up(source)))

    def _log(self, source: Source, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Records of the log as Spark's source of Kafka has them."""
        topic, headers = self._topic(source), source.headers
        return read_log(self._session, self._bootstrap_servers, topic, ranges, headers=headers)

    def _in_memory(self, source: Source, ranges: Sequence[OffsetRange]) -> pa.Table:
        """The records of a source, in memory. Records that Spark has read come by one job for all sources."""
        import pyarrow.compute as pc

        if self._raw is None:
            return self._log(source, ranges).select(*columns_to_read(source)).toArrow()
        if self._raw_rows is None:
            self._raw_rows = self._raw.select("topic", *columns_to_read(*self._sources)).toArrow()
        return self._raw_rows.filter(pc.equal(self._raw_rows["topic"], source.topic)).drop_columns("topic")

    def _from_archive(self, source: Source, ranges: Sequence[OffsetRange]) -> DataFrame:
        start, archive = self._start(source), self._archives[self._topic(source)]
        archived = of_archive(self._session, archive, source, ranges, start, self._epoch_start, self._look_up(source))
        self._held.extend(archived.persisted)
        if source.has_event_time or archived.persisted:
            # Where there is event time, the frontier has to be known before the step is called.
            self._noted(source, start, archived.count())
        else:
            self._to_count.append(lambda: self._note(source, start, archived.count()))
        return archived.frame

    def _look_up(self, source: Source) -> Callable[[Collection[int]], WriterSchemas]:
        """Gives the schemas of a source's topic."""
        if self._schemas is None:
            return lambda _: {}
        return partial(self._schemas.look_up, source.topic, is_history=self._plan.sends != "live")

    def _noted(self, source: Source, start: Start, records: Records) -> DataFrame:
        self._note(source, start, records)
        return records.frame

    def _note(self, source: Source, start: Start, records: Records) -> None:
        """Take what was counted of a source's records, and go on after them."""
        self._read.append(records)
        self._set_aside += self._checked(source, records)
        topic, after = self._topic(source), records.after(start)
        self._timestamps[topic] = dict(after.timestamps)
        if source.has_event_time:
            self._stream_times[topic] = dict(after.stream_times)

    def _checked(self, source: Source, records: Records) -> int:
        """The number of a source's records that are set aside, each checked against the decision.

        Raises:
            LedgerError: one has another value.
        """
        topic = self._topic(source)
        if records.dead is None or not self._aside(topic):
            return 0
        count = 0
        for row in records.dead.select(["_partition", "_offset", "_value"]).to_pylist():
            one = self._asides.get((topic, row["_partition"]), {}).get(row["_offset"])
            if one is None:
                continue
            count += 1
            if not self._is_recognised(one, row["_offset"], row["_value"]):
                raise LedgerError(
                    f"{topic}[{row['_partition']}] at offset {row['_offset']} has another value than the record that "
                    f"decision {one.decision} sets aside: the topic, or its archive, was changed.",
                    topic=topic,
                    partition=row["_partition"],
                    offset=row["_offset"],
                )
        return count

    def _is_recognised(self, one: SetAside, offset: int, value: bytes | None) -> bool:
        """Whether a value is that of the record that was set aside. Its hash under another key cannot be compared."""
        mask = fingerprint(self._mask_key) if len(self._mask_key) >= SHORTEST else ""
        if one.mask and one.mask != mask:
            return True
        # Release 0.1.0 used the key for sources without personal values too, if another source had some.
        hashes = (set_asides.UNREADABLE, set_asides.value_hash(value), set_asides.value_hash(value, self._mask_key))
        return one.offsets[offset] in hashes

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

    def dead_letters(self) -> pa.Table:
        """Dead letters of all sources, in the columns of the dead letter table."""
        self.settle()
        letters = [records.dead for records in self._read if records.dead is not None]
        return dead_letters.table(letters, self._sources, self._plan.seq, bound=self._bound, mask_key=self._mask_key)

    def counts(self) -> Counts:
        """The counts of the slice; ``rows_read`` is counted before parsing, the others after it."""
        self.settle()
        tallies = [tally for records in self._read for tally in records.tallies]
        dead = sum(tally.dead for tally in tallies)
        sizes = [records.bytes for records in self._read]
        return Counts(
            rows_read=sum(records.read for records in self._read),
            bytes_read=None if None in sizes else sum(size for size in sizes if size is not None),
            rows_parsed=sum(tally.rows for tally in tallies) - dead,
            rows_dead=dead - self._set_aside,
            rows_set_aside=self._set_aside,
            max_timestamps={topic: dict(parts) for topic, parts in self._timestamps.items() if parts},
            stream_times={topic: dict(parts) for topic, parts in self._stream_times.items()},
        )


def archived_ranges(row: LedgerRow) -> tuple[OffsetRange, ...]:
    """The part of a slice's ranges that is read from archives, as its plan and its commit say."""
    return ranges_from_json(row.detail.get("archived", {}))
