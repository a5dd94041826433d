"""JSON values as rows of the declared columns, value by value: this converter defines the meaning of each value.

``docs/json.md`` lists each type with each kind of JSON value. :mod:`kappa.wire.json.json_lines` reads many values at a
time with Arrow, which is faster and gives the same rows. The result for a value never depends on the values beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from json import JSONDecoder
from typing import Any, Literal

import orjson
import pyarrow as pa

from kappa.wire.json import json_scalars

#: Meaning of numbers, and of texts of digits, in TIMESTAMP columns: dead letters, or counts since 1970-01-01T00:00Z.
Timestamps = Literal["text", "epoch_seconds", "epoch_ms", "epoch_us"]

#: Largest number of nested objects and arrays. Python's parser counts them against its limit of frames.
DEEPEST = 200

#: Reasons of dead letters. None of them contains a part of the value.
NOT_UTF8 = "the value is not UTF-8"
BYTE_ORDER_MARK = "the value begins with a byte order mark"
WIRE_FORMAT = "the value begins with zero and the id of a schema, as Confluent's wire format does"
EMPTY = "the value is empty"
NO_OBJECT = "the value is not a JSON object"
NOT_JSON = "the value is not JSON"
FURTHER = "text follows the JSON object"
TOO_DEEP = f"the value nests deeper than {DEEPEST} levels"
UNFIT = "{} does not fit {}"
DIGITS = "{} holds a number, not a date: the source's timestamps= says what numbers are"
HALF = "{} holds half a surrogate pair"
ABSENT = "{} is NOT NULL and absent"

_SPACE = " \t\r\n"
#: Microseconds per unit of a number in a TIMESTAMP column.
UNITS: dict[str, int] = {"epoch_seconds": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
_IS_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?", re.ASCII)
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
#: Spark's type names that differ from Arrow's.
_NAMES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "bool": "BOOLEAN",
    "double": "DOUBLE",
    "float": "FLOAT",
    "string": "STRING",
    "binary": "BINARY",
    "date32[day]": "DATE",
}

Convert = Callable[[Any], Any]


class UnfitError(Exception):
    """A value, or its writer's schema, does not fit the declared columns; the text of the error is the reason."""


#: A JSON number as it was written, which is made and written again in a fraction of the time of an own type.
Number = orjson.Fragment


def _no_json(_: str) -> Any:
    raise ValueError("JSON has no such number")


#: Strict: a control character within a text is an error. If a name is repeated, its last field counts.
_DECODER = JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_no_json, strict=True)


def converted(value: bytes, kind: pa.StructType, timestamps: Timestamps = "text") -> dict[str, Any] | str:
    """The row of a value, or why it is a dead letter.

    Args:
        value: bytes of any content.
        kind: the declared columns.
        timestamps: meaning of numbers in TIMESTAMP columns.

    Returns:
        A Python value that Arrow accepts for ``kind``; times and dates are numbers.
    """
    try:
        row = convert(kind, timestamps)(tree(value))
        pa.scalar(row, kind)
    except UnfitError as error:
        return str(error)
    except Exception:  # any error that hostile bytes cause concerns this value alone
        return NOT_JSON
    assert isinstance(row, dict)
    return row


def tree(value: bytes) -> dict[str, Any]:
    """The object in a value, with its numbers as they were written.

    Raises:
        UnfitError: it is not an object.
    """
    content = any_tree(value, beginning="{")
    assert isinstance(content, dict)
    return content


