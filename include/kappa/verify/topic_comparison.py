"""A topic on Kafka compared with the records that rows would be sent as: key by key, or as a multiset of records.

A long topic is read several times, each time for a share of its keys, so that memory does not grow with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any
from zlib import crc32

from kappa.kafka.broker import Broker
from kappa.kafka.changelogs import seq_of
from kappa.offsets.vector import Offsets
from kappa.slices.topics import paged_keys
from kappa.wire.encoding import Record
from kappa.wire.wire_values import by_digits

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Records of a topic per share: about 200 bytes of memory each.
RECORDS = 2_000_000

#: Avro has bytes and decimals, and NaN and infinities, which are null to orjson.
_JSON = json.JSONEncoder(sort_keys=True, default=repr, check_circular=False)
#: Holds every number of a row without rounding it.
_EXACT = Context(prec=400)

#: The records that rows would be sent as, from the first row on at each call.
RowRecords = Callable[[], Iterator[Record]]


@dataclass(frozen=True, kw_only=True)
class TopicSpan:
    """The committed records of a topic between two offset vectors.

    Attributes:
        name: the topic.
        start: its low watermarks.
        end: its ends, which move on while the stream does.
        decode: reads a value.
        upto_seq: of a changelog the slice that it is compared after: keys in records of later slices are left out.
        columns: of a topic that reconciles the columns that it sends now, with their types as in a Delta schema:
            records that earlier epochs sent stay where their row is equal, as :func:`kappa.verify.values.equal` has it.
    """

    broker: Broker
    name: str
    start: Offsets
    end: Offsets
    decode: Callable[[bytes], Any]
    upto_seq: int | None
    columns: Mapping[str, Any] | None = None

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return sum(offset - (self.start.get(*at) or 0) for at, offset in self.end.items())

    @property
    def is_cut(self) -> bool:
        """Whether retention may have removed records at its beginning."""
        return any(offset for _, offset in self.start.items())

    def shares(self) -> list[Share]:
        """Parts of the records, each small enough for one reading."""
        count = 1 + self.offsets // RECORDS
        return [Share(number=number, count=count) for number in range(count)]

    def messages(self, share: Share) -> Iterator[Message]:
        """The records of one share, in order within a key."""
        for batch in self.broker.read(self.start, self.end):
            yield from (message for message in batch if share.has(message.key(), message.value()))

    def is_later(self, message: Message) -> bool:
        """Whether a record of a changelog is of a slice after the compared one."""
        return self.upto_seq is not None and seq_of(message) > self.upto_seq

    def digest(self, value: bytes | None, key: bytes | None = b"") -> bytes:
        """A short stand-in for a record, empty for a null value.

        Columns that are null do not count: one that was added later is null in its row and absent from older values.
        """
        if value is None:
            return b""
        with suppress(Exception):  # other programs, and epochs with another format, send values of any bytes
            value = self._columns(value)
        return paged_keys.digest(key, value)

    def _columns(self, value: bytes) -> bytes:
        """A value in a form that is the same for equal rows; any other value as it is."""
        content = self.decode(value)
        if not isinstance(content, dict):
            return value
        if self.columns is not None:
            content = {name: _comparable(content.get(name), kind) for name, kind in self.columns.items()}
        columns = {name: part for name, part in content.items() if part is not None}
        return _JSON.encode(columns).encode()


def _comparable(value: Any, kind: Any) -> Any:
    """A value as it is compared with one of another type: numbers by their size, structs without null fields."""
    if isinstance(value, dict) and isinstance(kind, dict) and kind["type"] == "struct":
        kinds = {one["name"]: one["type"] for one in kind["fields"]}
        parts = {name: _comparable(part, kinds.get(name)) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part is not None}
    if isinstance(value, dict):
        of_map = kind["valueType"] if isinstance(kind, dict) and kind["type"] == "map" else None
        return {name: _comparable(part, of_map) for name, part in value.items()}
    if isinstance(value, list):
        of_array = kind["elementType"] if isinstance(kind, dict) and kind["type"] == "array" else None
        return [_comparable(part, of_array) for part in value]
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        number = value if isinstance(value, Decimal) else Decimal(repr(value))
        return _EXACT.normalize(_EXACT.add(number, Decimal(0)))
    return value


def span_of(
    broker: Broker,
    name: str,
    *,
    decode: Callable[[bytes], Any] = by_digits,
    upto_seq: int | None = None,
    columns: Mapping[str, Any] | None = None,
) -> TopicSpan:
    """All records of a topic as of now; other fields as in :class:`TopicSpan`."""
    start, end = broker.low_watermarks([name]), broker.decided_ends([name])
    return TopicSpan(broker=broker, name=name, start=start, end=end, decode=decode, upto_seq=upto_seq, columns=columns)


@dataclass(frozen=True, kw_only=True)
class Share:
    """One of several parts of a topic's records; records of one key are in one part.

    Attributes:
        number: the part, from 0.
        count: how many parts there are.
    """

    number: int
    count: int

    def has(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether a record is in it: by its key, or by its value where it has no key."""
        return crc32(key if key is not None else value or b"") % self.count == self.number


