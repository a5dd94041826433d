"""Numbers, dates, times and bytes from their JSON texts, with our own grammars.

They use no clock, no time zone except offsets in the text, and no arithmetic that grows with an exponent. Text outside
the grammar or outside the type raises a ``ValueError``. ``docs/json.md`` has each rule as a row.
"""

from __future__ import annotations

import binascii
import re
import struct
from decimal import Decimal

from kappa.topology.times.dates import FIRST_DAY, LAST_DAY

#: A JSON number with ASCII digits; in a text also with a plus sign, and with a point at the beginning or end.
_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?)([0-9]+))?", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
#: Digits of the largest integer in a column, and of the largest exponent that any type could need.
_DIGITS, _EXPONENT = 19, 9
_DATE = r"([+-]?)([0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})"
_CLOCK = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]+))?)?)?"
_OFFSET = r" ?(?:Z|UTC|GMT|([+-])(?:([0-9]{1,2}(?::[0-9]{2}){0,2})|([0-9]{4}|[0-9]{6})))"
_TIME = re.compile(rf" *{_DATE}(?:[T ]{_CLOCK}(?:{_OFFSET})?)? *", re.ASCII)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MICROS = 1_000_000
_LEAST_MICROS, _MOST_MICROS = -(2**63), 2**63 - 1
#: Largest offset from UTC, in seconds: Java's, and so Spark's.
_FARTHEST = 18 * 3600
#: Values that a text can express and a JSON number cannot.
_NO_NUMBERS = {
    "NaN": float("nan"),
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}


def integer(text: str, bits: int) -> int:
    """A whole number without point or exponent."""
    if _INTEGER.fullmatch(text) is None or len(text.lstrip("-0")) > _DIGITS:
        raise ValueError("not an integer of the type")
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError("out of range")
    return number


def unscaled(text: str, precision: int, scale: int) -> int:
    """The digits of a decimal at a scale, rounded half up; the time depends on the number of digits alone."""
    sign, digits, point = _parts(text)
    shift = point + scale
    if not digits:
        return 0
    if len(digits) + shift > precision:
        raise ValueError("more digits than the type")
    if shift >= 0:
        number: int = int(digits) * 10**shift
    elif -shift > len(digits):
        number = 0
    else:
        number = int(digits[:shift] or "0") + (digits[shift] >= "5")
    if number >= 10**precision:
        raise ValueError("more digits than the type")
    return -number if sign == "-" else number


def decimal(text: str, precision: int, scale: int) -> Decimal:
    """A decimal at a scale, rounded half up."""
    return Decimal(f"{unscaled(text, precision, scale)}E-{scale}")


def double(text: str) -> float:
    """The nearest double of a JSON number."""
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("out of range")
    return number


def single(text: str) -> float:
    """The nearest 32-bit float of a JSON number, by one rounding."""
    number = double(text)
    bits = struct.unpack("<q", struct.pack("<d", number))[0]
    if bits & 0x1FFF_FFFF == 0x1000_0000 and (exact := Decimal(text)) != (near := Decimal(number)):
        # Halfway between two floats only because it was rounded to a double: move one step towards the real number.
        away = (exact > near) == (number > 0)
        number = struct.unpack("<d", struct.pack("<q", bits + (1 if away else -1)))[0]
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise ValueError("out of range") from None


def no_number(text: str) -> float:
    """NaN or an infinity, by its name."""
    try:
        return _NO_NUMBERS[text]
    except KeyError:
        raise ValueError("not a number") from None


def days(text: str) -> int:
    """Days from 1970-01-01 to a date, in the Gregorian calendar at all times; a time after the date is checked but not
    used.
    """
    return day(_days(_time(text)[0]))


def day(number: int) -> int:
    """Days from 1970-01-01, if a column of DATE holds that day."""
    if not FIRST_DAY <= number <= LAST_DAY:
        raise ValueError("out of range")
    return number


def micros(text: str) -> int:
    """Microseconds from 1970-01-01T00:00Z to a date with or without a time; digits after the sixth are cut off.

    Without an offset the time is UTC.
    """
    parts, seconds = _time(text)
    fraction = parts[8]
    cut = 0 if fraction is None else int(fraction[:6].ljust(6, "0"))
    return _in_range((_days(parts) * 86_400 + seconds) * _MICROS + cut)


def epoch_micros(text: str, unit: int) -> int:
    """Microseconds of a number that counts since 1970-01-01T00:00Z; smaller parts are cut off, towards the past.

    Args:
        text: the number.
        unit: microseconds per unit.
    """
    sign, digits, point = _parts(text)
    point += {1: 0, 1000: 3, _MICROS: 6}[unit]
    if not digits:
        return 0
    if len(digits) + point > _DIGITS:
        raise ValueError("out of range")
    whole = int(digits) * 10**point if point >= 0 else int(digits[:point] or "0") if -point <= len(digits) else 0
    rest = point < 0 and digits[point:].strip("0") != ""
    return _in_range(-whole - rest if sign == "-" else whole)


def content(text: str) -> bytes:
    """The bytes of base64 with its padding, without blanks."""
    if _BASE64.fullmatch(text) is None:
        raise ValueError("not base64")
    return binascii.a2b_base64(text)


def _parts(text: str) -> tuple[str, str, int]:
    """The sign, the digits without leading zeros, and the power of ten that multiplies them."""
    parts = _NUMBER.fullmatch(text)
    if parts is None:
        raise ValueError("not a number")
    sign, whole, fraction, direction, power = parts.groups("")
    if not whole and not fraction:
        raise ValueError("not a number")
    digits, power = (whole + fraction).lstrip("0"), power.lstrip("0")
    if len(power) > _EXPONENT:
        # Further than any digits could compensate: a value is at most 2 GB.
        power = "9" * (_EXPONENT + 3)
    point = int(power or "0") * (-1 if direction == "-" else 1)
    return sign, digits, point - len(fraction)


def _time(text: str) -> tuple[re.Match[str], int]:
    """The parts of a date with or without a time, and its seconds since midnight UTC of that date."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError("not a date")
    hours, minutes, seconds = (0 if part is None else int(part) for part in parts.group(5, 6, 7))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("no time of the day")
    return parts, hours * 3600 + minutes * 60 + seconds - _offset(parts)


def _days(parts: re.Match[str]) -> int:
    sign, year, month, day = parts.group(1, 2, 3, 4)
    years, months, dates = int(sign + year), int(month), int(day)
    if not 1 <= months <= 12 or not 1 <= dates <= _DAYS[months - 1] - (months == 2 and not _leap(years)):
        raise ValueError("no day of the calendar")
    # Days of a year that begins in March, so that the leap day is its last day; after "days_from_civil" by H. Hinnant.
    years -= months <= 2
    cycle, of_cycle = divmod(years, 400)
    of_year = (153 * (months + (-3 if months > 2 else 9)) + 2) // 5 + dates - 1
    return cycle * 146_097 + of_cycle * 365 + of_cycle // 4 - of_cycle // 100 + of_year - 719_468


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _offset(parts: re.Match[str]) -> int:
    sign, parted, digits = parts.group(9, 10, 11)
    if sign is None:
        return 0
    texts = parted.split(":") if digits is None else [digits[place : place + 2] for place in range(0, len(digits), 2)]
    hours, minutes, seconds = (int(text) for text in [*texts, "0", "0"][:3])
    offset = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or offset > _FARTHEST:
        raise ValueError("no offset")
    return -offset if sign == "-" else offset


def _in_range(number: int) -> int:
    if not _LEAST_MICROS <= number <= _MOST_MICROS:
        raise ValueError("out of range")
    return number
