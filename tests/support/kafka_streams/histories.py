"""Records of two topics that Kafka Streams and a topology both read: drawn at random, or given."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
from confluent_kafka import Producer

from kappa.kafka.client_file import for_librdkafka

BEGIN_MS, GRACE_MS, PARTITIONS = 1_700_000_000_000, 2_000, 3
#: After the last record by so much that everything closes.
END_MS = 10_000_000
_RECORDS = 300
_KEYS, _REFS = ("a", "b", "c", "d", "e", "f", "g"), ("a", "b", "c", "x", None)
UNREADABLE = b'{"id":'


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record.

    Attributes:
        side: 0 is the left topic, 1 the right one.
        partition: of its topic.
        key: its key.
        value: its value, None for a null value.
        at_ms: its time, from the beginning.
        stream_ms: the stream time of its partition before it; None in an empty one.
    """

    side: int
    partition: int
    key: str | None
    value: bytes | None
    at_ms: int
    stream_ms: int | None

    @property
    def is_row(self) -> bool:
        """Whether its value is a row: such records alone move stream time."""
        return self.value is not None and self.value != UNREADABLE

    @property
    def is_late(self) -> bool:
        """Whether it is a row that comes after the grace."""
        return self.is_row and self.stream_ms is not None and self.at_ms < self.stream_ms - GRACE_MS


@dataclass(frozen=True, kw_only=True)
class History:
    """How records are drawn.

    Attributes:
        late_ms: by how much records of a side come after their partition's stream time where they are late.
        alone_ms: a late record has no other of its key so near to it.
        keyless: whether some records of a side have a null key.
        right_first: whether all right records are older than all left ones.
    """

    late_ms: tuple[Sequence[int], Sequence[int]] = ((), ())
    alone_ms: int = 0
    keyless: tuple[bool, bool] = (True, True)
    right_first: bool = False


def drawn(history: History, seed: int) -> list[Record]:
    """Records out of order, late, with equal times, with null keys, null values and values that cannot be read.

    What both sides say of the time of a null key, a null value or an unreadable value is a difference on purpose: such
    a record is not ahead of its partition. Times of both topics are never equal: Kafka Streams then takes either.
    """
    chance, log = random.Random(seed), _Log()
    clock = 20_000
    for number in range(_RECORDS):
        clock += chance.choice([0, 0, 100, 250, 700])
        for side in (0, 1):
            shift = side - (1_000_000 if history.right_first and side else 0)
            key = chance.choice([*_KEYS, None] if history.keyless[side] else _KEYS)
            partition = chance.randrange(PARTITIONS) if key is None else partition_of(key)
            stream = log.stream_ms.get((side, partition))
            at = clock - 2 * chance.choice([0, 0, 0, 250, 950]) + shift
            content: bytes | None = row(key, chance.choice(_REFS), number, at)
            if key is None or (kind := chance.random()) < 0.12:
                if stream is None:
                    continue
                at = stream - 2 * chance.choice([0, 0, 250, 950])
                if key is None:
                    content = row(key, chance.choice(_REFS), number, at)
                else:
                    content = UNREADABLE if kind < 0.03 else None
            elif history.late_ms[side] and stream is not None and chance.random() < (0.5 if history.alone_ms else 0.1):
                late = stream - chance.choice(history.late_ms[side])
                if late > 0 and not log.has_near(side, key, late, history.alone_ms):
                    at, content = late, row(key, chance.choice(_REFS), number, late)
            log.add(side, partition, key, content, at)
    return [*log.records, *ends(log.records)]


