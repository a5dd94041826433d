"""The Avro schema of declared columns, which a topic output registers and writes; the same text for the same columns.

========================  ====================================
column                    written as
========================  ====================================
TINYINT, SMALLINT, INT    int
BIGINT                    long
FLOAT, DOUBLE, BOOLEAN    float, double, boolean
STRING, BINARY            string, bytes
DECIMAL                   bytes, decimal
DATE                      int, date
TIMESTAMP                 long, timestamp-micros
ARRAY, MAP, STRUCT        array, map, record
========================  ====================================

A column that may be null, and everything within a type, is a union with null whose default is null: columns can be
added and removed, and old and new readers continue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from kappa.errors import TopologyError
from kappa.topology.ddl import Column

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: dict[str, Any] = {
    "string": "string",
    "long": "long",
    "integer": "int",
    "short": "int",
    "byte": "int",
    "boolean": "boolean",
    "double": "double",
    "float": "float",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
}


def avro_schema(name: str, columns: Iterable[Column], *, is_loose: bool = False) -> str:
    """The schema of a record with these columns.

    Args:
        name: name of the topic; the record has the same name, as far as Avro allows.
        columns: the declared columns.
        is_loose: whether every column may be null.

    Raises:
        TopologyError: Avro does not allow a name, or a MAP has keys that are not STRING.
    """
    record = re.sub(r"[^A-Za-z0-9_]", "_", name)
    record = record if _NAME.fullmatch(record) else f"_{record}"
    names = {record}
    fields = [
        _field(column.name, column.delta, column.nullable or is_loose, f"Topic {name!r}", record, names)
        for column in columns
    ]
    return json.dumps({"type": "record", "name": record, "fields": fields}, separators=(",", ":"))


def _field(name: str, delta: Any, nullable: bool, what: str, path: str, names: set[str]) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        raise TopologyError(
            f"{what}: {name!r} is not a name in Avro (letters, digits, '_', no digit first). Rename that column, or "
            "send JSON.",
            column=name,
        )
    kind = _kind(delta, what, f"{path}_{name}", names)
    return {"name": name, "type": ["null", kind], "default": None} if nullable else {"name": name, "type": kind}


def _kind(delta: Any, what: str, path: str, names: set[str]) -> Any:
    if isinstance(delta, str):
        if delta.startswith("decimal("):
            precision, scale = map(int, delta[8:-1].split(","))
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        return _PRIMITIVES[delta]
    if delta["type"] == "struct":
        record = _free_name(path, names)
        names.add(record)
        fields = [_field(field["name"], field["type"], True, what, record, names) for field in delta["fields"]]
        return {"type": "record", "name": record, "fields": fields}
    if delta["type"] == "array":
        return {"type": "array", "items": ["null", _kind(delta["elementType"], what, f"{path}_item", names)]}
    if delta["keyType"] != "string":
        raise TopologyError(f"{what}: a MAP has keys that are not STRING, which Avro does not support. Send JSON.")
    return {"type": "map", "values": ["null", _kind(delta["valueType"], what, f"{path}_value", names)]}


def _free_name(path: str, names: set[str]) -> str:
    """The name of a record: its path, with a number if another path already reads like that."""
    return next(
        name for name in (path, *(f"{path}_{number}" for number in range(2, len(names) + 3))) if name not in names
    )
