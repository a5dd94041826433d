"""Change records as rows: Debezium's envelope, record by record; JSON with or without the schema part.

A record that is not such a change, or whose row does not fit, is a dead letter with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa

from kappa.topology.schemas.envelopes import OPERATIONS, WITH_ROW
from kappa.wire.debezium.debezium_positions import NoPositionError, position_of
from kappa.wire.debezium.debezium_values import Forms, Hint, fields_of, is_unchanged, plain, reader
from kappa.wire.json.json_converter import UnfitError, tree
from kappa.wire.json.json_values import built

#: Columns that a decoder of changes adds to those of the row.
CHANGE_FIELDS = (
    pa.field("_operation", pa.string()),
    pa.field("_position", pa.string()),
    pa.field("_source_time", pa.timestamp("us", "UTC")),
    pa.field("_unchanged", pa.list_(pa.string())),
)
#: Reasons of dead letters. None of them contains a part of a record.
NO_CHANGE = "the value is not a change of Debezium's: it has no op; a row without an envelope needs no envelope="
OTHER_OPERATION = f"op is none of {', '.join(OPERATIONS)}"
NO_AFTER = "after is absent, and op says that there is a row"
TEXT_AFTER = "after is a text, as MongoDB's connector writes a document, and not an object of columns"
NO_SOURCE = "source is absent"
NO_POSITION = "source.{} is absent or no position of its connector"
NO_KEY = "the value is not an object of key columns"
Read = Callable[[bytes], "tuple[dict[str, Any] | None, Hint]"]

_MOST_MICROS = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change record.

    Attributes:
        operation: see :data:`kappa.topology.schemas.envelopes.CHANGE_COLUMNS`.
        position: see there.
        time: when the source made it, microseconds; None if that is not given.
        after: the row, as a tree; None if the record has none.
        fields: schemas of the row's fields, if the record has them.
    """

    operation: str
    position: str
    time: int | None
    after: dict[str, Any] | None
    fields: Hint


def decoded(
    values: pa.BinaryArray, *, kind: pa.StructType, forms: Forms, read: Read
) -> tuple[pa.StructArray, pa.StringArray]:
    """A row and its change for each value, and the reason if it is a dead letter; rows of dead letters and of nulls are
    null.

    Args:
        values: bytes of any content.
        kind: the declared columns, all nullable.
        forms: the forms of values without a schema beside them.
        read: function from a value to its content and its schema: :func:`unwrapped`, or a reader of Avro.
    """

    def row(value: bytes) -> dict[str, Any]:
        payload, schema = read(value)
        if payload is None:
            return {}
        change = change_of(payload, schema)
        columns, unchanged = ({}, []) if change.after is None else _columns(change.after, kind, change.fields, forms)
        return {
            **columns,
            "_operation": change.operation,
            "_position": change.position,
            "_source_time": change.time,
            "_unchanged": unchanged,
        }

    return built(values, pa.struct([*kind, *CHANGE_FIELDS]), row)


def decoded_keys(
    keys: pa.BinaryArray, *, kind: pa.StructType, forms: Forms, read: Read
) -> tuple[pa.StructArray, pa.StringArray]:
    """A row for each key, and why it cannot be read."""

    def row(key: bytes) -> dict[str, Any]:
        payload, schema = read(key)
        if payload is None:
            raise UnfitError(NO_KEY)
        columns, _ = _columns(payload, kind, schema, forms)
        return columns

    return built(keys, kind, row)


def change_of(payload: dict[str, Any], schema: Hint) -> Change:
    """The change that a payload describes.

    Raises:
        UnfitError: it does not describe a change.
    """
    operation, block, after = payload.get("op"), payload.get("source"), payload.get("after")
    if operation is None:
        raise UnfitError(NO_CHANGE)
    if operation not in OPERATIONS:
        raise UnfitError(OTHER_OPERATION)
    if type(block) is not dict:
        raise UnfitError(NO_SOURCE)
    block = {name: plain(part) for name, part in block.items()}
    try:
        position = position_of(block, operation)
    except NoPositionError as error:
        raise UnfitError(NO_POSITION.format(error)) from None
    if operation not in WITH_ROW:
        after = None
    elif type(after) is not dict:
        raise UnfitError(TEXT_AFTER if type(after) is str else NO_AFTER)
    return Change(
        operation=operation,
        position=position,
        time=_source_time(block),
        after=after,
        fields=fields_of(schema).get("after", {}),
    )


def _source_time(block: dict[str, Any]) -> int | None:
    for name, unit in (("ts_us", 1), ("ts_ms", 1000)):
        number = block.get(name)
        if type(number) is int and abs(number) <= _MOST_MICROS // unit:
            return number * unit
    return None


def unwrapped(value: bytes) -> tuple[dict[str, Any] | None, Hint]:
    """The payload of a JSON value, and the schema beside it; the object itself if there is none.

    Raises:
        UnfitError: it is not an object.
    """
    document = tree(value)
    if document.keys() == {"schema", "payload"}:
        schema, payload = document["schema"], document["payload"]
        if (schema is None or type(schema) is dict) and (payload is None or type(payload) is dict):
            return payload, schema or {}
    return document, {}


def _columns(
    tree_of_row: dict[str, Any], kind: pa.StructType, schema: Hint, forms: Forms
) -> tuple[dict[str, Any], list[str]]:
    """The values of the declared columns, and the names of those that are unchanged."""
    values, unchanged = {}, []
    hints = fields_of(schema)
    readers = _readers(kind, orjson.dumps({name: hints[name] for name in kind.names if name in hints}), forms)
    for field in kind:
        value = tree_of_row.get(field.name)
        if value is None:
            continue
        if is_unchanged(value):
            unchanged.append(field.name)
        else:
            values[field.name] = readers[field.name](value)
    return values, unchanged


@lru_cache(maxsize=256)
def _readers(kind: pa.StructType, hints: bytes, forms: Forms) -> dict[str, Any]:
    of_fields = orjson.loads(hints)
    return {field.name: reader(field.type, of_fields.get(field.name, {}), forms, field.name) for field in kind}


__all__ = ["CHANGE_FIELDS", "Change", "change_of", "decoded", "decoded_keys", "unwrapped"]
