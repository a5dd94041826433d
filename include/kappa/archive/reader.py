"""The archive of a topic, for readers: every record by exact offset, kept in Delta beyond the topic's retention.

The ledger of an archive says which ranges of which topic its rows are: completeness is proved by ranges that join,
never by a largest offset. :mod:`kappa.archive.writer` writes it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kappa.archive.rows import schema_name, source_rows
from kappa.delta import queries
from kappa.errors import DataLossError, first_few
from kappa.names import ArchivePaths
from kappa.offsets.coverage import ArchiveFacts, Chunk, archive_facts, carried, common, is_within, joined
from kappa.offsets.vector import OffsetRange, Offsets, TopicPartition
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.store.stores import store_of
from kappa.topology import Source
from kappa.topology.schemas.wire_schemas import WriterSchemas
from kappa.wire.batches import Aside

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

#: Below the time of any record: what a chunk without records has.
_NO_TIME = -(2**63)

#: Joins a record with the span that is read of its chunk, by one number: quicker than by two.
_IS_IN_SPAN = "(SHIFTLEFT(seq, 32) | CAST(partition AS BIGINT)) = _place AND offset BETWEEN _first AND _last"
#: All that the archive has of a record.
_ARCHIVED = "* EXCEPT (_place, _first, _last, _before)"

Ints = npt.NDArray[np.int64]


class Archive:
    """The archive of one topic; may be there or not.

    Args:
        topic: the Kafka topic.
    """

    def __init__(self, lake: str, topic: str) -> None:
        self.paths = ArchivePaths(lake=lake, topic=topic)
        self.topic = topic
        self.ledger = Ledger(self.paths.ledger)
        self._chunks: list[Chunk] = []
        #: The same by partition, in order of their offsets.
        self._by_partition: dict[TopicPartition, list[Chunk]] = {}
        self._seen = 0
        self._times = lru_cache(maxsize=64)(self._load_times)
        self._maxima = lru_cache(maxsize=1)(self._load_maxima)

    @property
    def topic_id(self) -> str | None:
        """Kafka's id of the topic that is archived; None when nothing is."""
        commits = self.ledger.state().commits
        return str(commits[0].detail["topic_id"]) if commits else None

    @property
    def chunks(self) -> Sequence[Chunk]:
        """The chunks that were archived, slice by slice."""
        commits = self.ledger.state().commits
        for row in commits[self._seen :]:
            chunks = chunks_of(row)
            self._chunks += chunks
            for chunk in chunks:
                self._by_partition.setdefault(chunk.range.at, []).append(chunk)
        self._seen = len(commits)
        return self._chunks

    def facts(self) -> ArchiveFacts | None:
        """The facts of an archive for a plan; None when nothing was archived."""
        topic_id = self.topic_id
        return None if topic_id is None else archive_facts(self.topic, topic_id, self.chunks)

    def overlapping(self, ranges: Iterable[OffsetRange]) -> list[Chunk]:
        """The chunks that hold a part of these ranges, partition by partition.

        Args:
            ranges: at most one per partition.
        """
        chunks: list[Chunk] = []
        if self.chunks:  # takes in new ones
            for item in ranges:
                held = self._by_partition.get(item.at, []) if item.count else []
                first = bisect.bisect_right(held, item.start, key=lambda chunk: chunk.range.end)
                chunks += held[first : bisect.bisect_left(held, item.end, key=lambda chunk: chunk.range.start)]
        return chunks

    def check(self, ranges: Sequence[OffsetRange], topic_id: str) -> None:
        """Raise unless these ranges of this very topic are archived without a gap.

        Raises:
            DataLossError: they are not.
        """
        covered = joined(chunk.range for chunk in self.overlapping(ranges))
        if self.topic_id != topic_id or not is_within(ranges, covered):
            facts = self.facts()
            has = "nothing"
            if facts is not None:
                has = f"{first_few(facts.covered)} of the topic with id {facts.topic_id}"
            raise DataLossError(
                f"The archive {self.paths.root} must give {first_few(ranges)} of the topic with id {topic_id}, and "
                f"it has {has}. Bring its files back, or plan again.",
                topic=self.topic,
                topic_id=topic_id,
            )

    def is_parsed(self, source: Source, chunks: Iterable[Chunk]) -> bool:
        """Whether all records of the chunks were parsed by the source's schema when they were archived."""
        name = schema_name(source)
        return name is not None and all(name in chunk.schemas for chunk in chunks)

    def records(
        self, session: SparkSession, ranges: Sequence[OffsetRange], *, before: Mapping[int, int], history_start: Offsets
    ) -> DataFrame:
        """The archived records of these ranges, with ``order_timestamp``: as many tasks as there are cores and files.

        Args:
            ranges: at most one per partition.
            before: partition -> running maximum of the timestamp before its range, epoch milliseconds.
            history_start: where the reader's history begins: ``before`` is the maximum from there on.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        chunks = self.overlapping(ranges)
        # A chunk that began before the reader did knows of times that the reader does not: there the maximum is made
        # anew.
        odd = {c.range.partition for c in chunks if c.range.start < (history_start.get(*c.range.at) or 0)}
        spans = F.broadcast(_spans(session, chunks, ranges, carried(chunks, ranges, before)))
        rows = self._read(session, ranges).join(spans, on=F.expr(_IS_IN_SPAN), how="inner")
        rest = rows.where(~F.col("partition").isin(*odd)) if odd else rows
        records = rest.selectExpr(_ARCHIVED, "TIMESTAMP_MILLIS(GREATEST(running_max_ms, _before)) AS order_timestamp")
        if not odd:
            return records
        frame = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
        times = F.max(F.unix_millis("timestamp")).over(frame)
        for partition in odd & before.keys():
            times = F.when(F.col("partition") == partition, F.greatest(times, F.lit(before[partition]))).otherwise(
                times
            )
        anew = rows.where(F.col("partition").isin(*odd)).withColumn("order_timestamp", F.timestamp_millis(times))
        return records.unionByName(anew.selectExpr(_ARCHIVED))

    def _read(self, session: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Rows among which are those of these ranges: whole files, as far as the files alone are the table."""
        files = queries.files(self.paths.records)
        if files is None:
            return session.read.format("delta").load(self.paths.records).where(_is_in(ranges))
        names = files.filter(_may_hold(files, ranges))["path"].to_pylist()
        return queries.read_files(session, self.paths.records, names)

    def rows(
        self,
        session: SparkSession,
        source: Source,
        ranges: Sequence[OffsetRange],
        *,
        before: Mapping[int, int],
        history_start: Offsets,
        schemas: WriterSchemas | None = None,
        aside: Aside | None = None,
    ) -> DataFrame:
        """Rows as :func:`kappa.wire.parsing.parse` gives them, with the archive's slice ``_seq``."""
        is_parsed = self.is_parsed(source, self.overlapping(ranges))
        records = self.records(session, ranges, before=before, history_start=history_start)
        return source_rows(records, source, is_parsed=is_parsed, schemas=schemas, aside=aside)

    def count(self, ranges: Sequence[OffsetRange]) -> int:
        """Records of these ranges, counted without looking into them, and not by Spark: another engine has to agree."""
        is_in = (f'("partition" = {r.partition} AND "offset" >= {r.start} AND "offset" < {r.end})' for r in ranges)
        counts = queries.query(self.paths.records, None, select="count(*) AS n", where=" OR ".join(is_in))
        return int(counts["n"][0].as_py())

    def check_rows(self, counts: Mapping[tuple[int, int], int], ranges: Sequence[OffsetRange]) -> None:
        """Check the records that were read against the counts on record when they were written.

        Args:
            counts: (partition, slice of the archive) -> records read.
            ranges: what was read; a chunk of which only a part was read says nothing.

        Raises:
            DataLossError: the archive has lost records, or has some twice.
        """
        spans = {item.at: item for item in ranges}
        for chunk in self.overlapping(ranges):
            count = counts.get((chunk.range.partition, chunk.seq), 0)
            if is_within([chunk.range], [spans[chunk.range.at]]) and count != chunk.rows:
                raise DataLossError(
                    f"The archive {self.paths.records} gave {count} records of {chunk.range}, {chunk.rows} were "
                    f"written (slice {chunk.seq}): another process changed its table. Restore it (Delta time travel), "
                    "or replay with --no-archive while Kafka has the records.",
                    topic=self.topic,
                    range=str(chunk.range),
                    found=count,
                    expected=chunk.rows,
                )

    def offsets_for_time(self, timestamp_ms: int, since: Offsets | None = None) -> dict[TopicPartition, int]:
        """For each partition the first archived record at or after a time, where there is one.

        Of several covered ranges of a partition only the last counts: it is the one that may reach the log.

        Args:
            timestamp_ms: the time.
            since: offsets from which on records count, where the first one lies before them.
        """
        offsets_by_partition: dict[TopicPartition, int] = {}
        for at, (held, largest) in self._maxima(len(self.chunks)).items():
            index = bisect.bisect_left(largest, timestamp_ms)
            if index < len(held):
                offsets, times = self._times(at[1], held[index].seq)
                first = int(offsets[np.searchsorted(times, timestamp_ms)])
                least = 0 if since is None else since.get(*at) or 0
                later = first if first >= least else self._first_since(held[index:], least, timestamp_ms)
                if later is not None:
                    offsets_by_partition[at] = later
        return offsets_by_partition

    def _first_since(self, chunks: Sequence[Chunk], since: int, timestamp_ms: int) -> int | None:
        """The first record of these chunks at or after a time, from an offset on."""
        for chunk in chunks:
            if chunk.range.end > since and chunk.max_ms is not None and chunk.max_ms >= timestamp_ms:
                place = f'"partition" = {chunk.range.partition} AND seq = {chunk.seq} AND "offset" >= {since}'
                rows = queries.query(self.paths.records, None, select='"offset", "timestamp"', where=place).sort_by(
                    "offset"
                )
                late = rows["timestamp"].cast("int64").to_numpy() // 1000 >= timestamp_ms
                if late.any():
                    return int(rows["offset"].to_numpy()[late.argmax()])
        return None

    def _load_maxima(self, count: int) -> dict[TopicPartition, tuple[list[Chunk], list[int]]]:
        """The chunks of the last covered range of each partition, and the largest timestamp up to the end of each."""
        chunks: dict[TopicPartition, list[Chunk]] = {}
        for chunk in sorted(self._chunks[:count], key=lambda chunk: chunk.range):
            held = chunks.setdefault(chunk.range.at, [])
            if held and held[-1].range.end != chunk.range.start:
                held.clear()
            held.append(chunk)

        def time_of(chunk: Chunk) -> int:
            return _NO_TIME if chunk.max_ms is None else chunk.max_ms

        return {at: (held, list(accumulate(map(time_of, held), max))) for at, held in chunks.items()}

    def _load_times(self, partition: int, seq: int) -> tuple[Ints, Ints]:
        """Offsets and running maxima of one chunk, in order."""
        rows = queries.query(
            self.paths.records,
            None,
            select='"offset", running_max_ms',
            where=f'"partition" = {partition} AND seq = {seq}',
        ).sort_by("offset")
        return rows["offset"].to_numpy(), rows["running_max_ms"].to_numpy()


