"""Whether one Avro schema reads what another one wrote.

Source: Apache Avro specification, "Schema Resolution". Names of nested types count, aliases do not.
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
