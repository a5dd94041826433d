"""Types of DDL as Arrow has them, read without a JVM: those of the documentation and of drawn schemas."""

from __future__ import annotations

import re

import pyarrow as pa

SCALARS = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "SMALLINT": pa.int16(),
    "TINYINT": pa.int8(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}


def kind_of(ddl: str) -> pa.DataType:
    """A type; names of fields are plain words.

    Examples:
        >>> kind_of("ARRAY<STRUCT<a: INT NOT NULL, b: DECIMAL(5,2)>>").value_type.field("a").nullable
        False
    """
    name, _, inner = ddl.strip().partition("<")
    inner = inner.removesuffix(">")
    if name == "ARRAY":
        return pa.list_(kind_of(inner))
    if name == "MAP":
        return pa.map_(*(kind_of(part) for part in _parts(inner)))
    if name == "STRUCT":
        return pa.struct([_field(part) for part in _parts(inner)])
    size = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", name)
    return pa.decimal128(int(size[1]), int(size[2])) if size else SCALARS[name]


def _field(text: str) -> pa.Field:
    name, _, kind = text.partition(":")
    return pa.field(name.strip(), kind_of(kind.removesuffix(" NOT NULL")), nullable=not kind.endswith(" NOT NULL"))


def _parts(text: str) -> list[str]:
    """What commas part, but not within brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