def chunks_of(row: LedgerRow) -> list[Chunk]:
    """The chunks of a committed slice of an archive, one per partition that it read from."""
    parts, schemas = row.detail.get("parts", {}), frozenset(row.detail.get("schemas", ()))
    return [
        Chunk(
            seq=row.seq,
            range=item,
            rows=parts.get(str(item.partition), {}).get("rows", 0),
            max_ms=parts.get(str(item.partition), {}).get("max_ms"),
            schemas=schemas,
        )
        for item in row.ranges
        if not item.is_empty
    ]


class Archives:
    """The archives of a lake, each opened once.

    Args:
        lake: the lake; an epoch that is computed again in a folder of its own reads those of the whole lake too.
    """

    def __init__(self, lake: str) -> None:
        self._lake = lake
        self._opened: dict[str, Archive] = {}

    def of(self, topic: str) -> Archive:
        """The archive of a topic; may be there or not."""
        if topic not in self._opened:
            self._opened[topic] = Archive(self._lake, topic)
        return self._opened[topic]


def archived_topics(lake: str) -> tuple[str, ...]:
    """Topics that have an archive in a lake, sorted."""
    archives = f"{lake}/_archive"
    store = store_of(archives)
    return tuple(topic for topic in store.folders(archives) if "ledger" in store.folders(f"{archives}/{topic}"))


