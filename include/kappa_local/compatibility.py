"""Whether one schema reads what another one wrote.

Sources: Apache Avro specification, "Schema Resolution"; Confluent, "JSON Schema Compatibility Rules". Names of nested
types count, aliases do not. Of JSON Schema it knows what Kappa writes: types, closed objects, and null beside a type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def reads(reader: Any, writer: Any) -> bool:
    """Whether a reader of the one schema reads every value of the other."""
    if isinstance(writer, list):
        return all(reads(reader, part) for part in writer)
    if isinstance(reader, list):
        return any(reads(part, writer) for part in reader)
    mine, theirs = _kind(reader), _kind(writer)
    if mine != theirs:
        return mine in _PROMOTIONS.get(theirs, ())
    checks: dict[str, Callable[[], Any]] = {
        "record": lambda: _reads_fields(reader, writer),
        "array": lambda: reads(reader["items"], writer["items"]),
        "map": lambda: reads(reader["values"], writer["values"]),
        "enum": lambda: set(writer["symbols"]) <= set(reader["symbols"]) or "default" in reader,
        "fixed": lambda: reader["size"] == writer["size"],
    }
    return bool(checks.get(mine, lambda: _decimal(reader) == _decimal(writer))())


def _reads_fields(reader: Any, writer: Any) -> bool:
    """Each field of the reader is written, as a type that it reads, or it has a default."""
    known = {field["name"]: field["type"] for field in writer["fields"]}
    return all(
        reads(field["type"], known[field["name"]]) if field["name"] in known else "default" in field
        for field in reader["fields"]
    )


def _kind(schema: Any) -> str:
    """A type's name; that of a type that is defined elsewhere in the schema is its own."""
    if isinstance(schema, str):
        return schema
    kind = schema["type"]
    return kind if isinstance(kind, str) else _kind(kind)


def _decimal(schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        return schema["precision"], schema.get("scale", 0)
    return None


def reads_json(reader: Any, writer: Any) -> bool:
    """Whether every value of the one JSON Schema is one of the other."""
    theirs, mine = _parts(writer), _parts(reader)
    return all(any(_takes(part, other) for part in mine) for other in theirs)


def _parts(schema: Any) -> list[Any]:
    """What a value may be, by the schema."""
    found: list[Any] = schema.get("oneOf", [schema])
    return found


def _takes(reader: Any, writer: Any) -> bool:
    if "enum" in writer or "enum" in reader:
        return set(writer.get("enum", [None])) <= set(reader.get("enum", [])) or reader.get("type") == "string"
    mine, theirs = reader.get("type"), writer.get("type")
    if mine != theirs:
        return (mine, theirs) == ("number", "integer")
    if mine == "array":
        return reads_json(reader.get("items", {}), writer.get("items", {}))
    return _takes_object(reader, writer) if mine == "object" else True


def _takes_object(reader: Any, writer: Any) -> bool:
    known, written = reader.get("properties", {}), writer.get("properties", {})
    further = reader.get("additionalProperties", True)
    of_map = writer.get("additionalProperties", True)
    if isinstance(further, dict) or isinstance(of_map, dict):
        return isinstance(further, dict) and isinstance(of_map, dict) and reads_json(further, of_map)
    return (
        all(reads_json(known[name], kind) if name in known else further for name, kind in written.items())
        and set(reader.get("required", [])) <= set(writer.get("required", []))
        and (not of_map or bool(further))
    )
