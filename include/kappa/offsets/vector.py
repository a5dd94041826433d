"""Offset ranges and offset vectors: the beginnings and ends of slices.

An offset span is never a number of records: transaction markers, aborted records and compaction leave holes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kappa.errors import DataLossError, LedgerError

TopicPartition = tuple[str, int]


@dataclass(frozen=True, kw_only=True, order=True)
class OffsetRange:
    """Half-open range ``[start, end)`` of one topic-partition.

    Attributes:
        topic: the topic's name.
        partition: its partition, from 0.
        start: first offset of the range.
        end: first offset after it.

    Raises:
        ValueError: a number is negative, or the range ends before it starts.
    """

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.partition < 0 or self.start < 0 or self.end < self.start:
            raise ValueError(f"{self} is not an offset range: 0 <= start <= end and 0 <= partition must hold.")

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.start}..{self.end}"

    @property
    def at(self) -> TopicPartition:
        """The topic-partition."""
        return self.topic, self.partition

    @property
    def count(self) -> int:
        """Offsets spanned; at least as many as there are records."""
        return self.end - self.start

    @property
    def is_empty(self) -> bool:
        """Whether the range spans no offset."""
        return self.start == self.end


class Offsets:
    """Offset vector: topic -> partition -> next offset to read. Immutable, hashable, sorted.

    Raises:
        ValueError: a partition or an offset is negative.
    """

    __slots__ = ("_offsets",)

    _offsets: dict[TopicPartition, int]

    def __init__(self, offsets: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._offsets = {}
        for topic, partitions in sorted((offsets or {}).items()):
            for partition, offset in sorted(partitions.items()):
                if partition < 0 or offset < 0:
                    raise ValueError(f"{topic}[{partition}] at {offset}: partitions and offsets are 0 or more.")
                self._offsets[topic, partition] = offset

    @classmethod
    def of(cls, items: Iterable[tuple[TopicPartition, int]]) -> Offsets:
        """The vector of ``((topic, partition), offset)`` pairs; a later pair replaces an earlier one."""
        offsets: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in items:
            offsets.setdefault(topic, {})[partition] = offset
        return cls(offsets)

    @classmethod
    def from_json(cls, text: str | Mapping[str, Mapping[str, int]]) -> Offsets:
        """Read Spark's form, ``{"pos":{"0":5}}``, from text or from what it parses to.

        Raises:
            ValueError: the text is something else, or an offset is negative (Spark's -1 and -2 name no offset).
        """
        return cls(_by_partition(text, int))

    def to_json(self) -> str:
        """The vector in Spark's form, sorted, without blanks."""
        return _compact(self.as_dict())

    def as_dict(self) -> dict[str, dict[str, int]]:
        """The vector as :meth:`to_json` would parse, for nesting in other JSON."""
        return _nested(self._offsets.items())

    def get(self, topic: str, partition: int) -> int | None:
        """Next offset of the partition; ``None`` if the vector does not name it."""
        return self._offsets.get((topic, partition))

    def __getitem__(self, at: TopicPartition) -> int:
        return self._offsets[at]

    def __contains__(self, at: object) -> bool:
        return at in self._offsets

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self._offsets == other._offsets

    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    def __repr__(self) -> str:
        return f"Offsets({self.to_json()})"

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics named, sorted."""
        return tuple(dict.fromkeys(topic for topic, _ in self._offsets))

    def partitions(self, topic: str) -> tuple[int, ...]:
        """Partitions named of a topic, sorted."""
        return tuple(partition for name, partition in self._offsets if name == topic)

    @property
    def most_partitions(self) -> int:
        """How many partitions are named of the topic with most of them; 0 where no topic is named."""
        return max((len(self.partitions(topic)) for topic in self.topics), default=0)

    def items(self) -> Iterable[tuple[TopicPartition, int]]:
        """``((topic, partition), offset)`` pairs, sorted."""
        return self._offsets.items()

    def with_(self, topic: str, partition: int, offset: int) -> Offsets:
        """The vector with one offset set."""
        return Offsets.of([*self.items(), ((topic, partition), offset)])

    def merge(self, other: Offsets) -> Offsets:
        """The vector with every offset of ``other`` set."""
        return Offsets.of([*self.items(), *other.items()])

    def only(self, topics: Iterable[str]) -> Offsets:
        """The part of the vector about these topics."""
        names = set(topics)
        return Offsets.of((at, offset) for at, offset in self.items() if at[0] in names)

    def naming(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The vector with these partitions at 0 if it does not name them: a partition that appeared later begins
        there.
        """
        return Offsets.of((at, 0) for at in partitions).merge(self)

    def beside(self, other: Offsets) -> Offsets:
        """The vector as far as it can be compared with ``other``: topics of both, with the partitions of both."""
        topics = [topic for topic in self.topics if topic in other.topics]
        return self.only(topics).naming(other.only(topics))

    def is_level_with(self, other: Offsets) -> bool:
        """Whether both have read up to the same offsets of their common topics and partitions."""
        return self.beside(other) == other.beside(self)

    def dominates(self, other: Offsets) -> bool:
        """Whether no partition is behind ``other``; a partition that is not named stands at 0."""
        return all(self._offsets.get(at, 0) >= offset for at, offset in other.items())

    def span_to(self, end: Offsets) -> tuple[OffsetRange, ...]:
        """Ranges from here to ``end``, one for each of its partitions, empty ones included, sorted.

        A partition that only ``end`` names appeared later and starts at 0.

        Raises:
            DataLossError: ``end`` is before this vector, or does not have a partition that is named here.
        """
        for (topic, partition), start in self.items():
            last = end.get(topic, partition)
            if last is None or last < start:
                where = "has no such partition" if last is None else f"is at {last}"
                raise DataLossError(
                    f"{topic}[{partition}] was read up to {start}, but the end {where}: the log is not the one that "
                    "was read. Check whether the topic was recreated or truncated.",
                    topic=topic,
                    partition=partition,
                    start=start,
                    end=last,
                )
        return tuple(
            OffsetRange(topic=topic, partition=partition, start=self._offsets.get((topic, partition), 0), end=offset)
            for (topic, partition), offset in end.items()
        )

    def count_to(self, end: Offsets) -> int:
        """Offsets spanned from here to ``end``.

        Raises:
            DataLossError: as :meth:`span_to`.
        """
        return sum(range_.count for range_ in self.span_to(end))

    def processed(self, position: Offsets, end: Offsets) -> tuple[int, int]:
        """The number of offsets from here to a position before ``end``, and from here to ``end``."""
        total = self.count_to(end)
        return min(total, sum(offset - (self.get(*at) or 0) for at, offset in position.items())), total


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How ranges cover a span.

    Attributes:
        gaps: parts of the span that no range covers.
        overlaps: parts that are covered more than once, one entry per repetition.
        outside: parts of ranges that lie outside the span.
    """

    gaps: tuple[OffsetRange, ...]
    overlaps: tuple[OffsetRange, ...]
    outside: tuple[OffsetRange, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every offset of the span is covered exactly once, and nothing else is."""
        return not (self.gaps or self.overlaps or self.outside)


def ranges_start(ranges: Iterable[OffsetRange]) -> Offsets:
    """Where the ranges of one slice start.

    Raises:
        LedgerError: a partition is named twice.
    """
    return Offsets.of((at, range_.start) for at, range_ in _one_each(ranges).items())


def ranges_end(ranges: Iterable[OffsetRange]) -> Offsets:
    """Where the ranges of one slice end.

    Raises:
        LedgerError: a partition is named twice.
    """
    return Offsets.of((at, range_.end) for at, range_ in _one_each(ranges).items())


def joins(ranges: Iterable[OffsetRange], next_ranges: Iterable[OffsetRange]) -> bool:
    """Whether one slice starts where the other ended.

    A partition that only the next slice names appeared later and must start at 0; one that only the first names
    stays where it is.

    Raises:
        LedgerError: a slice names a partition twice.
    """
    reached = ranges_end(ranges)
    return all((reached.get(*at) or 0) == start for at, start in ranges_start(next_ranges).items())


def by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[OffsetRange]]:
    """The ranges of each partition, in the order given."""
    own: dict[TopicPartition, list[OffsetRange]] = {}
    for range_ in ranges:
        own.setdefault(range_.at, []).append(range_)
    return own


