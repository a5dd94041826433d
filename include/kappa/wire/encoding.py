"""Rows as Kafka records: JSON or Avro values, keys as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kappa.topology import ORDER, Topic
from kappa.wire.avro_values import Encode
from kappa.wire.json.json_columns import json_lists, json_objects, json_texts

#: Column that marks deleted rows.
DELETED = "_deleted"


class Record(NamedTuple):
    """One record to send; a tuple, because a slice may have half a million of them.

    Attributes:
        topic: the target topic.
        key: None spreads records over the partitions; otherwise murmur2 of the key selects one, as in Kafka's Java
            clients.
        value: None is a tombstone.
        headers: names and values.
        timestamp_ms: None takes the time of sending.
        partition: where it goes whatever its key is; None leaves that to the key.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] | None = None
    timestamp_ms: int | None = None
    partition: int | None = None


def topic_records(
    topic: Topic, columns: Sequence[str], rows: pa.Table, *, name: str | None = None, encode: Encode | None = None
) -> Iterator[Record]:
    """Records of a topic output in the order of emission: by the places of rows, within a place by key, then by value.

    A deleted row sends a null value, and nothing if it has no key of the topic. Rows of a table have no place and keep
    their order.

    Args:
        topic: the topic output.
        columns: the columns of a value.
        rows: rows of its table or append output.
        name: the target topic; None for the name of the topic output.
        encode: the encoder of values; None for JSON.
    """
    has_places = set(ORDER) <= set(rows.column_names)
    if has_places:
        rows = rows.sort_by([(name, "ascending") for name in ORDER])
    values = json_values(rows, columns) if encode is None else _encoded(rows, encode)
    target = name or topic.name
    records = (
        Record(target, key, value, None, time)
        for key, value, time in zip(_keys(rows, topic.key), values, _times(rows, topic.time), strict=True)
        if key is not None or value is not None
    )
    shared = _is_at_place_before(rows) if has_places else pa.array([], pa.bool_())
    yield from _by_content(records, shared.to_pylist()) if pc.any(shared).as_py() else records


def _is_at_place_before(rows: pa.Table) -> pa.Array:
    """Whether each row but the first has the place of the one before it."""
    same = pa.array([True] * max(0, rows.num_rows - 1), pa.bool_())
    for name in ORDER:
        column = rows[name].combine_chunks()
        earlier, later = column[:-1], column[1:]
        both_null = pc.and_(pc.is_null(earlier), pc.is_null(later))
        same = pc.and_(same, pc.or_(both_null, pc.fill_null(pc.equal(earlier, later), False)))
    return same


def _by_content(records: Iterable[Record], shared: Sequence[bool]) -> Iterator[Record]:
    """Records in order of their places, within a place by key and value.

    Args:
        records: the records, by place.
        shared: whether each record except the first has the place of the one before it.
    """
    run: list[Record] = []
    for record, is_at_same in zip(records, [False, *shared], strict=True):
        if not is_at_same:
            yield from sorted(run, key=_content)
            run.clear()
        run.append(record)
    yield from sorted(run, key=_content)


def _content(record: Record) -> tuple[bool, bytes, bool, bytes]:
    return record.key is not None, record.key or b"", record.value is not None, record.value or b""


def json_values(rows: pa.Table, columns: Sequence[str]) -> Iterator[bytes | None]:
    """The value of each row's record: these columns as a JSON object, null for a deleted row."""
    is_deleted = rows[DELETED].fill_null(False).combine_chunks() if marks(rows) else None
    first = 0
    for texts in json_objects(rows, columns):
        if is_deleted is None:
            yield from as_bytes(texts)
            continue
        yield from as_bytes(pc.if_else(is_deleted.slice(first, len(texts)), pa.scalar(None, texts.type), texts))
        first += len(texts)


def as_bytes(texts: pa.Array) -> list[bytes | None]:
    """Texts as the bytes of records."""
    values: list[bytes | None] = texts.cast(pa.large_binary()).to_pylist()
    return values


def _encoded(rows: pa.Table, encode: Encode) -> Iterator[bytes | None]:
    """The rows' values, null for deleted rows, whose columns may be null whatever is declared."""
    if not marks(rows):
        yield from encode(rows)
        return
    values = encode(rows.filter(pc.invert(rows[DELETED])))
    for is_gone in rows[DELETED].to_pylist():
        yield None if is_gone else next(values)


def _times(rows: pa.Table, column: str | None) -> Iterable[int | None]:
    """Each record's timestamp in epoch milliseconds; None for the time of sending, also for times that are too early
    for Kafka, and for 0, which its client does not send.
    """
    if column is None:
        return repeat(None, rows.num_rows)
    times, unit = rows[column], 1
    if pa.types.is_timestamp(times.type):
        times, unit = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()), 1000
    # Which are too early is asked first: a quotient of Arrow is cut towards 0.
    millis: list[int | None] = pc.divide(pc.if_else(pc.less(times, unit), None, times), unit).to_pylist()
    return millis


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[bytes | None]:
    """Each record's key: a text column as it is, another type as JSON, several columns as a JSON array; null for a
    single null.
    """
    if len(key) > 1:
        for texts in json_lists(rows, key):
            yield from as_bytes(texts)
        return
    (name,) = key
    is_text = rows.schema.field(name).type in (pa.string(), pa.large_string(), pa.string_view())
    for chunk in rows[name].chunks:
        yield from as_bytes(chunk.cast(pa.large_string()) if is_text else json_texts(chunk))


def marks(rows: pa.Table) -> list[str]:
    """The column that marks deleted rows, if rows have it."""
    return [DELETED] if DELETED in rows.column_names else []


def to_json(value: Any) -> bytes:
    """JSON of values from :mod:`kappa.wire.json.json_forms`; numbers as keys become text."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
