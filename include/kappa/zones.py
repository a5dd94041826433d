"""Time zones by their names, and where their days begin. Pure but for the time zone database of the machine."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

#: Names that Python's database may have and Java's has not.
_NOT_IN_JAVA = ("Factory", "GMT+0", "GMT-0", "ROC", "localtime")
_SECOND = timedelta(seconds=1)


def objection(zone: object) -> str:
    """Why a text names no zone, with what to write; empty where it names one.

    Args:
        zone: a name such as ``Europe/Berlin``. Letters count in the case that the database has.
    """
    if isinstance(zone, str) and zone and zone not in _NOT_IN_JAVA:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder of the database, a path out of it
            pass
        else:
            return ""
    return f"{zone!r} is not a time zone of the database. {_hint(zone)}"


def day_begin(day: date, zone: str) -> datetime:
    """The first instant of a local day, in UTC.

    Midnight where the clock shows it, the first one where it does so twice. Otherwise the instant at which the clock is
    put past it.

    Args:
        day: the day.
        zone: name of the zone.

    Raises:
        OverflowError: Python has no time for it.

    Examples:
        >>> day_begin(date(2026, 3, 30), "Europe/Berlin").isoformat()
        '2026-03-29T22:00:00+00:00'
        >>> day_begin(date(2018, 11, 4), "America/Sao_Paulo").isoformat()
        '2018-11-04T03:00:00+00:00'
    """
    there = ZoneInfo(zone)
    midnight = datetime.combine(day, time())

    def past(at: datetime) -> timedelta:
        return at.astimezone(there).replace(tzinfo=None) - midnight

    # Of a midnight within a gap Python takes the offset from before: the day began as much earlier as the gap did.
    begin = midnight.replace(tzinfo=there).astimezone(UTC)
    first, last = 0, past(begin) // _SECOND
    while first < last:
        middle = (first + last + 1) // 2
        first, last = (middle, last) if past(begin - middle * _SECOND) >= timedelta(0) else (first, middle - 1)
    return begin - first * _SECOND


def _hint(zone: object) -> str:
    names = sorted(available_timezones() - set(_NOT_IN_JAVA))
    text = zone if isinstance(zone, str) else ""
    by_lower = {name.lower(): name for name in names}
    places = {name.lower().rpartition("/")[2]: name for name in names}
    near = [by_lower[name] for name in get_close_matches(text.lower(), by_lower, n=3)]
    near += [places[name] for name in get_close_matches(text.lower(), places, n=2) if places[name] not in near]
    return f"Did you mean {' or '.join(map(repr, near[:3]))}?" if near else "Write a place: 'Europe/Berlin', or 'UTC'."