@dataclass(frozen=True, kw_only=True)
class KeyDifferences:
    """A topic whose newest record per key should be the row of that key.

    Attributes:
        keys: keys of the rows.
        missing: keys without a record, or with a null one.
        different: keys whose record is another than the row's.
        extra: keys with a record and without a row.
        example: one of these keys; empty without any.
    """

    keys: int
    missing: int
    different: int
    extra: int
    example: bytes


def key_differences(span: TopicSpan, rows: RowRecords, later: Callable[[], Set[bytes]] = frozenset) -> KeyDifferences:
    """Compare the newest record of each key with the row of that key.

    Args:
        span: the topic.
        rows: records of the rows, at most one per key, each with a value.
        later: keys that changed after the rows, asked after the records of each share were read: they are not
            compared. The records of one that changes meanwhile may be compacted away.
    """
    counts: Counter[str] = Counter()
    example = b""
    for share in span.shares():
        newest: dict[bytes, bytes] = {}
        newer: set[bytes] = set()
        for message in span.messages(share):
            key = message.key() or b""
            newest[key] = span.digest(message.value())
            if span.is_later(message):
                newer.add(key)
        newer |= later()
        for record in rows():
            key = record.key or b""
            if not share.has(key, None):
                continue
            counts["keys"] += 1
            sent = newest.pop(key, b"")
            if key in newer or sent == span.digest(record.value):
                continue
            counts["different" if sent else "missing"] += 1
            example = example or key
        extra = [key for key, sent in newest.items() if sent and key not in newer]
        counts["extra"] += len(extra)
        example = example or next(iter(extra), b"")
    return KeyDifferences(
        keys=counts["keys"],
        missing=counts["missing"],
        different=counts["different"],
        extra=counts["extra"],
        example=example,
    )


@dataclass(frozen=True, kw_only=True)
class RecordDifferences:
    """A topic in which each row should be a record of its own.

    Attributes:
        rows: how many rows there are.
        missing: rows without a record.
        repeated: records beyond those of their rows.
        foreign: records of no row.
    """

    rows: int
    missing: int
    repeated: int
    foreign: int


def record_differences(span: TopicSpan, rows: RowRecords) -> RecordDifferences:
    """Look for the record of each row among those of a topic, in any order."""
    counts: Counter[str] = Counter()
    for share in span.shares():
        expected = Counter(span.digest(one.value, one.key) for one in rows() if share.has(one.key, one.value))
        counts["rows"] += expected.total()
        for message in span.messages(share):
            digest = span.digest(message.value(), message.key())
            if expected[digest] > 0:
                expected[digest] -= 1
            else:
                counts["repeated" if digest in expected else "foreign"] += 1
        counts["missing"] += expected.total()
    return RecordDifferences(
        rows=counts["rows"], missing=counts["missing"], repeated=counts["repeated"], foreign=counts["foreign"]
    )