def any_tree(value: bytes, *, beginning: str = "") -> Any:
    """The JSON in a value, with its numbers as they were written.

    Args:
        value: bytes of any content.
        beginning: what it has to begin with, after blanks.

    Raises:
        UnfitError: it is something else.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise UnfitError(WIRE_FORMAT if value[:1] == b"\0" else NOT_UTF8) from None
    start = len(text) - len(text.lstrip(_SPACE))
    first = text[start : start + 1]
    if not first or (beginning and first != beginning):
        raise UnfitError(_beginning(text[start:]))
    if value.count(b"{") + value.count(b"[") > DEEPEST and depth(value) > DEEPEST:
        raise UnfitError(TOO_DEEP)
    try:
        content, end = _DECODER.raw_decode(text, start)
    except ValueError:
        raise UnfitError(NOT_JSON) from None
    if end != len(text) and text[end:].strip(_SPACE):
        raise UnfitError(FURTHER)
    return content


def _beginning(text: str) -> str:
    if not text:
        return EMPTY
    if text[0] == "\ufeff":
        return BYTE_ORDER_MARK
    return WIRE_FORMAT if text[0] == "\0" else NO_OBJECT


def depth(value: bytes) -> int:
    """Largest number of brackets that are open at a time, outside texts."""
    deepest = level = 0
    for bracket in _TEXT.sub(b"", value).translate(None, _NO_BRACKETS):
        level += 1 if bracket in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


@lru_cache(maxsize=64)
def convert(kind: pa.DataType, timestamps: Timestamps, at: str = "") -> Convert:
    """A function that turns a part of a :func:`tree` that is not null into a value of a type; it raises UnfitError."""
    if pa.types.is_struct(kind):
        return _struct(kind, timestamps, at)
    if pa.types.is_list(kind):
        return partial(_items, _nullable(kind.value_type, timestamps, at), UNFIT.format(at, "ARRAY"))
    if pa.types.is_map(kind):
        return _map(kind, timestamps, at)
    return _scalar(kind, timestamps, at)


def _nullable(kind: pa.DataType, timestamps: Timestamps, at: str) -> Convert:
    inner = convert(kind, timestamps, at)
    return lambda value: None if value is None else inner(value)


def _struct(kind: pa.StructType, timestamps: Timestamps, at: str) -> Convert:
    paths = [f"{at}.{field.name}" if at else field.name for field in kind]
    parts = [
        (field.name, convert(field.type, timestamps, path), None if field.nullable else ABSENT.format(path))
        for field, path in zip(kind, paths, strict=True)
    ]
    unfit = UNFIT.format(at, "STRUCT")

    def row(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise UnfitError(unfit)
        values = {}
        for name, inner, absent in parts:
            part = value.get(name)
            if part is not None:
                values[name] = inner(part)
            elif absent is not None:
                raise UnfitError(absent)
        return values

    return row


def _items(inner: Convert, unfit: str, value: Any) -> list[Any]:
    if type(value) is not list:
        raise UnfitError(unfit)
    return [inner(item) for item in value]


def _map(kind: pa.MapType, timestamps: Timestamps, at: str) -> Convert:
    unfit = UNFIT.format(at, "MAP")
    key = convert(kind.key_type, timestamps, at)
    item = _nullable(kind.item_type, timestamps, at)

    def of_fields(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict:
            raise UnfitError(unfit)
        return [(key(name), item(part)) for name, part in value.items()]

    def of_entries(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not list or not all(type(entry) is dict and entry.get("key") is not None for entry in value):
            raise UnfitError(unfit)
        return [(key(entry["key"]), item(entry.get("value"))) for entry in value]

    return of_fields if pa.types.is_string(kind.key_type) else of_entries


def _scalar(kind: pa.DataType, timestamps: Timestamps, at: str) -> Convert:
    unfit = UNFIT.format(at, type_name(kind))
    if pa.types.is_string(kind):
        return partial(_string, HALF.format(at))
    if pa.types.is_boolean(kind):
        return partial(_boolean, unfit)
    if pa.types.is_timestamp(kind):
        return _timestamp(unfit, DIGITS.format(at), UNITS.get(timestamps))
    number, text = _grammars(kind)
    return _of(unfit, number, text)


def _grammars(kind: pa.DataType) -> tuple[Convert, Convert]:
    """The grammar of numbers, and that of texts."""
    if pa.types.is_decimal(kind):
        return (to_decimal := _decimal(kind.precision, kind.scale)), to_decimal
    if pa.types.is_floating(kind):
        return (json_scalars.double if pa.types.is_float64(kind) else json_scalars.single), json_scalars.no_number
    if pa.types.is_date(kind):
        return _refused, json_scalars.days
    if pa.types.is_binary(kind):
        return _refused, json_scalars.content
    return partial(json_scalars.integer, bits=_BITS[str(kind)]), _refused


def _decimal(precision: int, scale: int) -> Convert:
    whole, fraction = max(1, precision - scale), max(1, scale)
    # The written number is exact; but if all digits are after the point, one integer digit may be too many.
    plain = re.compile(rf"-?[0-9]{{1,{whole}}}\.[0-9]{{1,{fraction}}}", re.ASCII)
    is_usual = precision > scale > 0
    return lambda text: (
        Decimal(text)
        if is_usual and plain.fullmatch(text) is not None
        else json_scalars.decimal(text, precision, scale)
    )


def _string(half: str, value: Any) -> str:
    """A text as it is, and any other value as JSON text without blanks."""
    if type(value) is str:
        text = value
    else:
        try:
            return orjson.dumps(value).decode()
        except orjson.JSONEncodeError:
            raise UnfitError(half) from None
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnfitError(half) from None
    return text


def _boolean(unfit: str, value: Any) -> bool:
    if type(value) is not bool:
        raise UnfitError(unfit)
    return value


def _refused(_: str) -> Any:
    raise ValueError("not of the type")


def _of(unfit: str, number: Convert, text: Convert) -> Convert:
    """A function that reads numbers with one grammar, and texts with another."""

    def scalar(value: Any) -> Any:
        try:
            if type(value) is Number:
                return number(_written(value))
            if type(value) is str:
                return text(value)
        except ValueError:
            pass
        raise UnfitError(unfit)

    return scalar


def _written(number: Number) -> str:
    return orjson.dumps(number).decode()


def _timestamp(unfit: str, digits: str, unit: int | None) -> Convert:
    def time(value: Any) -> int:
        text = _written(value) if type(value) is Number else value
        if type(text) is not str:
            raise UnfitError(unfit)
        is_number = text is not value or _IS_NUMBER.fullmatch(text) is not None
        if is_number and unit is None:
            raise UnfitError(digits)
        try:
            return json_scalars.micros(text) if unit is None or not is_number else json_scalars.epoch_micros(text, unit)
        except ValueError:
            pass
        raise UnfitError(unfit)

    return time


def type_name(kind: pa.DataType) -> str:
    """The DDL of a type of single values."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return "TIMESTAMP" if pa.types.is_timestamp(kind) else _NAMES[str(kind)]


__all__: Sequence[str] = ("DEEPEST", "Timestamps", "UnfitError", "convert", "converted", "depth", "tree", "type_name")
