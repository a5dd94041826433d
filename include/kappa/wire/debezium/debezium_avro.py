"""Change records in Avro: the datum in the form of Debezium's JSON, and its schema in the form of the schema beside
that JSON. So one place defines the meaning of each value.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kappa.topology.schemas.wire_schemas import WriterSchemas
from kappa.wire import avro
from kappa.wire.avro_conversions import LOGICAL
from kappa.wire.debezium.debezium_values import DECIMAL, Hint
from kappa.wire.json.json_converter import Number, UnfitError

#: Logical types of Avro that only tools other than Kafka Connect write, and Connect's names for them.
_NAMES = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
}


@dataclass(frozen=True, kw_only=True)
class DebeziumSchema:
    """How values of one schema are read.

    Attributes:
        schema: the schema for fastavro.
        hint: the same in the form of Kafka Connect's JSON converter.
    """

    schema: Any
    hint: Hint


def writers(schemas: WriterSchemas) -> dict[int, DebeziumSchema | str]:
    """Id -> the schema of its values, or why all of them are dead letters."""

    def of_schema(avro_schema: Any, names: dict[str, Any], around: Any) -> DebeziumSchema:
        return DebeziumSchema(schema=around, hint=_hint(avro_schema, names, {}))

    return {number: avro.read_by(number, schema, of_schema) for number, schema in schemas.items()}


def datum(value: bytes, writers_by_id: Mapping[int, DebeziumSchema | str]) -> tuple[dict[str, Any], Hint]:
    """The record in a value, in the form of JSON, and its schema.

    Raises:
        UnfitError: it is not a record, or its schema is not known yet.
    """
    writer = avro.of_schema_id(value, writers_by_id)
    if isinstance(writer, str):
        raise UnfitError(writer)
    record = _as_json(avro.datum(value, writer.schema))
    if type(record) is not dict:
        raise UnfitError(avro.UNDECODED.format(avro.schema_id(value)))
    return record, writer.hint


def _hint(schema: Any, names: Mapping[str, Any], hints: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """An Avro schema in the form of Kafka Connect's JSON; for a union, the type that is not null.

    Args:
        schema: the schema.
        names: its named types.
        hints: record -> this form. Each is made once, however often the schema uses its type.
    """
    if isinstance(schema, str):
        return _hint(names[schema], names, hints) if schema in names else {"type": schema}
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        return _hint(others[0], names, hints) if len(others) == 1 else {}
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _hint(kind, names, hints)
    if kind in ("record", "error"):
        if schema["name"] not in hints:
            fields = [{**_hint(one["type"], names, hints), "field": one["name"]} for one in schema["fields"]]
            hints[schema["name"]] = {**_named(schema, kind), "type": "struct", "fields": fields}
        return hints[schema["name"]]
    hint = _named(schema, kind)
    if kind == "array":
        hint["items"] = _hint(schema["items"], names, hints)
    elif kind == "map":
        hint["values"] = _hint(schema["values"], names, hints)
    return hint


def _named(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    logical = schema.get(LOGICAL)
    if logical == "decimal":
        return {"type": "bytes", "name": DECIMAL, "parameters": {"scale": str(schema.get("scale", 0))}}
    name = schema.get("connect.name", _NAMES.get(str(logical)))
    return {"type": kind} if name is None else {"type": kind, "name": name}


def _as_json(value: Any) -> Any:
    """A datum in the form of Debezium's JSON: bytes as base64, numbers as written."""
    if isinstance(value, dict):
        return {name: _as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return (
            Number(repr(value)) if value - value == 0 else str(value).replace("inf", "Infinity").replace("nan", "NaN")
        )
    return Number(str(value)) if type(value) is int else value
