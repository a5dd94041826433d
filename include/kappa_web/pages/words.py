"""Numbers, times and names as pages show them. Pure."""

from __future__ import annotations

from datetime import datetime

from kappa.errors import visible

#: Factor to the next unit, and its letter.
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def count(value: int | None) -> str:
    """A whole number with separators; a dash for none."""
    return "–" if value is None else f"{value:,}"


def short(value: float | None) -> str:
    """A number in at most four characters and a letter: 1,234,567 is 1.2 M.

    Examples:
        >>> short(1_234_567), short(12.34), short(0), short(None)
        ('1.2 M', '12', '0', '–')
    """
    if value is None:
        return "–"
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= scale:
            by = value / (scale if letter != "k" else 1e3)
            return f"{by:,.1f} {letter}" if by < 100 else f"{by:,.0f} {letter}"
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def number(value: float | None) -> str:
    """A number of a column, without exponents as long as it can be read.

    Examples:
        >>> number(8_120_333.5), number(45.4), number(None), number(12.0)
        ('8,120,333.5', '45.4', '–', '12')
    """
    if value is None:
        return "–"
    if value == round(value) or abs(value) >= 1e12:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:,.6g}"


def lasting(seconds: float | None) -> str:
    """A time span in one or two units.

    Examples:
        >>> lasting(0.25), lasting(75), lasting(7_200), lasting(200_000)
        ('0.25 s', '1 min 15 s', '2 h', '2 d 7 h')
    """
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds else "0 s"
    rest = round(seconds)
    parts = []
    for size, unit in _UNITS:
        if rest >= size:
            parts.append(f"{rest // size} {unit}")
            rest %= size
    if rest or not parts:
        parts.append(f"{rest} s")
    return " ".join(parts[:2])


def ago(at: datetime, now: datetime) -> str:
    """How long a time is past; "now" for the last second and for clocks that differ."""
    seconds = (now - at).total_seconds()
    if seconds < 1:
        return "now"
    coarse = seconds if seconds < 60 else seconds // 60 * 60
    return f"{lasting(round(coarse)).split(' ', 2)[0]} {lasting(round(coarse)).split(' ', 2)[1]} ago"


def stamp(at: datetime) -> str:
    """A time in UTC, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


def text(value: object) -> str:
    """A value from outside, with invisible characters written out."""
    return visible(str(value))
