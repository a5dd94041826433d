"""Windows of the days, weeks and months of a zone: where they begin, and that they are windows like any other."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, available_timezones

import pytest
from support.oracle_calendars import MICRO, clock, instant, micros
from support.oracle_windows import TICK, TOPIC
from support.windowing import ms

from kappa import Source, zones
from kappa.operators import agg
from kappa.topology.grid import CalendarGrid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICKS = Source(topic=TOPIC, schema=TICK, time="at", grace="1 second")
COUNT = {"trades": agg.count()}
BERLIN = "Europe/Berlin"
#: Zones whose clocks do what others' do not: at midnight, over midnight, by half an hour, by a day, without end.
NAMED = (
    BERLIN,
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Goose_Bay",
    "America/Havana",
    "America/Nuuk",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "America/Toronto",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
    "UTC",
)
GRIDS = {
    "day": CalendarGrid(unit="day", zone=BERLIN),
    "week": CalendarGrid(unit="week", zone=BERLIN, week_begins="saturday"),
    "month": CalendarGrid(unit="month", zone=BERLIN),
    "quarter": CalendarGrid(unit="month", count=3, zone=BERLIN),
}


def at(text: str, zone: str = BERLIN) -> int:
    """A local time as epoch milliseconds."""
    return ms(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC))


def in_zone(grid: CalendarGrid, zone: str) -> CalendarGrid:
    return CalendarGrid(unit=grid.unit, count=grid.count, size=grid.size, zone=zone, week_begins=grid.week_begins)


def samples(zone: str, first: int, most: int, chance: random.Random) -> list[datetime]:
    """Times around changes of a zone's clock, and around midnights near them."""
    found, changes = [], clock(zone, first).changes
    for change in chance.sample(changes, min(most, len(changes))):
        midnight = clock(zone, first).begin(change.date() + timedelta(days=chance.randint(-1, 1)))
        found += [change - MICRO, change, midnight - MICRO, midnight]
        found.append(change + timedelta(seconds=chance.randint(-90_000, 90_000), microseconds=chance.randint(0, 999)))
    return found or [datetime(2026, 3, 29, tzinfo=UTC)]


def assert_at_changes(spark: SparkSession, chosen: Iterable[str], first: int, most: int) -> None:
    """Spark and Python begin windows where the oracle does, one job for all zones.

    Java's rules may be of another year than Python's: where both show other times at a window, it is left out.
    """
    chance = random.Random(first)
    times = [(zone, micros(one)) for zone in chosen for one in samples(zone, first, most, chance)]
    frame = spark.createDataFrame(times, "zone STRING, us BIGINT").selectExpr("*", "TIMESTAMP_MICROS(us) AS at")
    columns = []
    for name, grid in GRIDS.items():
        one = lambda text: text.replace(f"'{BERLIN}'", "zone")  # noqa: E731
        frame = frame.selectExpr("*", f"{one(grid.last('at'))} AS {name}_n")
        frame = frame.selectExpr("*", f"{one(grid.start(f'{name}_n'))} AS a", f"{one(grid.end(f'{name}_n'))} AS b")
        walls = ", ".join(
            f"UNIX_MICROS(FROM_UTC_TIMESTAMP({time}, zone)) - UNIX_MICROS({time})"
            for time in ("at", "a", "b", "a - INTERVAL 1 MICROSECOND", "b - INTERVAL 1 MICROSECOND")
        )
        frame = frame.selectExpr(
            "* EXCEPT (a, b)", f"STRUCT(UNIX_MICROS(a) AS a, UNIX_MICROS(b) AS b, ARRAY({walls}) AS walls) AS {name}"
        )
        columns.append(name)
    compared, others = 0, 0
    for row in frame.select("zone", "us", *columns).collect():
        for name in columns:
            grid, found, when = in_zone(GRIDS[name], row.zone), row[name], instant(row.us)
            (expected,) = clock(row.zone, first).windows(when, grid)
            said = f"{name} of {row.zone} at {when}"
            assert grid.around(when) == (expected[0], grid.around(expected[1])[0]), said
            looked = (row.us, found.a, found.b, found.a - 1, found.b - 1)
            there = [instant(us).astimezone(ZoneInfo(row.zone)).utcoffset() for us in looked]
            if [wall * MICRO for wall in found.walls] != there:
                others += 1
                continue
            compared += 1
            assert (instant(found.a), instant(found.b)) == expected, said
    assert compared > 20 * others


@pytest.mark.spark
def test_windows_begin_at_local_midnight_at_each_change_of_the_clock(spark: SparkSession) -> None:
    assert_at_changes(spark, NAMED, 1965, 25)


@pytest.mark.soak
@pytest.mark.spark
def test_windows_begin_at_local_midnight_at_each_change_in_every_zone(spark: SparkSession) -> None:
    every = spark.range(1)._jvm.java.time.ZoneId.getAvailableZoneIds()  # type: ignore[union-attr]
    known = sorted(zone for zone in available_timezones() if not zones.objection(zone) and zone in every)
    assert_at_changes(spark, known, 1850, 1000)
