"""The values of fields that a writer's schema does not have, as JSON values of their columns."""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from kappa.errors import TopologyError
from kappa.topology.ddl import Column

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"NaN|[+-]?(Infinity|INF)")
_DATE = re.compile(r"\s*[+-]?([0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})(\D.*)?", re.ASCII)


def default_values(
    what: str, columns: Iterable[Column], defaults: Mapping[str, Any], *, has_numeric_times: bool
) -> dict[str, Any]:
    """The defaults of columns as JSON values.

    Args:
        what: the source, for messages.
        columns: the columns of its values.
        defaults: column -> its value, as JSON or as Python has it: Decimal, bytes, date, datetime.
        has_numeric_times: whether a number in a TIMESTAMP column is a time.

    Raises:
        TopologyError: a value is not of its column's type.
    """
    by_name = {column.name: column for column in columns}
    values = {}
    for name, value in defaults.items():
        column = by_name[name]
        values[name] = _as_json(value)
        is_null = value is None and column.nullable
        if not is_null and not _fits(values[name], column.delta, has_numeric_times):
            raise TopologyError(
                f"{what} has the default {value!r} for {name!r}, which is {column.type}. Write it like a JSON value of "
                "the column: defaults={'currency': 'EUR', 'price': 1.5}.",
                column=name,
            )
    return values


def _as_json(value: Any) -> Any:
    match value:
        case list() | tuple():
            return [_as_json(one) for one in value]
        case dict():
            return {name: _as_json(one) for name, one in value.items()}
    return next((convert(value) for kinds, convert in _CONVERSIONS if isinstance(value, kinds)), value)


def _of_float(value: float) -> Any:
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"


def _of_integer(value: int) -> Any:
    """JSON of the platform has 64 bits; a DECIMAL takes its digits as text."""
    return value if isinstance(value, bool) or -(2**63) <= value < 2**63 else str(value)


_CONVERSIONS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (Decimal, str),
    (bytes, lambda value: b64encode(value).decode()),
    (date, lambda value: value.isoformat()),
    (float, _of_float),
    (int, _of_integer),
)


def _fits(value: Any, kind: Any, has_numeric_times: bool) -> bool:
    """Whether a JSON value may be of a Delta type. Of a text that begins with a date the rest is left to the reader."""

    if isinstance(kind, dict):
        return _fits_nested(value, kind, has_numeric_times)
    if kind in _BITS:
        return _is_integer(value) and -(2 ** (_BITS[kind] - 1)) <= value < 2 ** (_BITS[kind] - 1)
    if kind.startswith("decimal("):
        return _fits_decimal(value, *map(int, kind[8:-1].split(",")))
    if kind == "timestamp" and has_numeric_times:
        return _is_integer(value) or isinstance(value, str)
    return _PLAIN[kind](value)


def _fits_nested(value: Any, kind: Mapping[str, Any], has_numeric_times: bool) -> bool:
    if kind["type"] == "array":
        parts = [(one, kind["elementType"]) for one in value] if isinstance(value, list) else None
    elif not isinstance(value, dict) or not all(map(_is_text, value)):
        parts = None
    elif kind["type"] == "map":
        parts = [(one, kind["valueType"]) for one in value.values()]
    else:
        parts = [(value.get(field["name"]), field["type"]) for field in kind["fields"]]
    return parts is not None and all(one is None or _fits(one, inner, has_numeric_times) for one, inner in parts)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _fits_decimal(value: Any, digits: int, scale: int) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
        return False
    try:
        rounded = Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:  # it has more digits than any DECIMAL
        return False
    return bool(abs(rounded) < 10 ** (digits - scale))


def _is_date(value: Any) -> bool:
    match = _DATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    try:
        date(2000 + int(match[1]) % 400, int(match[2]), int(match[3]))  # the calendar repeats after 400 years
    except ValueError:
        return False
    return True


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and b64encode(b64decode(value, validate=True)).decode() == value
    except (binascii.Error, ValueError):
        return False


def _is_text(value: Any) -> bool:
    """Whether it is a text without half a surrogate pair, which no writer of UTF-8 takes."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_json(value: Any) -> bool:
    match value:
        case None | bool() | int() | float():
            return True
        case str():
            return _is_text(value)
        case list():
            return all(map(_is_json, value))
        case dict():
            return all(_is_text(name) and _is_json(one) for name, one in value.items())
    return False


def _is_double(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and bool(_NOT_FINITE.fullmatch(value)))


_WIDE = Context(prec=80)
_PLAIN: dict[str, Callable[[Any], bool]] = {
    "string": _is_json,
    "boolean": lambda value: isinstance(value, bool),
    "double": _is_double,
    "float": _is_double,
    "binary": _is_base64,
    "date": _is_date,
    "timestamp": _is_date,
}
