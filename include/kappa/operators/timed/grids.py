"""The grid of windows, from an author's declaration."""

from __future__ import annotations

import re
from difflib import get_close_matches

from kappa import zones
from kappa.errors import TopologyError
from kappa.operators.timed.windowed import length
from kappa.topology.times.durations import shown
from kappa.topology.times.grid import WEEKDAYS, CalendarGrid, EvenGrid, Grid, Unit, Weekday

#: Largest number of windows of one record.
_MOST_WINDOWS = 5_000
#: Units of calendars -> their length in a smaller unit.
_UNITS: dict[str, tuple[Unit, int]] = {
    "day": ("day", 1),
    "week": ("day", 7),
    "month": ("month", 1),
    "year": ("month", 12),
}
_LENGTH = re.compile(r"\s*(\d{1,19})\s+([a-z]+?)s?\s*", re.IGNORECASE)
_STEPS = "'1 day', '1 week', '1 month', '3 months', '1 year'"


def grid_of(operator: str, size: str, every: str, *, zone: str | None, week_begins: str | None) -> Grid:
    """Where windows begin, and how long they are.

    Args:
        operator: the operator, for messages.
        size: how long a window is.
        every: time from one start to the next.
        zone: name of the time zone by whose calendar they begin; None for equal steps.
        week_begins: the first day of a week there; None for Monday.

    Raises:
        TopologyError: a length of time, the zone or the day is not valid, or the lengths do not fit together.
    """
    if zone is not None:
        return _calendar(operator, size, every, zone, week_begins)
    if week_begins is not None:
        raise TopologyError(
            f"{operator}: week_begins={week_begins!r} without a zone. Weeks without one are steps of 7 days since "
            "1970-01-01, a Thursday. Name the zone of the weeks: zone='Europe/Berlin', or zone='UTC'."
        )
    for name, text in (("size", size), ("every", every)):
        of = _units(text)
        if of is not None and of[0] == "month":
            raise TopologyError(
                f"{operator}: {name} {text!r} has no fixed length. Name the zone of the calendar: "
                "zone='Europe/Berlin', or zone='UTC'."
            )
    size_ms, every_ms = length(size, f"{operator}: size"), length(every, f"{operator}: every")
    if every_ms > size_ms:
        raise _leaves_out(operator, shown(size_ms), shown(every_ms))
    _check_windows(operator, -(-size_ms // every_ms), shown(size_ms), shown(every_ms))
    return EvenGrid(size_ms=size_ms, every_ms=every_ms)


def _calendar(operator: str, size: str, every: str, zone: str, week_begins: str | None) -> CalendarGrid:
    wrong = zones.objection(zone)
    if wrong:
        raise TopologyError(f"{operator}: zone {wrong}")
    step, whole = _units(every), _units(size)
    if step is None or not (
        step in (("day", 1), ("day", 7)) or (step[0] == "month" and step[1] in (1, 2, 3, 4, 6, 12))
    ):
        raise TopologyError(
            f"{operator}: windows of a calendar begin every {_STEPS}, and not every {every!r}. Use one of these. "
            "Shorter ones need no calendar: omit zone; steps of 15 minutes fit into the days of every zone."
        )
    if whole is None or whole[0] != step[0] or whole[1] % step[1] or not whole[1]:
        raise TopologyError(
            f"{operator}: a window of {size!r} does not end where another begins, every {every!r}. Use a size that is "
            f"a multiple of it, such as '{7 * step[1]} {step[0]}s'."
        )
    is_week = step == ("day", 7)
    grid = CalendarGrid(
        unit="week" if is_week else step[0],
        count=1 if is_week else step[1],
        size=whole[1] // step[1],
        zone=zone,
        week_begins=_weekday(operator, week_begins) if is_week else None,
    )
    if week_begins is not None and not is_week:
        raise TopologyError(
            f"{operator}: week_begins={week_begins!r} does not fit windows that begin every {grid.every_text}. Omit "
            "it, or use '1 week'."
        )
    _check_windows(operator, grid.size, size, every)
    return grid


def _weekday(operator: str, text: str | None) -> Weekday:
    day = next((day for day in WEEKDAYS if day == (text or WEEKDAYS[0])), None)
    if day is None:
        near = get_close_matches(str(text).lower(), WEEKDAYS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Write one of {', '.join(WEEKDAYS)}."
        raise TopologyError(f"{operator}: week_begins={text!r} is not a day of the week. {hint}")
    return day


def _units(text: str) -> tuple[Unit, int] | None:
    """A length in days or months; None for other lengths."""
    part = _LENGTH.fullmatch(text)
    if part is None or part[2].lower() not in _UNITS:
        return None
    unit, count = _UNITS[part[2].lower()]
    return unit, int(part[1]) * count


def _check_windows(operator: str, count: int, size: str, every: str) -> None:
    if count > _MOST_WINDOWS:
        raise TopologyError(
            f"{operator}: each record would be in {count:,} windows of {size}, one every {every}, with a row of state "
            f"in each. At most {_MOST_WINDOWS:,} are allowed: use a longer every, a shorter size, or a sliding_window, "
            "which has a window at each record.",
            windows=count,
        )


def _leaves_out(operator: str, size: str, every: str) -> TopologyError:
    return TopologyError(
        f"{operator}: windows of {size} every {every} skip the records in between. Use an every of at most the size."
    )
