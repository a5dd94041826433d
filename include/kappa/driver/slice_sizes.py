"""The size of a slice in bytes, which offsets alone do not give.

It is estimated from a few records of the span, not from earlier slices: a topic of orders may get documents tomorrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from confluent_kafka import Message

from kappa.driver.upstreams import Cut
from kappa.errors import ConfigError
from kappa.kafka.broker import Broker
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record.ledger_rows import LedgerRow

#: Places of each partition's span that are looked at, and records at each of them.
_PLACES, _RECORDS = 5, 2
#: How often a slice is made smaller: sizes differ within what was looked at before.
_ROUNDS = 4
#: A slice may be larger than allowed by this factor: a sample of a few records is no more exact.
_SLACK = 1.1
#: Slices that would be ``_FAR`` times smaller than allowed, if their records are like those of the last slices, are
#: looked at only where the largest records that their topics take would make them ``_TIMES`` times larger than allowed.
_FAR, _TIMES = 100, 8

_UNKNOWN = 2**31

AnyCut = TypeVar("AnyCut", Cut, Cut | None)


class SliceSizes:
    """Bounds slices in bytes.

    Args:
        broker: Kafka.
        most_bytes: how many bytes of keys, values and headers a slice may have; one record may have more.
    """

    def __init__(self, broker: Broker, most_bytes: int) -> None:
        self._broker = broker
        self._most = most_bytes
        self._largest: dict[str, int] = {}
        self._fitting: dict[tuple[OffsetRange, ...], int] = {}

    def bounded(self, cut: Callable[[int], AnyCut], most: int, position: Offsets, last: Sequence[LedgerRow]) -> AnyCut:
        """The next slice of at most this many offsets, and of fewer where their bytes would be too many.

        Args:
            cut: makes one of at most this many offsets.
            most: as many as it may have.
            position: where it begins.
            last: the last commits.
        """
        next_cut = cut(most)
        for _ in range(_ROUNDS):
            if next_cut is None or (fitting := self.fitting(position.span_to(next_cut.end), last)) is None:
                return next_cut
            smaller = cut(max(1, min(fitting, most)))
            if smaller is None or smaller.end == next_cut.end:
                return next_cut
            next_cut, most = smaller, max(1, min(fitting, most))
        return next_cut

    def fitting(self, ranges: Sequence[OffsetRange], last: Sequence[LedgerRow]) -> int | None:
        """How many offsets of a slice fit by their sizes; None where all of them do.

        Args:
            ranges: what it would read.
            last: the last commits.
        """
        spans = tuple(item for item in ranges if not item.is_empty)
        count = sum(item.count for item in spans)
        if count <= 1 or self._is_surely_small(spans, last):
            return None
        if spans not in self._fitting:
            size = self._size(spans)
            self._fitting = {spans: max(1, int(count * self._most / size)) if size > _SLACK * self._most else count}
        fitting = self._fitting[spans]
        return fitting if fitting < count else None

    def _is_surely_small(self, spans: Sequence[OffsetRange], last: Sequence[LedgerRow]) -> bool:
        topics = {item.topic for item in spans}
        if not topics <= self._largest.keys():
            self._largest = self._limits(topics)
        at_most = sum(item.count * self._largest[item.topic] for item in spans)
        if at_most <= self._most:
            return True
        sizes = [row.detail["bytes_read"] / row.rows_read for row in last if row.rows_read and _is_sized(row)]
        count = sum(item.count for item in spans)
        return bool(sizes) and at_most <= _TIMES * self._most and _FAR * count * max(sizes) <= self._most

    def _limits(self, topics: Iterable[str]) -> dict[str, int]:
        """What the topics allow; where this user may not know it, anything: then records are always looked at."""
        try:
            configs = self._broker.topic_configs(sorted(topics))
        except ConfigError:
            return dict.fromkeys(topics, _UNKNOWN)
        return {topic: int(configs[topic]["max.message.bytes"]) for topic in topics}

    def _size(self, spans: Sequence[OffsetRange]) -> float:
        """About how many bytes the records of a span have; records that are not in the log count as the others."""
        end = Offsets.of(((item.topic, item.partition), item.end) for item in spans)
        starts = [
            Offsets.of(
                ((item.topic, item.partition), item.start + item.count * place // _PLACES)
                for item in spans
                if place < item.count
            )
            for place in range(_PLACES)
        ]
        sizes_by_partition: dict[tuple[str, int], list[int]] = {}
        for sample in self._broker.sample(starts, end, most=_RECORDS):
            for at, messages in sample.items():
                sizes_by_partition.setdefault(at, []).extend(map(_bytes_of, messages))
        everything = [size for sizes in sizes_by_partition.values() for size in sizes]
        if not everything:
            return 0.0
        return sum(
            item.count * _mean(sizes_by_partition.get((item.topic, item.partition)) or everything) for item in spans
        )


def _is_sized(row: LedgerRow) -> bool:
    return row.detail.get("bytes_read") is not None


def _mean(sizes: Sequence[int]) -> float:
    return sum(sizes) / len(sizes)


def _bytes_of(message: Message) -> int:
    parts: list[str | bytes | None] = [message.key(), message.value()]
    with suppress(SystemError):  # the client's, about a name that is not UTF-8; readers do not mind
        parts += [header[1] for header in message.headers() or ()]
    return sum(len(part) for part in parts if part is not None)