def uncovered(ranges: Iterable[OffsetRange], start: Offsets, end: Offsets) -> Coverage:
    """Compare ranges, in any order, with the span from ``start`` to ``end``.

    Raises:
        DataLossError: ``end`` is before ``start``.
    """
    spans = {range_.at: range_ for range_ in start.span_to(end)}
    own = by_partition(ranges)
    gaps: list[OffsetRange] = []
    overlaps: list[OffsetRange] = []
    outside: list[OffsetRange] = []
    for at in sorted(spans.keys() | own.keys()):
        span = spans.get(at, _part(at, 0, 0))
        cursor = span.start
        for range_ in sorted(own.get(at, ())):
            outside.append(_part(at, range_.start, min(range_.end, span.start)))
            outside.append(_part(at, max(range_.start, span.end), range_.end))
            inner = _part(at, max(range_.start, span.start), min(range_.end, span.end))
            if not inner.is_empty:
                gaps.append(_part(at, cursor, inner.start))
                overlaps.append(_part(at, inner.start, min(inner.end, cursor)))
                cursor = max(cursor, inner.end)
        gaps.append(_part(at, cursor, span.end))
    return Coverage(gaps=_non_empty(gaps), overlaps=_non_empty(overlaps), outside=_non_empty(outside))


def ranges_to_json(ranges: Iterable[OffsetRange]) -> str:
    """The ranges of one slice as ``{"pos":{"0":[5,9]}}``, sorted, without blanks.

    Raises:
        LedgerError: a partition is named twice.
    """
    return _compact(ranges_as_dict(ranges))


