"""Time zones by their names, and where their days begin. Pure but for the time zone database of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

#: Names that Python's database may have and Java's has not.
_NOT_IN_JAVA = ("Factory", "GMT+0", "GMT-0", "ROC", "localtime", "posixrules")
#: Folders of that database with further forms of all zones.
_FOLDERS_NOT_IN_JAVA = ("posix/", "right/")
_SECOND = timedelta(seconds=1)
#: Between these years clocks were put over midnight; what rules say of later years does not.
_YEARS = (1840, 2040)
_STEP = timedelta(days=12)


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A change of a clock over a midnight: from before it to after it, or back.

    Attributes:
        day: the day that this midnight begins.
        at: the instant of the change.
        again: the instant at which the clock showed midnight again; None where it was put forward and did not show it.
    """

    day: date
    at: datetime
    again: datetime | None


def objection(zone: object) -> str:
    """Why a text names no zone, with what to write; empty where it names one.

    Args:
        zone: a name such as ``Europe/Berlin``. Letters count in the case that the database has.
    """
    if isinstance(zone, str) and zone and zone not in _NOT_IN_JAVA and not zone.startswith(_FOLDERS_NOT_IN_JAVA):
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


@lru_cache(maxsize=1000)
def crossings(zone: str) -> tuple[Crossing, ...]:
    """Changes of a zone's clock over a midnight. Hardly a zone has one.

    Args:
        zone: name of the zone.

    Examples:
        >>> crossings("Europe/Berlin")
        ()
        >>> crossings("America/Toronto")[0].at.isoformat()
        '1919-03-31T04:30:00+00:00'
    """
    crossed = []
    for change in _changes(zone):
        new = (change.at + change.after).replace(tzinfo=None)
        old = (change.at + change.before).replace(tzinfo=None)
        midnight = datetime.combine(max(old, new).date(), time())
        if min(old, new) < midnight < max(old, new):
            again = None if old < new else change.at + (midnight - new)
            crossed.append(Crossing(day=midnight.date(), at=change.at, again=again))
    return tuple(crossed)


@lru_cache(maxsize=1000)
def skipped_days(zone: str) -> tuple[date, ...]:
    """Days that a zone left out, when it went over to the other side of the date line.

    Args:
        zone: name of the zone.

    Examples:
        >>> skipped_days("Pacific/Apia"), skipped_days("Europe/Berlin")
        ((datetime.date(2011, 12, 30),), ())
    """
    skipped = []
    for change in _changes(zone):
        new = (change.at + change.after).replace(tzinfo=None)
        old = (change.at + change.before).replace(tzinfo=None)
        # The first day whose midnight the clock did not show, and which was over when it went on.
        day = datetime.combine(old.date() + timedelta(days=old.time() > time()), time())
        while day + timedelta(days=1) <= new:
            skipped.append(day.date())
            day += timedelta(days=1)
    return tuple(skipped)


@lru_cache(maxsize=1000)
def put_back(zone: str, days: int) -> timedelta:
    """How far a zone's clock was put back at most within this many days: they are longer by that than days of 24 hours.

    Args:
        zone: name of the zone.
        days: how many days.

    Examples:
        >>> put_back("Europe/Berlin", 1), put_back("UTC", 31)
        (datetime.timedelta(seconds=3600), datetime.timedelta(0))
    """
    changes, longest = _changes(zone), timedelta(0)
    for number, first in enumerate(changes):
        for last in takewhile(lambda one: one.at - first.at <= timedelta(days=days + 1), changes[number:]):  # noqa: B023
            longest = max(longest, first.before - last.after)
    return longest


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A change of a zone's offset, to the second."""

    at: datetime
    before: timedelta
    after: timedelta


@lru_cache(maxsize=1000)
def _changes(zone: str) -> tuple[_Change, ...]:
    there, at, changes = ZoneInfo(zone), datetime(_YEARS[0], 1, 1, tzinfo=UTC), list[_Change]()

    def offset(at: datetime) -> timedelta:
        return at.astimezone(there).utcoffset() or timedelta(0)

    while at.year < _YEARS[1]:
        before = offset(at)
        if offset(at + _STEP) != before:
            first, last = 0, _STEP // _SECOND
            while last - first > 1:
                middle = (first + last) // 2
                first, last = (middle, last) if offset(at + middle * _SECOND) == before else (first, middle)
            changed = at + last * _SECOND
            changes.append(_Change(at=changed, before=before, after=offset(changed)))
        at += _STEP
    return tuple(changes)


def _hint(zone: object) -> str:
    names = sorted(available_timezones() - set(_NOT_IN_JAVA))
    text = zone if isinstance(zone, str) else ""
    by_lower = {name.lower(): name for name in names}
    places = {name.lower().rpartition("/")[2]: name for name in names}
    near = [by_lower[name] for name in get_close_matches(text.lower(), by_lower, n=3)]
    near += [places[name] for name in get_close_matches(text.lower(), places, n=2) if places[name] not in near]
    return f"Did you mean {' or '.join(map(repr, near[:3]))}?" if near else "Write a place: 'Europe/Berlin', or 'UTC'."
