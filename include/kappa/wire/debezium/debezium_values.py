"""Values of Debezium's JSON in columns of declared types: decimals, dates and times in its forms, the rest as in JSON.

If a value has a schema beside it, that gives the form of a number or text; otherwise the source does.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from kappa.topology.schemas.envelopes import Decimals
from kappa.wire.json import json_scalars
from kappa.wire.json.json_converter import (
    ABSENT,
    DIGITS,
    UNFIT,
    UNITS,
    Number,
    Timestamps,
    UnfitError,
    convert,
    type_name,
)

#: Placeholder of a large value that a change left as it was.
PLACEHOLDER = "__debezium_unavailable_value"
_AS_BYTES = list(PLACEHOLDER.encode())
_AS_BASE64 = base64.b64encode(PLACEHOLDER.encode()).decode()
_AS_UUID = str(uuid.UUID(bytes=hashlib.md5(PLACEHOLDER.encode(), usedforsecurity=False).digest(), version=3))
_AS_MAP = {PLACEHOLDER: PLACEHOLDER}
_TEXTS = {PLACEHOLDER, _AS_BASE64, _AS_UUID, f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'}

DECIMAL = "org.apache.kafka.connect.data.Decimal"
#: Microseconds per unit, by the name of a schema.
_UNIT_OF = {
    "io.debezium.time.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
}
_NANOS = "io.debezium.time.NanoTimestamp"
#: Names of days since 1970, and of numbers that are neither days nor times: times of day, durations, years.
_DAYS = {"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"}
_OTHERS = {
    "io.debezium.time.Time",
    "io.debezium.time.MicroTime",
    "io.debezium.time.NanoTime",
    "io.debezium.time.MicroDuration",
    "io.debezium.time.NanoDuration",
    "io.debezium.time.Year",
    "org.apache.kafka.connect.data.Time",
}
_MICROS_OF_DAY = 86_400_000_000
#: Reason of a number whose schema says something else than its column.
OTHER_KIND = "{} is {}, which does not fit {}"

Convert = Callable[[Any], Any]
#: A schema of Kafka Connect in the form of its JSON converter.
Hint = Mapping[str, Any]
_NO_HINT: Hint = {}


@dataclass(frozen=True, kw_only=True)
class Forms:
    """The forms of values without a schema beside them.

    Attributes:
        decimals: meaning of text in a DECIMAL column.
        timestamps: meaning of numbers in a TIMESTAMP column.
    """

    decimals: Decimals = "precise"
    timestamps: Timestamps = "text"


def is_unchanged(value: Any) -> bool:
    """Whether a value is the placeholder of an unchanged value."""
    if type(value) is str:
        return value in _TEXTS
    if type(value) is list:
        return (len(value) == 1 and is_unchanged(value[0])) or (
            len(value) == len(_AS_BYTES) and [plain(item) for item in value] == _AS_BYTES
        )
    return type(value) is dict and value == _AS_MAP


def reader(kind: pa.DataType, hint: Hint, forms: Forms, at: str) -> Convert:
    """A function that turns a part of a tree that is not null into a value of a type; it raises UnfitError.

    Args:
        kind: the declared type.
        hint: the schema beside the value; empty if there is none.
        forms: the forms without a schema.
        at: the path, for reasons.
    """
    if pa.types.is_struct(kind):
        return _struct(kind, hint, forms, at)
    if pa.types.is_list(kind):
        item = _nullable(reader(kind.value_type, _part(hint, "items"), forms, at))
        return partial(_items, item, UNFIT.format(at, "ARRAY"))
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        item = _nullable(reader(kind.item_type, _part(hint, "values"), forms, at))
        return partial(_entries, item, UNFIT.format(at, "MAP"))
    own = _scalar(kind, hint, forms, at)
    return convert(kind, forms.timestamps, at) if own is None else _checked(own, UNFIT.format(at, type_name(kind)))


def _scalar(kind: pa.DataType, hint: Hint, forms: Forms, at: str) -> Convert | None:
    """The conversion of a single value with forms of its own; None if they are those of JSON."""
    if pa.types.is_decimal(kind):
        return _decimal(kind, hint, forms)
    if pa.types.is_timestamp(kind):
        return _timestamp(hint, forms, at)
    return _date(hint, at) if pa.types.is_date(kind) else None


def fields_of(hint: Hint) -> dict[str, Hint]:
    """The fields of a schema of a struct, by their names."""
    fields = hint.get("fields")
    entries = fields if isinstance(fields, list) else []
    return {str(field.get("field")): field for field in entries if isinstance(field, dict)}


def _struct(kind: pa.StructType, hint: Hint, forms: Forms, at: str) -> Convert:
    hints = fields_of(hint)
    parts = [
        (one.name, _nullable(reader(one.type, hints.get(one.name, _NO_HINT), forms, f"{at}.{one.name}")), one.nullable)
        for one in kind
    ]

    def row(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise UnfitError(UNFIT.format(at, "STRUCT"))
        values = {name: read(value.get(name)) for name, read, _ in parts}
        for name, _, is_nullable in parts:
            if not is_nullable and values[name] is None:
                raise UnfitError(ABSENT.format(f"{at}.{name}"))
        return values

    return row


def _part(hint: Hint, name: str) -> Hint:
    part = hint.get(name)
    return part if isinstance(part, dict) else _NO_HINT


def _nullable(read: Convert) -> Convert:
    return lambda value: None if value is None else read(value)


def _items(item: Convert, unfit: str, value: Any) -> list[Any]:
    if type(value) is not list:
        raise UnfitError(unfit)
    return [item(one) for one in value]


def _entries(item: Convert, unfit: str, value: Any) -> list[tuple[str, Any]]:
    if type(value) is not dict:
        raise UnfitError(unfit)
    return [(name, item(one)) for name, one in value.items()]


def _checked(read: Convert, unfit: str) -> Convert:
    def checked(value: Any) -> Any:
        try:
            return read(value)
        except (ValueError, ArithmeticError):
            raise UnfitError(unfit) from None

    return checked


def _decimal(kind: pa.Decimal128Type, hint: Hint, forms: Forms) -> Convert:
    is_bytes = hint.get("name") == DECIMAL if hint else forms.decimals == "precise"
    scale = _scale(hint, kind.scale)

    def read(value: Any) -> Any:
        text, digits_behind = value, scale
        if type(value) is dict:
            # A decimal without a scale of its own: each value has one.
            text, digits_behind = value.get("value"), plain(value.get("scale"))
            if type(digits_behind) is not int:
                raise ValueError("no scale")
        elif type(value) is Number:
            return json_scalars.decimal(written(value), kind.precision, kind.scale)
        if type(text) is not str:
            raise ValueError("not a decimal")
        if type(value) is not dict and not is_bytes:
            return json_scalars.decimal(text, kind.precision, kind.scale)
        number = int.from_bytes(json_scalars.content(text), signed=True)
        if abs(number).bit_length() > 4096 or abs(digits_behind) > 1_000_000:
            raise ValueError("more digits than any type")
        return json_scalars.decimal(f"{number}e{-digits_behind}", kind.precision, kind.scale)

    return read


def _scale(hint: Hint, declared: int) -> int:
    """The scale of a decimal from its schema, or else from the column."""
    parameters = _part(hint, "parameters")
    try:
        return int(parameters["scale"])
    except (KeyError, ValueError, TypeError):
        return declared


def _date(hint: Hint, at: str) -> Convert:
    name = str(hint.get("name"))
    is_other = name == _NANOS or name in _UNIT_OF or name in _OTHERS

    def read(value: Any) -> int:
        if type(value) is not Number:
            return json_scalars.days(_day(_text(value)))
        if is_other:
            raise UnfitError(OTHER_KIND.format(at, name, "DATE"))
        return json_scalars.day(json_scalars.integer(written(value), 32))

    return read


def _timestamp(hint: Hint, forms: Forms, at: str) -> Convert:
    name = str(hint.get("name"))
    unit = _UNIT_OF.get(name, UNITS.get(forms.timestamps))

    def read(value: Any) -> int:
        if type(value) is not Number:
            return json_scalars.micros(_day(_text(value)))
        if name == _NANOS:
            return json_scalars.integer(written(value), 64) // 1_000
        if name in _DAYS:
            return json_scalars.day(json_scalars.integer(written(value), 32)) * _MICROS_OF_DAY
        if name in _OTHERS:
            raise UnfitError(OTHER_KIND.format(at, name, "TIMESTAMP"))
        if unit is None:
            raise UnfitError(DIGITS.format(at))
        return json_scalars.epoch_micros(written(value), unit)

    return read


def _day(text: str) -> str:
    """A date as ``time.precision.mode=isostring`` writes it, ``2026-01-01Z``, without its zone; other texts stay."""
    return text.removesuffix("Z") if ":" not in text and "T" not in text else text


def written(number: Number) -> str:
    """A number as it was written."""
    return orjson.dumps(number).decode()


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("not a text")
    return value


def plain(value: Any) -> Any:
    """A number that is whole as an integer, anything else as it is."""
    if type(value) is not Number:
        return value
    text = written(value)
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 25 else text
