"""Days, weeks and months of a zone in plain Python: a zone is a list of times at which its clock is put."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from kappa.topology.times.grid import WEEKDAYS, CalendarGrid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
#: No zone kept an offset for less, in those that the tests look at.
_STEP = timedelta(days=12)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What a zone's clock shows, from one year to another.

    Attributes:
        changes: when its offset changed.
    """

    zone: str
    first: int
    last: int

    @cached_property
    def changes(self) -> list[datetime]:
        there, at, changes = ZoneInfo(self.zone), datetime(self.first, 1, 1, tzinfo=UTC), list[datetime]()
        while at.year < self.last:
            later = at + _STEP
            before = at.astimezone(there).utcoffset()
            if later.astimezone(there).utcoffset() != before:
                low, high = 0, int(_STEP.total_seconds())
                while high - low > 1:
                    middle = (low + high) // 2
                    is_before = (at + timedelta(seconds=middle)).astimezone(there).utcoffset() == before
                    low, high = (middle, high) if is_before else (low, middle)
                changes.append(at + timedelta(seconds=high))
            at = later
        return changes

    def begin(self, day: date) -> datetime:
        """The first instant at which the clock showed midnight of a day, or a time past it."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        there, near = ZoneInfo(self.zone), timedelta(days=3)
        few = self.changes[bisect_left(self.changes, midnight - near) : bisect_left(self.changes, midnight + near)]
        edges = [midnight - near, *few, midnight + near]
        showing = []
        for since, until in pairwise(edges):
            at = max(since, midnight - (since.astimezone(there).utcoffset() or timedelta()))
            showing += [at] if at < until else []
        return min(showing)

    def windows(self, at: datetime, grid: CalendarGrid) -> list[tuple[datetime, datetime]]:
        """Start and end of the windows of a grid that a time is in, the first one first."""
        day = at.astimezone(ZoneInfo(self.zone)).date() + timedelta(days=1)  # a clock may have been put back over one
        firsts = [first_day(day, grid)]
        while len(firsts) < grid.size + 4:
            firsts.append(first_day(firsts[-1] - timedelta(days=1), grid))
        firsts.reverse()
        while len(firsts) < 2 * grid.size + 6:
            firsts.append(next_day(firsts[-1], grid))
        starts = [self.begin(day) for day in firsts]
        spans = [(starts[n], starts[n + grid.size]) for n in range(len(starts) - grid.size)]
        return [(start, end) for n, (start, end) in enumerate(spans) if start <= at < end and start < starts[n + 1]]


@lru_cache(maxsize=1000)
def clock(zone: str, first: int = 1900, last: int = 2037) -> Clock:
    """A zone's clock, looked up once."""
    return Clock(zone=zone, first=first, last=last)


def first_day(day: date, grid: CalendarGrid) -> date:
    """The first day of the step of a calendar that a day is in."""
    if grid.unit == "day":
        return day
    if grid.unit == "week":
        return day - timedelta(days=(day.weekday() - WEEKDAYS.index(grid.week_begins or "monday")) % 7)
    return date(day.year, (day.month - 1) // grid.count * grid.count + 1, 1)


def next_day(first: date, grid: CalendarGrid) -> date:
    """The first day of the step after one."""
    longest = {"day": 1, "week": 7, "month": 31 * grid.count}[grid.unit]
    return first_day(first + timedelta(days=longest), grid)


def micros(at: datetime) -> int:
    """A time as epoch microseconds."""
    return (at - EPOCH) // MICRO


def instant(micros: int) -> datetime:
    """Epoch microseconds as a time."""
    return EPOCH + micros * MICRO