def ranges_as_dict(ranges: Iterable[OffsetRange]) -> dict[str, dict[str, list[int]]]:
    """The ranges as :func:`ranges_to_json` would parse, for nesting in other JSON.

    Raises:
        LedgerError: a partition is named twice.
    """
    return _nested((at, [r.start, r.end]) for at, r in sorted(_one_each(ranges).items()))


def ranges_from_json(text: str | Mapping[str, Mapping[str, list[int]]]) -> tuple[OffsetRange, ...]:
    """The inverse of :func:`ranges_to_json`, sorted.

    Raises:
        ValueError: the text is something else.
    """
    return tuple(
        OffsetRange(topic=topic, partition=partition, start=start, end=end)
        for topic, partitions in sorted(_by_partition(text, list).items())
        for partition, (start, end) in sorted(partitions.items())
    )


def _one_each(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, OffsetRange]:
    by_partition: dict[TopicPartition, OffsetRange] = {}
    for range_ in ranges:
        if range_.at in by_partition:
            first = by_partition[range_.at]
            raise LedgerError(f"One slice names {range_} and {first}: a partition has one range in a slice.")
        by_partition[range_.at] = range_
    return by_partition


def _part(at: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic=at[0], partition=at[1], start=start, end=max(start, end))


def _non_empty(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    return tuple(range_ for range_ in ranges if not range_.is_empty)


def _nested(items: Iterable[tuple[TopicPartition, Any]]) -> dict[str, dict[str, Any]]:
    nested: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in items:
        nested.setdefault(topic, {})[str(partition)] = value
    return nested


def _by_partition(text: str | Mapping[str, Any], kind: type) -> dict[str, dict[int, Any]]:
    parsed = json.loads(text) if isinstance(text, str) else text
    try:
        values = {topic: {int(key): value for key, value in items.items()} for topic, items in parsed.items()}
    except AttributeError as error:
        raise ValueError(f"{text!r} is not topic -> partition -> {kind.__name__}.") from error
    wrong = [value for items in values.values() for value in items.values() if type(value) is not kind]
    if wrong:
        raise ValueError(f"{text!r} is not topic -> partition -> {kind.__name__}: {wrong[0]!r}.")
    return values


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
