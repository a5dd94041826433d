"""What the table of types (docs/json.md) says that a JSON value becomes in a column, by plain Python.

It is written from the page and imports nothing of the reader. Rows are as :mod:`support.plain_rows` gives them.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import date
from decimal import MAX_EMAX, MIN_EMIN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from support.json_tokens import Fields, Number, Token, compact


class DeadLetterError(Exception):
    """The value makes its record a dead letter."""


EXACT = Context(prec=20_000, Emax=MAX_EMAX, Emin=MIN_EMIN)
MICROS = {"epoch_seconds": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
NAMES = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "INF": "inf", "+INF": "inf"}
NAMES |= {"-Infinity": "-inf", "-INF": "-inf"}


def expected(kind: pa.DataType, token: Token, timestamps: str = "text") -> Any:
    """The value of a column, None for null.

    Raises:
        DeadLetterError: the record is a dead letter.
    """
    if token is None:
        return None
    if pa.types.is_struct(kind):
        return _struct(kind, token, timestamps)
    if pa.types.is_list(kind):
        if not isinstance(token, list):
            raise DeadLetterError
        return [expected(kind.value_type, item, timestamps) for item in token]
    if pa.types.is_map(kind):
        return _map(kind, token, timestamps)
    if pa.types.is_string(kind):
        text = token if isinstance(token, str) else compact(token)
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise DeadLetterError
        return text
    if pa.types.is_boolean(kind):
        if not isinstance(token, bool):
            raise DeadLetterError
        return token
    if isinstance(token, (bool, list, Fields)):
        raise DeadLetterError
    return _number(kind, token) if _is_number(kind) else _text(kind, token, timestamps)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def _struct(kind: pa.StructType, token: Token, timestamps: str) -> dict[str, Any]:
    if not isinstance(token, Fields):
        raise DeadLetterError
    fields = token.last()
    row = {field.name: expected(field.type, fields.get(field.name), timestamps) for field in kind}
    if any(row[field.name] is None and not field.nullable for field in kind):
        raise DeadLetterError
    return row


def _map(kind: pa.MapType, token: Token, timestamps: str) -> list[Any]:
    if pa.types.is_string(kind.key_type):
        if not isinstance(token, Fields):
            raise DeadLetterError
        entries: list[tuple[Token, Token]] = list(token.last().items())
    else:
        if not isinstance(token, list) or not all(isinstance(entry, Fields) for entry in token):
            raise DeadLetterError
        parts = [entry.last() for entry in token if isinstance(entry, Fields)]
        entries = [(part.get("key"), part.get("value")) for part in parts]
    if any(key is None for key, _ in entries):
        raise DeadLetterError
    return [(expected(kind.key_type, key), expected(kind.item_type, item, timestamps)) for key, item in entries]


def _number(kind: pa.DataType, token: Number | str) -> Any:
    text = token.text if isinstance(token, Number) else token
    if pa.types.is_integer(kind):
        if isinstance(token, str) or set(text) & set(".eE") or len(text) > 30:
            raise DeadLetterError
        whole, bits = int(text), INTEGERS[str(kind)]
        if not -(2 ** (bits - 1)) <= whole <= 2 ** (bits - 1) - 1:
            raise DeadLetterError
        return whole
    if pa.types.is_decimal(kind):
        return _decimal(kind, text)
    if isinstance(token, str):
        if text not in NAMES:
            raise DeadLetterError
        return NAMES[text]
    number = float(text) if pa.types.is_float64(kind) else _single(text)
    if number in (float("inf"), float("-inf")):
        raise DeadLetterError
    return str(number)


def _decimal(kind: pa.DataType, text: str) -> str:
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) is None:
        raise DeadLetterError
    number = Decimal(text)
    if number.is_zero() or number.adjusted() < -kind.scale - 1:
        number = Decimal(0)
    elif number.adjusted() > 40:
        raise DeadLetterError
    rounded = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, context=EXACT)
    if abs(rounded) >= Decimal(10) ** (kind.precision - kind.scale):
        raise DeadLetterError
    return str(abs(rounded) if rounded.is_zero() else rounded)


def _single(text: str) -> float:
    """The nearest number of 32 bits: of those next to each other the one of least distance, in fractions."""
    number = Decimal(text)
    if number.is_zero() or number.adjusted() < -100:
        return -0.0 if number.is_signed() else 0.0
    if number.adjusted() > 40 or abs(number) >= Decimal(2**128 - 2**103):
        raise DeadLetterError
    largest = Decimal(float(np.finfo(np.float32).max))
    near = np.float32(float(max(min(number, largest), -largest)))
    with np.errstate(over="ignore"):
        sides = [np.nextafter(near, np.float32(side)) for side in ("-inf", "inf")]
    exact = Fraction(number)
    finite = [one for one in (near, *sides) if np.isfinite(one)]
    best = min(finite, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.int32)) & 1))
    return float(best)


def _text(kind: pa.DataType, token: Number | str, timestamps: str) -> Any:
    if pa.types.is_timestamp(kind):
        is_digits = isinstance(token, str) and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", token) is not None
        if isinstance(token, Number) or is_digits:
            if timestamps == "text":
                raise DeadLetterError
            return _epoch(token.text if isinstance(token, Number) else token, MICROS[timestamps])
    if isinstance(token, Number):
        raise DeadLetterError
    if pa.types.is_binary(kind):
        try:
            content = base64.b64decode(token.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise DeadLetterError from None
        return content
    days, micros = _time(token)
    number = days if pa.types.is_date(kind) else days * 86_400_000_000 + micros
    least, most = (-96_465_292, 95_026_236) if pa.types.is_date(kind) else (-(2**63), 2**63 - 1)
    if not least <= number <= most:
        raise DeadLetterError
    return number


def _epoch(text: str, unit: int) -> int:
    number = Decimal(text)
    if not number.is_zero() and number.adjusted() > 30:
        raise DeadLetterError
    if number.adjusted() < -30:
        return -1 if number < 0 else 0
    micros = int((EXACT.multiply(number, Decimal(unit))).to_integral_value(ROUND_FLOOR, context=EXACT))
    if not -(2**63) <= micros < 2**63:
        raise DeadLetterError
    return micros


def _time(text: str) -> tuple[int, int]:
    """Days of a date, and the microseconds since its midnight in UTC."""
    day, mark, clock = _parted(text.strip(" "))
    sign = day[:1] if day[:1] in ("+", "-") else ""
    parts = day[len(sign) :].split("-")
    if len(parts) != 3 or not all(map(_is_ascii_digits, parts)) or not 4 <= len(parts[0]) <= 7:
        raise DeadLetterError
    if any(not 1 <= len(part) <= 2 for part in parts[1:]):
        raise DeadLetterError
    year = int(sign + parts[0])
    cycles, of_cycle = divmod(year, 400)
    try:
        ordinal = date(of_cycle + 400, int(parts[1]), int(parts[2])).toordinal()
    except ValueError:
        raise DeadLetterError from None
    days = ordinal + (cycles - 1) * 146_097 - date(1970, 1, 1).toordinal()
    return days, _clock(clock) if mark else 0


def _parted(text: str) -> tuple[str, str, str]:
    """A date, what follows it, and the time."""
    place = next((place for place, letter in enumerate(text) if letter in "T "), None)
    return (text, "", "") if place is None else (text[:place], text[place], text[place + 1 :])


def _clock(text: str) -> int:
    offset = 0
    for zone in ("Z", "UTC", "GMT"):
        if text.endswith(zone):
            text = text.removesuffix(zone).removesuffix(" ")
            break
    else:
        place = max(text.find("+"), text.find("-"))
        if place >= 0:
            text, zone = text[:place].removesuffix(" "), text[place:]
            offset = _offset(zone)
    whole, point, fraction = text.partition(".")
    parts = whole.split(":")
    if not 1 <= len(parts) <= 3 or not all(_is_ascii_digits(part) and len(part) <= 2 for part in parts):
        raise DeadLetterError
    if point and (len(parts) != 3 or not _is_ascii_digits(fraction)):
        raise DeadLetterError
    hour, minute, second = (int(part) for part in [*parts, "0", "0"][:3])
    if hour > 23 or minute > 59 or second > 59:
        raise DeadLetterError
    return (hour * 3600 + minute * 60 + second - offset) * 1_000_000 + int((fraction + "000000")[:6])


def _offset(text: str) -> int:
    parts = re.fullmatch(r"[0-9]{1,2}|[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?|[0-9]{4}|[0-9]{6}", text[1:], re.ASCII)
    if parts is None:
        raise DeadLetterError
    hours, _, rest = text[1:].partition(":")
    digits = f"{hours.zfill(2)}{rest.replace(':', '')}".ljust(6, "0")
    hour, minute, second = int(digits[:2]), int(digits[2:4]), int(digits[4:])
    if minute > 59 or second > 59 or hour * 3600 + minute * 60 + second > 18 * 3600:
        raise DeadLetterError
    return (hour * 3600 + minute * 60 + second) * (-1 if text[0] == "-" else 1)


def _is_ascii_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
