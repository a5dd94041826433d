"""The starts of windows: at equal steps since 1970, or with the days, weeks or months of a zone.

Starts of windows are counted: each has a *point*, a number that is greater for a later one. SQL computes with points,
since days and months of a zone have different lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal, Protocol
from zoneinfo import ZoneInfo

from kappa import zones
from kappa.topology.ddl import literal
from kappa.topology.times import durations

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_SECONDS = 86_400
_DAY_MS = 86_400_000
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS: tuple[Weekday, ...] = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
Unit = Literal["day", "week", "month"]
#: Greatest number of days in a unit.
_DAYS: dict[Unit, int] = {"day": 1, "week": 7, "month": 31}


def floored(micros: str, every_ms: int) -> str:
    """SQL: the last of equal steps, in epoch microseconds, that is not after a time; also before 1970.

    Args:
        micros: SQL of the time, epoch microseconds.
        every_ms: the step; one begins in 1970.
    """
    return f"({micros} - PMOD({micros}, {every_ms * 1000}L))"


class Grid(Protocol):
    """Starts and lengths of windows. SQL of a time has type TIMESTAMP, SQL of a point BIGINT."""

    @property
    def stride(self) -> int:
        """From one point to the next one."""

    @property
    def longest_ms(self) -> int:
        """The greatest length of a window."""

    @property
    def is_apart(self) -> bool:
        """Whether windows do not overlap."""

    @property
    def text(self) -> str:
        """Size, step and calendar, for ``made_by``: one text for one grid."""

    @property
    def boundaries_text(self) -> str:
        """The same without the size."""

    @property
    def every_text(self) -> str:
        """The step, for people."""

    def first(self, time: str) -> str:
        """SQL: the point of the first window that holds a time; null without a time."""

    def last(self, time: str) -> str:
        """SQL: that of the last one."""

    def start(self, point: str) -> str:
        """SQL: where the window of a point begins."""

    def is_window(self, point: str) -> str:
        """SQL: whether a window begins at a point."""

    def windows(self, first: str, until: str) -> str:
        """SQL: how many windows begin from one point on and before another one."""

    def end(self, point: str) -> str:
        """SQL: where the window of a point ends."""

    def around(self, at: datetime) -> tuple[datetime, datetime]:
        """The last start that is not after a time, and the next one."""


@dataclass(frozen=True, kw_only=True)
class EvenGrid:
    """Windows of one length, at equal steps from 1970-01-01T00:00:00Z in both directions. Points are epoch
    microseconds.

    Attributes:
        size_ms: how long a window is.
        every_ms: time from one start to the next.
    """

    size_ms: int
    every_ms: int

    @property
    def stride(self) -> int:
        """From one point to the next one."""
        return self.every_ms * 1000

    @property
    def longest_ms(self) -> int:
        """The length of a window."""
        return self.size_ms

    @property
    def is_apart(self) -> bool:
        """Whether windows do not overlap."""
        return self.every_ms == self.size_ms

    @property
    def text(self) -> str:
        """Size and step."""
        return f"size={durations.shown(self.size_ms)}, {self.boundaries_text}"

    @property
    def boundaries_text(self) -> str:
        """The step."""
        return f"every={durations.shown(self.every_ms)}"

    @property
    def every_text(self) -> str:
        """The step, for people."""
        return durations.shown(self.every_ms)

    def first(self, time: str) -> str:
        """SQL: the point of the first window that holds a time."""
        return f"({floored(f'(UNIX_MICROS({time}) - {self.size_ms * 1000}L)', self.every_ms)} + {self.stride}L)"

    def last(self, time: str) -> str:
        """SQL: that of the last one."""
        return floored(f"UNIX_MICROS({time})", self.every_ms)

    def start(self, point: str) -> str:
        """SQL: where the window of a point begins."""
        return f"TIMESTAMP_MICROS({point})"

    def is_window(self, point: str) -> str:
        """SQL: whether a window begins at a point, which is always true."""
        return f"{point} IS NOT NULL"

    def windows(self, first: str, until: str) -> str:
        """SQL: how many windows begin from one point on and before another one."""
        return f"(({until}) - ({first})) DIV {self.stride}L"

    def end(self, point: str) -> str:
        """SQL: where the window of a point ends."""
        return f"TIMESTAMP_MICROS({point} + {self.size_ms * 1000}L)"

    def around(self, at: datetime) -> tuple[datetime, datetime]:
        """The last start that is not after a time, and the next one."""
        step = timedelta(milliseconds=self.every_ms)
        before = at - (at - _EPOCH) % step
        return before, before + step


@dataclass(frozen=True, kw_only=True)
class CalendarGrid:
    """Windows of days, weeks or months of a zone, from one local midnight to another. Points count units since 1970.

    A day begins at its first instant, see :func:`kappa.zones.day_begin`: the zone's rules are those of the Java that
    computes the slice. A day that a zone skipped has no window.

    Attributes:
        unit: the unit of points.
        count: number of units in a step.
        size: number of steps in a window.
        zone: name of the zone.
        week_begins: the first day of a week; None for other units.
    """

    unit: Unit
    count: int = 1
    size: int = 1
    zone: str
    week_begins: Weekday | None = None

    @property
    def stride(self) -> int:
        """From one point to the next one."""
        return 1

    @property
    def longest_ms(self) -> int:
        """The greatest length of a window: its days, and the hours by which a clock was set back within them."""
        days = _DAYS[self.unit] * self.count * self.size
        return days * _DAY_MS + zones.put_back(self.zone, days) // timedelta(milliseconds=1)

    @property
    def is_apart(self) -> bool:
        """Whether windows do not overlap."""
        return self.size == 1

    @property
    def text(self) -> str:
        """Size, step, zone and where a week begins."""
        return f"size={self._shown(self.size)}, {self.boundaries_text}"

    @property
    def boundaries_text(self) -> str:
        """The step, zone and where a week begins."""
        begins = "" if self.week_begins is None else f", week_begins={self.week_begins}"
        return f"every={self._shown(1)}, zone={self.zone}{begins}"

    @property
    def every_text(self) -> str:
        """The step, for people."""
        begins = "" if self.week_begins is None else f" from {self.week_begins} on"
        return f"{self._shown(1)}{begins} in {self.zone}"

    def first(self, time: str) -> str:
        """SQL: the point of the first window that holds a time."""
        point = f"({self.last(time)} - {self.size - 1}L)"
        if self.is_apart or not self._skipped:
            return point
        return f"({point} + IF({point} IN ({', '.join(self._skipped)}), 1L, 0L))"

    def last(self, time: str) -> str:
        """SQL: the point of the last one: the unit of the local day, or the next one if a clock was set back over its
        beginning.
        """
        day = f"FLOOR(UNIX_SECONDS(FROM_UTC_TIMESTAMP({time}, {literal(self.zone)})) / {_DAY_SECONDS})"
        back = [
            f"ARRAY({_micros(one.at)}L, {_micros(one.again)}L)"
            for one in zones.crossings(self.zone)
            if one.again is not None and self._is_first(one.day)
        ]
        if not back:
            return self._point_of_day(day)
        within = f"UNIX_MICROS({time}) >= _one[0] AND UNIX_MICROS({time}) < _one[1]"
        return f"({self._point_of_day(day)} + IF(EXISTS(ARRAY({', '.join(back)}), _one -> {within}), 1L, 0L))"

    def start(self, point: str) -> str:
        """SQL: where the window of a point begins. Java takes the first of two midnights, and the instant of the change
        for a midnight that the clock skipped.
        """
        midnight = f"TIMESTAMP_SECONDS({self._first_day(point)} * {_DAY_SECONDS}L)"
        begin = f"TO_UTC_TIMESTAMP({midnight}, {literal(self.zone)})"
        earlier = [
            f"{self._number(one.day)}L, {_micros(one.at)}L"
            for one in zones.crossings(self.zone)
            if one.again is None and self._is_first(one.day)
        ]
        if not earlier:
            return begin
        return f"COALESCE(TIMESTAMP_MICROS(TRY_ELEMENT_AT(MAP({', '.join(earlier)}), {point})), {begin})"

    def is_window(self, point: str) -> str:
        """SQL: whether a window begins at a point: none does on a day that a zone skipped."""
        return f"{self.start(point)} < {self.start(f'{point} + 1L')}"

    def windows(self, first: str, until: str) -> str:
        """SQL: how many windows begin from one point on and before another one."""
        points = f"(({until}) - ({first}))"
        if not self._skipped:
            return points
        within = f"_one -> _one >= ({first}) AND _one < ({until})"
        return f"({points} - SIZE(FILTER(ARRAY({', '.join(self._skipped)}), {within})))"

    def end(self, point: str) -> str:
        """SQL: where the window of a point ends."""
        return self.start(f"({point} + {self.size}L)")

    def around(self, at: datetime) -> tuple[datetime, datetime]:
        """The last start that is not after a time, and the next one, by Python's rules for the zone."""
        local = at.astimezone(ZoneInfo(self.zone)).date()
        number = self._number(local)
        before, after = self._begin(number), self._begin(number + 1)
        if after <= at:
            before, after = after, self._begin(number + 2)
        return before, after

    def _begin(self, number: int) -> datetime:
        if self.unit == "month":
            years, months = divmod(number * self.count, 12)
            return zones.day_begin(date(1970 + years, 1 + months, 1), self.zone)
        days = number if self.unit == "day" else 7 * number + self._week_shift
        return zones.day_begin(_EPOCH.date() + timedelta(days=days), self.zone)

    def _number(self, day: date) -> int:
        if self.unit == "month":
            return ((day.year - 1970) * 12 + day.month - 1) // self.count
        days = (day - _EPOCH.date()).days
        return days if self.unit == "day" else (days - self._week_shift) // 7

    @property
    def _skipped(self) -> list[str]:
        """Points of days that the zone skipped, as SQL; weeks and months have other days."""
        return [f"{self._number(day)}L" for day in zones.skipped_days(self.zone)] if self.unit == "day" else []

    @property
    def _week_shift(self) -> int:
        """The day of 1970 with which a week begins: 1970-01-01 was a Thursday."""
        return WEEKDAYS.index(self.week_begins or "monday") - WEEKDAYS.index("thursday")

    def _is_first(self, day: date) -> bool:
        """Whether a unit begins with a day."""
        return self._number(day - timedelta(days=1)) < self._number(day)

    def _point_of_day(self, day: str) -> str:
        """SQL: the point of a day, counted since 1970. Days are few enough for doubles."""
        if self.unit == "day":
            return day
        if self.unit == "week":
            return f"FLOOR(({day} - {self._week_shift}) / 7)"
        there = f"DATE_FROM_UNIX_DATE(CAST({day} AS INT))"
        return f"FLOOR(((YEAR({there}) - 1970) * 12 + MONTH({there}) - 1) / {self.count})"

    def _first_day(self, point: str) -> str:
        """SQL: the first day of a point."""
        if self.unit == "day":
            return f"({point})"
        if self.unit == "week":
            return f"(({point}) * 7 + {self._week_shift})"
        return f"UNIX_DATE(ADD_MONTHS(DATE'1970-01-01', CAST(({point}) * {self.count} AS INT)))"

    def _shown(self, steps: int) -> str:
        count = steps * self.count
        return f"{count} {self.unit}{'s' if count > 1 else ''}"


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
