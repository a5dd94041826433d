"""The first readable record at or after a time.

Kafka's own answer also counts transaction markers and aborted records, which have the time of the clock, not of the
data. A cut there would not be a prefix of the total order: a later record could belong before it. So the answer is
confirmed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import itemgetter

from kappa.kafka.reader import Reader
from kappa.offsets.vector import Offsets, TopicPartition

#: After every GRAIN records of a partition the highest time so far is remembered.
GRAIN = 1000


def milliseconds(at: datetime) -> int:
    """A time in the form of Kafka's timestamps: milliseconds since 1970."""
    return round(at.astimezone(UTC).timestamp() * 1000)


class Confirmer:
    """Confirms Kafka's answers by reading, and remembers these records.

    A topic whose records are older than the markers between them, such as history written by transactions, must be read
    from its first marker on. The memory makes that happen once, and not for each question.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._reader = Reader(bootstrap_servers, fetch_kbytes=64)
        #: per partition: ascending (highest time of the records before an offset, that offset), from the first offset
        #: that was scanned
        self._scanned: dict[TopicPartition, list[tuple[int, int]]] = {}
        #: the same of records that only count from an offset on: what lies before the first such offset is in no
        #: maximum
        self._scanned_since: dict[TopicPartition, list[tuple[int, int]]] = {}

    def first_records(
        self, answers: Mapping[TopicPartition, int], end: Offsets, timestamp_ms: int, since: Offsets | None = None
    ) -> dict[TopicPartition, int]:
        """Offset of the first record at ``timestamp_ms`` or later, for each partition that has one before ``end``.

        Args:
            answers: offsets such that every record before them is earlier.
            end: last stable offsets.
            timestamp_ms: the time.
            since: offsets from which records count, if an answer lies before them. Records that the caller has read
                before them are earlier than the time.
        """
        least = {at: offset for at, offset in (since or Offsets()).items() if answers.get(at, offset) < offset}
        memories = {at: self._scanned_since if at in least else self._scanned for at in answers}
        starts = {
            at: _furthest(memories[at].get(at, []), max(offset, least.get(at, 0)), timestamp_ms)
            for at, offset in answers.items()
        }
        first_offsets: dict[TopicPartition, int] = {}
        highest = dict.fromkeys(starts, -1)
        passed = dict.fromkeys(starts, 0)
        ends = Offsets.of((at, offset) for at, offset in end.items() if at in starts)
        for batch in self._reader.read(Offsets.of(starts.items()), ends):
            for message in batch:
                at, offset, time = (
                    (message.topic() or "", message.partition() or 0),
                    message.offset() or 0,
                    message.timestamp()[1],
                )
                if at in first_offsets:
                    continue
                if time >= timestamp_ms:
                    first_offsets[at] = offset
                    self._reader.skip(*at)
                    continue
                highest[at] = max(highest[at], time)
                passed[at] += 1
                if passed[at] % GRAIN == 0:
                    scanned = memories[at].setdefault(at, [(-1, starts[at])])
                    _remember(scanned, starts[at], highest[at], offset + 1, timestamp_ms)
        return first_offsets

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()


def _furthest(scanned: list[tuple[int, int]], offset: int, timestamp_ms: int) -> int:
    """The furthest offset known to have only earlier records before it."""
    if not scanned or offset < scanned[0][1]:
        return offset
    nearest = bisect_left(scanned, timestamp_ms, key=itemgetter(0))
    return max(offset, scanned[nearest - 1][1]) if nearest else offset


def _remember(scanned: list[tuple[int, int]], start: int, highest: int, offset: int, timestamp_ms: int) -> None:
    if scanned[0][1] <= start and scanned[-1][1] < offset:
        if start > scanned[-1][1]:  # the records in between are only known to be earlier than this time
            highest = timestamp_ms - 1
        scanned.append((max(highest, scanned[-1][0]), offset))
