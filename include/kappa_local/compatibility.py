"""Whether one schema reads the values of another one.

Sources: Apache Avro specification, "Schema Resolution"; Confluent, "JSON Schema Compatibility Rules". Names of nested
types count, aliases do not. JSON Schema is supported as far as Kappa writes it: types, closed objects, and null beside
a type.
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
    reader_kind, writer_kind = _kind(reader), _kind(writer)
    if reader_kind != writer_kind:
        return reader_kind in _PROMOTIONS.get(writer_kind, ())
    checks: dict[str, Callable[[], Any]] = {
        "record": lambda: _reads_fields(reader, writer),
        "array": lambda: reads(reader["items"], writer["items"]),
        "map": lambda: reads(reader["values"], writer["values"]),
        "enum": lambda: set(writer["symbols"]) <= set(reader["symbols"]) or "default" in reader,
        "fixed": lambda: reader["size"] == writer["size"],
    }
    return bool(checks.get(reader_kind, lambda: _decimal(reader) == _decimal(writer))())


def _reads_fields(reader: Any, writer: Any) -> bool:
    """Whether each field of the reader is written with a type that it reads, or has a default."""
    types = {field["name"]: field["type"] for field in writer["fields"]}
    return all(
        reads(field["type"], types[field["name"]]) if field["name"] in types else "default" in field
        for field in reader["fields"]
    )


def _kind(schema: Any) -> str:
    """A type's kind; a type that is defined elsewhere in the schema gives its name."""
    if isinstance(schema, str):
        return schema
    kind = schema["type"]
    return kind if isinstance(kind, str) else _kind(kind)


def _decimal(schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        return schema["precision"], schema.get("scale", 0)
    return None


def reads_json(reader: Any, writer: Any) -> bool:
    """Whether every value of the writer's JSON Schema is also a value of the reader's."""
    writer_parts, reader_parts = _parts(writer), _parts(reader)
    return all(any(_takes(part, other) for part in reader_parts) for other in writer_parts)


def _parts(schema: Any) -> list[Any]:
    """The types that the schema allows for a value."""
    parts: list[Any] = schema.get("oneOf", [schema])
    return parts


def _takes(reader: Any, writer: Any) -> bool:
    if "enum" in writer or "enum" in reader:
        return set(writer.get("enum", [None])) <= set(reader.get("enum", [])) or reader.get("type") == "string"
    reader_type, writer_type = reader.get("type"), writer.get("type")
    if reader_type != writer_type:
        return (reader_type, writer_type) == ("number", "integer")
    if reader_type == "array":
        return reads_json(reader.get("items", {}), writer.get("items", {}))
    return _takes_object(reader, writer) if reader_type == "object" else True


def _takes_object(reader: Any, writer: Any) -> bool:
    reader_properties, writer_properties = reader.get("properties", {}), writer.get("properties", {})
    further = reader.get("additionalProperties", True)
    of_map = writer.get("additionalProperties", True)
    if isinstance(further, dict) or isinstance(of_map, dict):
        return isinstance(further, dict) and isinstance(of_map, dict) and reads_json(further, of_map)
    return (
        all(
            reads_json(reader_properties[name], kind) if name in reader_properties else further
            for name, kind in writer_properties.items()
        )
        and set(reader.get("required", [])) <= set(writer.get("required", []))
        and (not of_map or bool(further))
    )
