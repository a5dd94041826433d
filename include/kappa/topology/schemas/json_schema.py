"""The JSON Schema of declared columns, which a topic output registers; the same text for the same columns.

=======================  =====================================================================
column                   written as
=======================  =====================================================================
integer types, DECIMAL   integer, number
FLOAT, DOUBLE            number, or one of the texts ``NaN``, ``Infinity`` and ``-Infinity``
BOOLEAN, STRING          boolean, string
BINARY                   string, contentEncoding base64
DATE, TIMESTAMP          string; format date, date-time
ARRAY, STRUCT            array, object
MAP                      object with STRING keys, else array of objects of ``key`` and ``value``
=======================  =====================================================================

The object is closed, so that a registry with backward compatibility accepts a further nullable column. A column that
may be null, and everything within a type, also has the type null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kappa.topology.ddl import Column

_DRAFT = "http://json-schema.org/draft-07/schema#"
_INTEGERS = ("long", "integer", "short", "byte")
_PLAIN: Mapping[str, dict[str, Any]] = {
    **{name: {"type": "integer"} for name in _INTEGERS},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    # Years beyond four digits are written too, which these formats do not allow.
    "date": {"type": "string", "description": "ISO 8601 date"},
    "timestamp": {"type": "string", "description": "ISO 8601 time in UTC"},
}
_FLOATS = {"oneOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}


def json_schema(name: str, columns: Iterable[Column], *, is_loose: bool = False) -> str:
    """The schema of an object with these columns.

    Args:
        name: name of the topic, which becomes the title.
        columns: the declared columns.
        is_loose: whether every column may be null.
    """
    listed = list(columns)
    properties = {c.name: _or_null(_kind(c.delta)) if c.nullable or is_loose else _kind(c.delta) for c in listed}
    required = [c.name for c in listed if not (c.nullable or is_loose)]
    schema = {"$schema": _DRAFT, "title": name, **_object(properties), **({"required": required} if required else {})}
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _or_null(kind: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, *kind.get("oneOf", [kind])]}


def _kind(delta: Any) -> dict[str, Any]:
    if isinstance(delta, str):
        if delta in ("double", "float"):
            return _FLOATS
        return dict(_PLAIN[delta]) if delta in _PLAIN else {"type": "number"}
    if delta["type"] == "struct":
        return _object({field["name"]: _or_null(_kind(field["type"])) for field in delta["fields"]})
    if delta["type"] == "array":
        return {"type": "array", "items": _or_null(_kind(delta["elementType"]))}
    value = _or_null(_kind(delta["valueType"]))
    if delta["keyType"] == "string":
        return {"type": "object", "additionalProperties": value}
    return {"type": "array", "items": _object({"key": _kind(delta["keyType"]), "value": value})}
