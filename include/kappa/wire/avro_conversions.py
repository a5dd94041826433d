"""Conversions of a writer's Avro types to declared types.

===========================  =====================================================================================
written as                   fits a column of
===========================  =====================================================================================
boolean                      BOOLEAN
int, long                    any integer type that holds the value; FLOAT, DOUBLE; DECIMAL that holds the value
float                        FLOAT, DOUBLE
double                       DOUBLE
string, enum                 STRING
bytes, fixed                 BINARY
decimal                      DECIMAL that holds the value with all its digits; BINARY
date                         DATE that holds the day; an integer type
timestamp-millis, -micros    TIMESTAMP; BIGINT, as the number that was written
array, map, record           ARRAY, MAP with STRING keys, STRUCT, field by field; a null in NOT NULL does not fit
union                        what all its types but null fit in the same way
===========================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kappa.wire.json import json_scalars
from kappa.wire.json.json_converter import ABSENT, UnfitError

#: Name of a logical type while a schema is read: otherwise fastavro would turn values into Python's dates, which have
#: fewer years.
LOGICAL = "kappa.logicalType"
_MOST = 10**38
#: Arrow's type names that differ from Spark's.
_SAID = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "bool": "BOOLEAN"}
_INTEGERS = (pa.types.is_int8, pa.types.is_int16, pa.types.is_int32, pa.types.is_int64)

Convert = Callable[[Any], Any]


def conversion(schema: Any, kind: pa.DataType, names: dict[str, Any], at: str) -> Convert | None:
    """The conversion of the writer's value to the declared type; None if it needs none.

    Raises:
        UnfitError: no value of the schema has that type.
    """
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
        schema = schema["type"]
    if isinstance(schema, list):
        return _of_union(schema, kind, names, at)
    written, logical = schema["type"], schema.get(LOGICAL)
    if written == "null":
        return None
    if written in ("record", "error") and pa.types.is_struct(kind):
        return _of_record(schema, kind, names, at)
    if written == "array" and pa.types.is_list(kind):
        return _of_items(conversion(schema["items"], kind.value_type, names, at))
    if written == "map" and pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return _of_entries(conversion(schema["values"], kind.item_type, names, at))
    convert = _of_primitive(schema, written, logical, kind)
    if isinstance(convert, str):
        type_name = logical if logical is not None else written
        raise UnfitError(f"{at} is {type_name}, which does not fit {convert}")
    return convert


def _of_primitive(schema: dict[str, Any], written: str, logical: Any, kind: pa.DataType) -> Convert | str | None:
    """The same for a primitive value; the name of the declared type if the value never fits."""
    is_integer = written in ("int", "long")
    if pa.types.is_decimal(kind) and written in ("bytes", "fixed") and logical == "decimal":
        return _decimal(int(schema.get("scale", 0)))
    if pa.types.is_timestamp(kind):
        steps = {"timestamp-millis": 1000, "timestamp-micros": 1}
        if written == "long" and logical in steps:
            return None if steps[logical] == 1 else (lambda value: value * 1000)
        return "TIMESTAMP"
    if pa.types.is_date(kind):
        return json_scalars.day if written == "int" and logical == "date" else "DATE"
    if pa.types.is_floating(kind) and is_integer:
        return float
    fits = (
        (pa.types.is_boolean(kind) and written == "boolean")
        or (is_integer and (any(is_kind(kind) for is_kind in _INTEGERS) or pa.types.is_decimal(kind)))
        or (written == "float" and pa.types.is_floating(kind))
        or (written == "double" and pa.types.is_float64(kind))
        or (written in ("string", "enum") and pa.types.is_string(kind))
        or (written in ("bytes", "fixed") and pa.types.is_binary(kind))
    )
    return None if fits else _SAID.get(str(kind), str(kind).upper())


def _decimal(scale: int) -> Convert:
    if not 0 <= scale <= 38:
        raise UnfitError(f"a decimal has scale {scale}")

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, signed=True)
        if abs(number) >= _MOST:
            raise ValueError("more than 38 digits")
        return Decimal(f"{number}E-{scale}")

    return convert


def _of_union(schema: list[Any], kind: pa.DataType, names: dict[str, Any], at: str) -> Convert | None:
    converts = [conversion(part, kind, names, at) for part in schema if part != "null"]
    if any(convert != converts[0] for convert in converts):
        raise UnfitError(f"{at} is a union of types that are read in different ways")
    return converts[0] if converts else None


@dataclass(frozen=True)
class _Fields:
    """The conversion of a record's fields.

    Attributes:
        converts: field -> its conversion.
        absent: field that may not be null -> the reason where it is.
    """

    converts: Mapping[str, Convert | None]
    absent: Mapping[str, str]

    def __call__(self, value: Mapping[str, Any]) -> dict[str, Any]:
        fields = {name: _applied(convert, value.get(name)) for name, convert in self.converts.items()}
        for name, reason in self.absent.items():
            if fields[name] is None:
                raise UnfitError(reason)
        return fields


def _of_record(schema: Any, kind: pa.StructType, names: dict[str, Any], at: str) -> Convert | None:
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    converts = {f.name: conversion(fields.get(f.name, "null"), f.type, names, f"{at}.{f.name}") for f in kind}
    absent = {f.name: ABSENT.format(f"{at}.{f.name}") for f in kind if not f.nullable}
    return _Fields(converts, absent) if absent or any(converts.values()) else None


def _of_items(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: [_applied(convert, value) for value in values]


def _of_entries(convert: Convert | None) -> Convert:
    return lambda values: [(key, _applied(convert, value)) for key, value in values.items()]


def _applied(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)
