"""How rows become Kafka records: JSON values, keys as text, changelog records and markers."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from kappa.replay.offsets import Offsets
from kappa.runtime.sender import Record
from kappa.topology import ORDER, Table, Topic

if TYPE_CHECKING:
    import pyarrow as pa

#: Key of every marker: compaction keeps the newest.
MARKER_KEY = b"marker"


def topic_records(topic: Topic, columns: Sequence[str], rows: pa.Table, *, name: str | None = None) -> Iterator[Record]:
    """Records of a topic output, in the total order of the records they come from; a deleted row sends a null value.

    Args:
        topic: the topic output.
        columns: what a value holds.
        rows: rows of what it is made of.
        name: the topic that they are sent to; None for that of the topic output's name.
    """
    if set(ORDER) <= set(rows.column_names):
        rows = rows.sort_by([(name, "ascending") for name in ORDER])
    for row in rows.to_pylist():
        value = None if row.get("_deleted") else to_json({name: row[name] for name in columns})
        yield Record(topic=name or topic.name, key=key_text(row, topic.key), value=value)


def changelog_records(name: str, table: Table, rows: pa.Table, seq: int) -> Iterator[Record]:
    """Records of a table's changelog: key columns as JSON, the row as JSON, null for a delete.

    The header ``seq`` says which slice changed the key, so that a fold knows which records its marker vouches for.
    """
    columns = [column.name for column in table.columns]
    headers = [("seq", str(seq).encode())]
    for row in rows.to_pylist():
        key = to_json({key: row[key] for key in table.key})
        value = None if row.get("_deleted") else to_json({c: row[c] for c in columns})
        yield Record(topic=name, key=key, value=value, headers=headers)


def marker_record(name: str, *, seq: int, end: Offsets, **content: Any) -> Record:
    """The marker of a slice: with the changelog it is enough to go on after the lake is lost.

    Args:
        name: the markers topic.
        seq: the slice.
        end: offsets from which the next slice is read.
        content: ``max_timestamps``, ``topic_ids``, ``shapes``, ``code``, ``topology_version``, ``sends``, ``lake``.
    """
    return Record(topic=name, key=MARKER_KEY, value=to_json({"seq": seq, "end": end.as_dict(), **content}))


def key_text(row: Mapping[str, Any], key: Sequence[str]) -> bytes | None:
    """A record's key: the column's value as text, or several as a JSON array; null when the one column is null."""
    if len(key) > 1:
        return to_json([row[name] for name in key])
    value = row[key[0]]
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else to_json(value)


def to_json(value: Any) -> bytes:
    """JSON as Spark's ``from_json`` reads it back without loss: decimals as numbers, times in UTC, bytes in base64."""
    return orjson.dumps(value, default=_default, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATETIME)


def _default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no JSON form")
