"""The content of a topic's archive as numbers: chunks of offset ranges that join, and conclusions from them.

An archive covers a range when chunks of it join end to end. A chunk without holes had one record per offset when it was
archived: nothing was compacted away before. Holes in a chunk may come from transactions or from compaction; a reader
cannot distinguish the two, so nothing is concluded from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kappa.offsets.vector import OffsetRange, Offsets, TopicPartition, by_partition


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """The part of one partition in one slice of an archiver.

    Attributes:
        seq: the slice, unique in its archive.
        range: the offsets that were read, holes included.
        rows: number of records.
        max_ms: their largest timestamp in epoch milliseconds; None without records.
        schemas: names of the schemas with which they are parsed.
    """

    seq: int
    range: OffsetRange
    rows: int
    max_ms: int | None
    schemas: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether each of its offsets held a record."""
        return self.rows == self.range.count


@dataclass(frozen=True, kw_only=True)
class ArchiveFacts:
    """An archive, as far as a plan needs it.

    Attributes:
        topic_id: Kafka's id of the topic that was archived.
        covered: ranges that are archived without a gap, joined as far as possible, sorted.
        whole: parts of them in which every offset holds a record.
    """

    topic: str
    topic_id: str
    covered: tuple[OffsetRange, ...]
    whole: tuple[OffsetRange, ...] = ()


def joined(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Ranges in order, without empty ones; those that touch become one."""
    joins: list[OffsetRange] = []
    for item in sorted(item for item in ranges if not item.is_empty):
        last = joins[-1] if joins else None
        if last is not None and last.at == item.at and item.start <= last.end:
            joins[-1] = OffsetRange(
                topic=item.topic, partition=item.partition, start=last.start, end=max(last.end, item.end)
            )
        else:
            joins.append(item)
    return tuple(joins)


def archive_facts(topic: str, topic_id: str, chunks: Iterable[Chunk]) -> ArchiveFacts:
    """Facts of an archive that consists of these chunks."""
    several = list(chunks)
    return ArchiveFacts(
        topic=topic,
        topic_id=topic_id,
        covered=joined(chunk.range for chunk in several),
        whole=joined(chunk.range for chunk in several if chunk.is_whole),
    )


def usable(
    archives: Mapping[str, ArchiveFacts], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Covered ranges, by partition, of archives whose topic is the one that the broker has now."""
    return by_partition(
        item
        for topic, archive in archives.items()
        if topic_ids.get(topic) == archive.topic_id
        for item in archive.covered
    )


def first_readable(low: Offsets, archives: Mapping[str, ArchiveFacts], topic_ids: Mapping[str, str]) -> Offsets:
    """Low watermarks, moved back to the archive's beginning if it joins the log without a gap."""
    covered = usable(archives, topic_ids)

    def one(at: TopicPartition, first: int) -> int:
        reaching = [item.start for item in covered.get(at, ()) if item.start <= first <= item.end]
        return min([first, *reaching])

    return Offsets.of((at, one(at, first)) for at, first in low.items())


def from_archive(
    start: Offsets, end: Offsets, archives: Mapping[str, ArchiveFacts], topic_ids: Mapping[str, str]
) -> tuple[OffsetRange, ...]:
    """The parts of a span that are read from archives: each partition from its start, as far as it is covered."""
    covered = usable(archives, topic_ids)
    parts = [
        OffsetRange(topic=at[0], partition=at[1], start=start[at], end=min(last, item.end))
        for at, last in end.items()
        for item in covered.get(at, ())
        if at in start and item.start <= start[at] < min(last, item.end)
    ]
    return tuple(sorted(parts))


def common(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The overlaps of two sets of ranges, sorted; neither set may name an offset twice."""
    second = by_partition(others)
    overlaps = [
        OffsetRange(topic=a.topic, partition=a.partition, start=max(a.start, b.start), end=min(a.end, b.end))
        for a in ranges
        for b in second.get(a.at, ())
        if max(a.start, b.start) < min(a.end, b.end)
    ]
    return tuple(sorted(overlaps))


def without(ranges: Iterable[OffsetRange], prefixes: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The remainder of ranges after some prefixes; ranges without a remainder are left out."""
    ends = {item.at: item.end for item in prefixes}
    rest = [
        OffsetRange(
            topic=item.topic, partition=item.partition, start=max(item.start, ends.get(item.at, 0)), end=item.end
        )
        for item in ranges
        if ends.get(item.at, 0) < item.end
    ]
    return tuple(item for item in rest if not item.is_empty)


def is_within(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> bool:
    """Whether each range lies within one of the others; empty ones always do."""
    outer = by_partition(others)
    return all(
        item.is_empty or any(o.start <= item.start and item.end <= o.end for o in outer.get(item.at, ()))
        for item in ranges
    )


def bounded(position: Offsets, end: Offsets, max_records: int) -> tuple[OffsetRange, ...]:
    """Ranges from a position towards an end of at most this many offsets, shared evenly among the partitions.

    Every partition is named; one without a share has an empty range.
    """
    span = position.span_to(end)
    shares: dict[TopicPartition, int] = {}
    rest = max_records
    waiting = sorted(span, key=lambda item: item.count)
    for index, item in enumerate(waiting):  # the shortest first, so that the others get their unused shares
        shares[item.at] = min(item.count, -(-rest // (len(waiting) - index)), rest)
        rest -= shares[item.at]
    return tuple(
        OffsetRange(topic=item.topic, partition=item.partition, start=item.start, end=item.start + shares[item.at])
        for item in span
    )


def carried(
    chunks: Iterable[Chunk], ranges: Iterable[OffsetRange], before: Mapping[int, int]
) -> dict[tuple[int, int], int]:
    """Running maximum of the timestamp before each chunk: (partition, seq) -> epoch milliseconds, where there is one.

    Correct for readers that read the first chunk of each range from its beginning, now or in earlier slices.
    """
    largest = dict(before)
    spans = {item.partition: item for item in ranges}
    maxima: dict[tuple[int, int], int] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.range):
        partition = chunk.range.partition
        if partition not in spans or not common([chunk.range], [spans[partition]]):
            continue
        if partition in largest:
            maxima[partition, chunk.seq] = largest[partition]
        if chunk.max_ms is not None:
            largest[partition] = max(largest.get(partition, chunk.max_ms), chunk.max_ms)
    return maxima