def hold_awkward(records: Sequence[Record], history: History, *, sides: int) -> None:
    """Each topic that is read has what makes operators differ, and not once by chance.

    Raises:
        AssertionError: one has not.
    """
    for side in range(sides):
        read = [record for record in records if record.side == side and not is_end(record.key)]
        assert {record.partition for record in read} == set(range(PARTITIONS))
        ties = Counter((record.partition, record.at_ms) for record in read if record.is_row)
        times = {
            "out of order": sum(r.is_row and r.stream_ms is not None and r.at_ms < r.stream_ms for r in read),
            "of equal time": sum(times - 1 for times in ties.values()),
            "with a null value": sum(record.value is None for record in read),
            "with a null column": sum(b'"ref":null' in (record.value or b"") for record in read),
            "unreadable": sum(record.value == UNREADABLE for record in read),
        }
        if history.keyless[side]:
            times["with a null key"] = sum(record.key is None for record in read)
        if history.late_ms[side]:
            times["late"] = sum(record.is_late for record in read)
        assert all(number >= 3 for number in times.values()), times


def records_of(rows: Iterable[tuple[int, str, int | None, int]]) -> list[Record]:
    """Records of one partition: side, key, n (None for a null value) and time."""
    log = _Log()
    for side, key, n, at in rows:
        log.add(side, 0, key, None if n is None else row(key, "x", n, at), at)
    return [*log.records, *ends(log.records)]


def ends(records: Sequence[Record]) -> list[Record]:
    """A record for each partition that closes whatever is open; of the left side first, while versions are there."""
    last = max(record.at_ms for record in records) + END_MS
    keys = [next(key for key in (f"z{n}" for n in range(100)) if partition_of(key) == p) for p in range(PARTITIONS)]
    return [
        Record(
            side=side, partition=p, key=key, value=row(key, None, -1, last + side), at_ms=last + side, stream_ms=last
        )
        for p, key in enumerate(keys)
        for side in (0, 1)
    ]


def is_end(name: str | None) -> bool:
    """Whether a key is that of a record that closes."""
    return name is not None and name.startswith("z")


def row(key: str | None, ref: str | None, n: int, at_ms: int) -> bytes:
    """A value."""
    return orjson.dumps({"id": key, "ref": ref, "n": n, "at": at_ms})


def produced(bootstrap_servers: str, topics: Sequence[str], records: Iterable[Record]) -> None:
    """Send them, in this order."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, **for_librdkafka(bootstrap_servers)})
    for record in records:
        producer.produce(
            topics[record.side],
            key=None if record.key is None else record.key.encode(),
            value=record.value,
            partition=record.partition,
            timestamp=BEGIN_MS + record.at_ms,
        )
    assert producer.flush(30) == 0


def partition_of(key: str) -> int:
    """Where Kafka's clients in Java look for a key: its murmur2.

    Source: ``org.apache.kafka.common.utils.Utils.murmur2``.
    """
    data, mixer, mask = key.encode(), 0x5BD1E995, 0xFFFFFFFF
    mixed = 0x9747B28C ^ len(data)
    for at in range(0, len(data) - 3, 4):
        word = int.from_bytes(data[at : at + 4], "little") * mixer & mask
        mixed = (mixed * mixer & mask) ^ ((word ^ word >> 24) * mixer & mask)
    if len(data) % 4:
        mixed = (mixed ^ int.from_bytes(data[len(data) & ~3 :], "little")) * mixer & mask
    mixed = (mixed ^ mixed >> 13) * mixer & mask
    return ((mixed ^ mixed >> 15) & 0x7FFFFFFF) % PARTITIONS


class _Log:
    """Records, with the stream time of each partition."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.stream_ms: dict[tuple[int, int], int] = {}

    def add(self, side: int, partition: int, key: str | None, value: bytes | None, at_ms: int) -> None:
        stream = self.stream_ms.get((side, partition))
        record = Record(side=side, partition=partition, key=key, value=value, at_ms=at_ms, stream_ms=stream)
        self.records.append(record)
        if record.is_row:
            self.stream_ms[side, partition] = at_ms if stream is None else max(stream, at_ms)

    def has_near(self, side: int, key: str | None, at_ms: int, distance_ms: int) -> bool:
        return any(
            record.side == side and record.key == key and record.is_row and abs(record.at_ms - at_ms) <= distance_ms
            for record in self.records
        )