def _spans(
    session: SparkSession, chunks: Iterable[Chunk], ranges: Sequence[OffsetRange], before: Mapping[tuple[int, int], int]
) -> DataFrame:
    """The span to read of each chunk, offsets ``_first`` to ``_last``, and ``_before``, the running maximum before it.

    Rows, not conditions: numbers in a condition are numbers in the code that Spark generates, which would be compiled
    anew for each slice, and run cold.
    """
    rows, own = [], {item.at: item for item in ranges}
    for chunk in chunks:
        place = chunk.seq, chunk.range.partition
        for part in common([chunk.range], [own[chunk.range.at]]):
            time = before.get((place[1], place[0]))
            rows.append((place[0] << 32 | place[1], part.start, part.end - 1, "NULL" if time is None else f"{time}L"))
    values = ", ".join(f"({place}L, {first}L, {last}L, CAST({time} AS BIGINT))" for place, first, last, time in rows)
    values = values or "(-1L, 0L, -1L, CAST(NULL AS BIGINT))"
    return session.sql(f"SELECT * FROM VALUES {values} AS spans (_place, _first, _last, _before)")


def _may_hold(files: pa.Table, ranges: Sequence[OffsetRange]) -> pa.ChunkedArray:
    """Which files may have rows of the ranges; one without statistics may have any of its partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    matches = pa.chunked_array([np.zeros(files.num_rows, dtype=bool)])
    for item in ranges:
        is_match = pc.equal(files["partition.partition"], item.partition)
        if {"min.offset", "max.offset"} <= set(files.column_names):
            is_apart = pc.or_(pc.greater_equal(files["min.offset"], item.end), pc.less(files["max.offset"], item.start))
            is_match = pc.and_not(is_match, pc.fill_null(is_apart, False))
        matches = pc.or_(matches, is_match)
    return matches


def _is_in(ranges: Sequence[OffsetRange]) -> Column:
    from pyspark.sql import functions as F

    condition = F.lit(False)
    for item in ranges:
        condition = condition | (
            (F.col("partition") == item.partition) & (F.col("offset") >= item.start) & (F.col("offset") < item.end)
        )
    return condition
