"""Change records in JSON with the id of a JSON Schema, which is brought into the form of the schema beside Debezium's
JSON. Kafka Connect's converter writes the names and parameters of its schemas into it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kappa.topology.schemas.wire_schemas import WriterSchema, WriterSchemas
from kappa.wire import avro
from kappa.wire.debezium.debezium_records import unwrapped
from kappa.wire.debezium.debezium_values import Hint
from kappa.wire.json.json_converter import UnfitError
from kappa.wire.json.json_schema_values import HEADER, objection


def writers(schemas: WriterSchemas) -> dict[int, Hint | str]:
    """Id -> the schema of its values, or why all of them are dead letters."""
    return {number: objection(number, schema) or _schema(schema) for number, schema in schemas.items()}


def datum(value: bytes, writers_by_id: Mapping[int, Hint | str]) -> tuple[dict[str, Any] | None, Hint]:
    """The record in a value, and its schema.

    Raises:
        UnfitError: it is not an object, or its schema is not known yet.
    """
    writer = avro.of_schema_id(value, writers_by_id)
    if isinstance(writer, str):
        raise UnfitError(writer)
    payload, schema = unwrapped(value[HEADER:])
    return payload, schema or writer


def _schema(schema: WriterSchema | None) -> Hint:
    try:
        return _hint(json.loads("null" if schema is None else schema.text))
    except (ValueError, RecursionError):  # the declared columns decide, as for any other schema
        return {}


def _hint(schema: Any) -> dict[str, Any]:
    """A JSON Schema in the form of Kafka Connect's JSON; empty if it names no type of Kafka Connect."""
    if not isinstance(schema, dict):
        return {}
    if isinstance(schema.get("oneOf"), list):
        others = [one for one in schema["oneOf"] if one != {"type": "null"}]
        return _hint(others[0]) if len(others) == 1 else {}
    hint = {
        name: schema[of]
        for name, of in (("type", "connect.type"), ("name", "title"), ("parameters", "connect.parameters"))
        if of in schema
    }
    if isinstance(schema.get("properties"), dict):
        hints = {name: _hint(part) for name, part in schema["properties"].items()}
        hint["fields"] = [{**part, "field": name} for name, part in hints.items() if part]
    for name, of in (("items", "items"), ("values", "additionalProperties")):
        if part := _hint(schema.get(of)):
            hint[name] = part
    return hint
