"""How rows become Kafka records: JSON values, keys as text, changelog records and markers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa

from kappa.kafka.json_forms import json_rows
from kappa.kafka.producer import Record
from kappa.offsets.vector import Offsets
from kappa.topology import ORDER, Table, Topic

_DELETED = "_deleted"
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
    for key, row in zip(_keys(rows, topic.key), json_rows(rows, [*columns, *_marks(rows)]), strict=True):
        value = None if row.pop(_DELETED, False) else to_json(row)
        yield Record(topic=name or topic.name, key=key, value=value)


def changelog_records(name: str, table: Table, rows: pa.Table, seq: int) -> Iterator[Record]:
    """Records of a table's changelog: key columns as JSON, the row as JSON, null for a delete.

    The header ``seq`` says which slice changed the key, so that a fold knows which records its marker vouches for.
    """
    columns = [column.name for column in table.columns]
    headers = [("seq", str(seq).encode())]
    for row in json_rows(rows, [*columns, *_marks(rows)]):
        is_deleted = row.pop(_DELETED, False)
        key = to_json({key: row[key] for key in table.key})
        value = None if is_deleted else to_json(row)
        yield Record(topic=name, key=key, value=value, headers=headers)


def marker_record(name: str, *, seq: int, end: Offsets, **content: Any) -> Record:
    """The marker of a slice: with the changelog it is enough to go on after the lake is lost.

    Args:
        name: the markers topic.
        seq: the slice.
        end: offsets from which the next slice is read.
        content: ``max_timestamps``, ``topic_ids``, ``shapes``, ``code``, ``topology_version``, ``sends``, ``lake``, ``turn``,
            ``kind``.
    """
    return Record(topic=name, key=MARKER_KEY, value=to_json({"seq": seq, "end": end.as_dict(), **content}))


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[bytes | None]:
    """Each record's key: the column's text, its JSON where it is no text, or several as a JSON array; null when the one is null."""
    if len(key) > 1:
        yield from (to_json(list(row.values())) for row in json_rows(rows, key))
        return
    (name,) = key
    is_text = rows.schema.field(name).type in (pa.string(), pa.large_string(), pa.string_view())
    for row in json_rows(rows, key):
        value = row[name]
        yield None if value is None else value.encode() if is_text else to_json(value)


def _marks(rows: pa.Table) -> list[str]:
    return [_DELETED] if _DELETED in rows.column_names else []


def to_json(value: Any) -> bytes:
    """JSON of what :mod:`kappa.kafka.json_forms` made; numbers as keys become text."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
