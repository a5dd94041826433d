"""How rows become Kafka records: JSON values, keys as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa

from kappa.kafka.json_forms import json_rows
from kappa.kafka.producer import Record
from kappa.topology import ORDER, Topic

#: Column that marks deleted rows.
DELETED = "_deleted"


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
    for key, row in zip(_keys(rows, topic.key), json_rows(rows, [*columns, *marks(rows)]), strict=True):
        value = None if row.pop(DELETED, False) else to_json(row)
        yield Record(topic=name or topic.name, key=key, value=value)


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[bytes | None]:
    """Each record's key: the column's text, its JSON where it is no text, or several as a JSON array; null when the one
    is null.
    """
    if len(key) > 1:
        yield from (to_json(list(row.values())) for row in json_rows(rows, key))
        return
    (name,) = key
    is_text = rows.schema.field(name).type in (pa.string(), pa.large_string(), pa.string_view())
    for row in json_rows(rows, key):
        value = row[name]
        yield None if value is None else value.encode() if is_text else to_json(value)


def marks(rows: pa.Table) -> list[str]:
    """The column that marks deleted rows, where rows have it."""
    return [DELETED] if DELETED in rows.column_names else []


def to_json(value: Any) -> bytes:
    """JSON of what :mod:`kappa.kafka.json_forms` made; numbers as keys become text."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
