"""Windows of the days, weeks and months of a zone: where they begin, and that they are windows like any other."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from support import oracle_windows
from support.oracle_calendars import MICRO, clock, instant, micros
from support.oracle_windows import TICK, TOPIC, Tick
from support.windowing import SUMMARY, assert_as_expected, led, ms, pipe, rows, tick

from kappa import Append, Source, Topology, zones
from kappa.errors import TopologyError
from kappa.operators import agg, at_most_every, hopping_window, tumbling_window
from kappa.testing import TopologyDriver
from kappa.topology.times.grid import CalendarGrid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def samples(zone: str, first: int, most: int, chance: random.Random) -> list[datetime]:
    """Times around changes of a zone's clock, and around midnights near them."""
    times, changes = [], clock(zone, first).changes
    for change in chance.sample(changes, min(most, len(changes))):
        midnight = clock(zone, first).begin(change.date() + timedelta(days=chance.randint(-1, 1)))
        times += [change - MICRO, change, midnight - MICRO, midnight]
        times.append(change + timedelta(seconds=chance.randint(-90_000, 90_000), microseconds=chance.randint(0, 999)))
    return times or [datetime(2026, 3, 29, tzinfo=UTC)]


def assert_at_changes(spark: SparkSession, names: Iterable[str], first: int, most: int) -> None:
    """Spark and Python begin windows where the oracle does, one job for all zones.

    Java's rules may be of another year than Python's: where both show other times at a window, it is left out.
    """
    chance = random.Random(first)
    times = [(zone, micros(one)) for zone in names for one in samples(zone, first, most, chance)]
    # Zones whose clocks never crossed midnight have one expression: their name is a column.
    odd = sorted({zone for zone, _ in times if zones.crossings(zone)})
    parts = [([one for one in times if one[0] not in odd], BERLIN, "zone")]
    parts += [([one for one in times if one[0] == zone], zone, f"'{zone}'") for zone in odd]
    frames = [located(spark, some, zone, name) for some, zone, name in parts]
    compared, others = 0, 0
    for row in reduce(lambda one, other: one.union(other), frames).collect():
        for name, declared_grid in GRIDS.items():
            grid, window, when = replace(declared_grid, zone=row.zone), row[name], instant(row.us)
            (expected,) = clock(row.zone, first).windows(when, grid)
            place = f"{name} of {row.zone} at {when}"
            assert grid.around(when) == (expected[0], grid.around(expected[1])[0]), place
            looked = (row.us, window.a, window.b, window.a - 1, window.b - 1)
            there = [instant(us).astimezone(ZoneInfo(row.zone)).utcoffset() for us in looked]
            if [offset * MICRO for offset in window.offsets] != there:
                others += 1
                continue
            compared += 1
            assert window.b - window.a <= grid.longest_ms * 1000, place
            assert (instant(window.a), instant(window.b)) == expected, place
    assert compared > 20 * others


def located(spark: SparkSession, times: list[tuple[str, int]], zone: str, name: str) -> DataFrame:
    """Start and end of each grid's windows for these times, as Spark computes them, with Java's offsets there.

    Args:
        times: zones and epoch microseconds.
        zone: the zone of the grids.
        name: SQL of it that takes its place.
    """

    def of(sql: str) -> str:
        return sql.replace(f"'{zone}'", name)

    frame = spark.createDataFrame(times, "zone STRING, us BIGINT").selectExpr("*", "TIMESTAMP_MICROS(us) AS at")
    for word, grid in GRIDS.items():
        here = replace(grid, zone=zone)
        frame = frame.selectExpr("*", f"{of(here.last('at'))} AS n")
        frame = frame.selectExpr("* EXCEPT (n)", f"{of(here.start('n'))} AS a", f"{of(here.end('n'))} AS b")
        looked = ("at", "a", "b", "a - INTERVAL 1 MICROSECOND", "b - INTERVAL 1 MICROSECOND")
        offsets = [f"UNIX_MICROS(FROM_UTC_TIMESTAMP({time}, zone)) - UNIX_MICROS({time})" for time in looked]
        column = f"STRUCT(UNIX_MICROS(a) AS a, UNIX_MICROS(b) AS b, ARRAY({', '.join(offsets)}) AS offsets) AS {word}"
        frame = frame.selectExpr("* EXCEPT (a, b)", column)
    return frame


@pytest.mark.spark
def test_windows_begin_at_local_midnight_at_each_change_of_the_clock(spark: SparkSession) -> None:
    assert_at_changes(spark, NAMED, 1965, 25)


@pytest.mark.soak
@pytest.mark.spark
def test_windows_begin_at_local_midnight_at_each_change_in_every_zone(spark: SparkSession) -> None:
    every = spark._jvm.java.time.ZoneId.getAvailableZoneIds()  # type: ignore[union-attr]
    common_zones = sorted(zone for zone in available_timezones() if not zones.objection(zone) and zone in every)
    assert_at_changes(spark, common_zones, 1850, 1000)


def calendar_ticks(seed: int, days: list[str], *, slices: int = 2) -> list[list[Tick]]:
    """Slices of random records over days of Berlin, two partitions, some of them hours late."""
    chance = random.Random(seed)
    batches: list[list[Tick]] = [[] for _ in range(slices * len(days))]
    for number, day in enumerate(days):
        begin = at(day)
        for partition in (0, 1):
            for minute in sorted(chance.sample(range(3 * 24 * 60), 30)):
                sent = begin + minute * 60_000
                late_by = chance.choice([0, 0, 0, 20, 90, 26 * 60]) * 60_000 + chance.choice([0, 1])
                one = tick(chance.choice("ab"), sent - late_by, chance.randint(1, 9), partition=partition, sent=sent)
                batches[number * slices + minute * slices // (3 * 24 * 60)].append(one)
    end = at("2027-06-01")
    return [*batches, [tick("z", end, 0, partition=partition, sent=end) for partition in (0, 1)]]


def windows_of_grid(grid: CalendarGrid) -> Any:
    def windows(when: int) -> dict[int, int]:
        return {ms(start): ms(end) for start, end in clock(grid.zone).windows(instant(when * 1000), grid)}

    return windows


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_calendar_windows_accept_refuse_close_and_keep_like_others(spark: SparkSession) -> None:
    keeping = partial(tumbling_window, key="symbol", size="1 day", zone=BERLIN, aggregates=SUMMARY, keep="36 hours")
    hops = partial(hopping_window, key="symbol", size="3 days", every="1 day", zone=BERLIN, aggregates=SUMMARY)
    paced = partial(at_most_every, key="symbol", every="1 month", zone=BERLIN)
    days, three = CalendarGrid(unit="day", zone=BERLIN), CalendarGrid(unit="day", size=3, zone=BERLIN)
    months = windows_of_grid(CalendarGrid(unit="month", zone=BERLIN))
    history = calendar_ticks(1, ["2026-03-28", "2026-10-24"])
    hour = 3_600_000
    assert_as_expected(
        led(spark, {"kept": keeping, "hops": hops, "paced": paced}, grace="1 hour"),
        history,
        {
            "kept": oracle_windows.windows_of(
                history, windows_of_grid(days), grace=hour, keep=36 * hour, is_apart=True
            ),
            "hops": oracle_windows.windows_of(history, windows_of_grid(three), grace=hour, is_apart=False),
            "paced": oracle_windows.at_boundaries(history, lambda when: next(iter(months(when).values())), grace=hour),
        },
        label="seed 1",
    )


def days_of(driver: TopologyDriver, name: str) -> list[tuple[str, float, int]]:
    """Local start, hours and count of windows."""
    days = []
    for row in driver.rows(name):
        start, hours = row["window_start"], (row["window_end"] - row["window_start"]) / timedelta(hours=1)
        days.append((f"{start.astimezone(ZoneInfo(BERLIN)):%Y-%m-%d %H:%M}", hours, row["trades"]))
    return sorted(days)


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_local_days_have_23_or_25_hours_and_are_made_of_hours(spark: SparkSession) -> None:
    hours = tumbling_window(TICKS, key="symbol", size="1 hour", aggregates=COUNT, table="hours")
    summed = {"trades": agg.sum("trades")}
    days = tumbling_window(
        hours.final,
        key="symbol",
        size="1 day",
        zone=BERLIN,
        aggregates=summed,
        table="days",
        rows="symbol STRING, trades BIGINT",
    )
    weeks = tumbling_window(
        TICKS, key="symbol", size="1 week", zone=BERLIN, week_begins="sunday", aggregates=COUNT, table="weeks"
    )
    outputs = [Append(name=f"{one.tables[0].name}_final", of=one.final) for one in (days, weeks)]
    topology = Topology(name="a.days", version="1", sources=[TICKS], operators=[hours, days, weeks], outputs=outputs)
    driver = TopologyDriver(topology, spark)
    each = [at(day) + hour * 3_600_000 for day in ("2026-03-28", "2026-10-24") for hour in range(72)]
    for batch in ([*each, at("2026-12-01")], [at("2026-12-09")]):
        driver.pipe(tick("a", when, sent=when).input for when in batch)
    assert days_of(driver, "days_final") == [
        ("2026-03-28 00:00", 24.0, 24),
        ("2026-03-29 00:00", 23.0, 23),
        ("2026-03-30 00:00", 24.0, 24),
        ("2026-03-31 00:00", 24.0, 1),
        ("2026-10-24 00:00", 24.0, 24),
        ("2026-10-25 00:00", 25.0, 25),
        ("2026-10-26 00:00", 24.0, 23),
        ("2026-12-01 00:00", 24.0, 1),
    ]
    assert days_of(driver, "weeks_final") == [
        ("2026-03-22 00:00", 168.0, 24),
        ("2026-03-29 00:00", 167.0, 48),
        ("2026-10-18 00:00", 168.0, 24),
        ("2026-10-25 00:00", 169.0, 48),
        ("2026-11-29 00:00", 168.0, 1),
    ]


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_a_day_skipped_by_a_zone_has_no_window(spark: SparkSession) -> None:
    apia = partial(hopping_window, key="symbol", size="2 days", every="1 day", zone="Pacific/Apia", aggregates=COUNT)
    driver = led(spark, {"pairs": apia}, grace="90 days", partitions=1)
    before, after = at("2011-12-29T12:00", "Pacific/Apia"), at("2011-12-31T12:00", "Pacific/Apia")
    pipe(driver, tick("a", before, sent=before), tick("b", after, sent=after))
    days = [
        at(f"{day}T00:00", "Pacific/Apia")
        for day in ("2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01", "2012-01-02")
    ]
    assert rows(driver, "pairs", "symbol", "window_start", "window_end") == sorted(
        [("a", days[0], days[2]), ("a", days[1], days[2]), ("b", days[2], days[3] + 86_400_000)], key=repr
    )


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_no_record_is_late_for_a_day_that_a_zone_skipped(spark: SparkSession) -> None:
    apia = partial(hopping_window, key="symbol", every="1 day", zone="Pacific/Apia", aggregates=COUNT)
    driver = led(spark, {"two": partial(apia, size="2 days"), "three": partial(apia, size="3 days")}, grace="1 second")
    new_year, after, skipped = (
        at(f"{day}T12:00", "Pacific/Apia") for day in ("2012-01-01", "2012-01-02", "2011-12-31")
    )
    pipe(driver, tick("a", new_year, sent=new_year), tick("b", skipped, sent=new_year))
    assert [row["reason"] for row in driver.rows("late_records")] == ["1 of its 2 windows are closed"]
    pipe(driver, tick("a", after, sent=after), tick("b", skipped, sent=after))
    assert sorted(row["reason"] for row in driver.rows("late_records")) == [
        "1 of its 1 windows are closed",
        "1 of its 2 windows are closed",
        "1 of its 2 windows are closed",
    ]


@pytest.mark.spark
def test_years_far_away_and_before_1970_have_windows(spark: SparkSession) -> None:
    times = [
        -9 * 10**18,
        -62_135_596_800_000_000,
        -1,
        0,
        253_402_300_799_999_999,
        1_700_000_000_000_000_000,
        9 * 10**18,
    ]
    frame = spark.createDataFrame([(us,) for us in times], "us BIGINT").selectExpr("us", "TIMESTAMP_MICROS(us) AS at")
    for grid in GRIDS.values():
        pointed = frame.selectExpr("*", f"{grid.last('at')} AS n")
        for row in pointed.selectExpr(
            "us", f"UNIX_MICROS({grid.start('n')}) AS a", f"UNIX_MICROS({grid.end('n')}) AS b"
        ).collect():
            assert row.a <= row.us < row.b and row.b - row.a <= grid.longest_ms * 1000
    nothing = spark.range(1).selectExpr(f"{GRIDS['month'].last('CAST(NULL AS TIMESTAMP)')} AS n").collect()
    assert nothing[0].n is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"zone": "Europe/Berln"},
            "zone 'Europe/Berln' is not a time zone of the database. Did you mean 'Europe/Berlin'",
        ),
        ({"zone": "berlin"}, "Did you mean 'Europe/Berlin'"),
        ({"zone": "europe/berlin"}, "Did you mean 'Europe/Berlin'"),
        ({"zone": ""}, "'' is not a time zone of the database. Write a place"),
        ({"zone": 1}, "zone=1, which is not a text. Write zone="),
        ({"zone": "../UTC"}, "is not a time zone"),
        ({"zone": "Europe"}, "is not a time zone"),
        ({"zone": "right/Europe/Berlin"}, "'right/Europe/Berlin' is not a time zone .* Did you mean 'Europe/Berlin'"),
        ({"zone": "posix/Europe/Berlin"}, "'posix/Europe/Berlin' is not a time zone .* Did you mean 'Europe/Berlin'"),
        ({"zone": "posixrules"}, "'posixrules' is not a time zone"),
        ({"size": "1 hour"}, "and not every '1 hour'. .* omit zone"),
        ({"size": "2 days"}, "and not every '2 days'"),
        ({"size": "5 months"}, "and not every '5 months'"),
        ({"size": "1 day 2 hours"}, "and not every '1 day 2 hours'"),
        ({"size": "0 days"}, "and not every '0 days'"),
        ({"size": "1 month", "zone": None}, "size '1 month' has no fixed length. Name the zone"),
        ({"size": "1 week", "zone": None, "week_begins": "monday"}, "without a zone. .* a Thursday. Name the zone"),
        ({"size": "1 week", "week_begins": "Mondey"}, "'Mondey' is not a day of the week. Did you mean 'monday'"),
        ({"size": "1 week", "week_begins": "x"}, "Write one of monday, tuesday"),
        ({"week_begins": "monday"}, "windows that begin every 1 day in Europe/Berlin. Omit it"),
    ],
)
def test_an_invalid_calendar_is_refused_on_declaration(changed: dict[str, Any], message: str) -> None:
    arguments = {"key": "symbol", "size": "1 day", "aggregates": COUNT, "table": "windows", "zone": BERLIN}
    with pytest.raises(TopologyError, match=message):
        tumbling_window(TICKS, **{**arguments, **changed})


@pytest.mark.parametrize(
    ("size", "every", "message"),
    [
        ("1 month", "1 week", "a window of '1 month' does not end where another begins"),
        ("10 days", "1 week", "is a multiple of it"),
        ("1 month", "3 months", "is a multiple of it"),
        ("1 day", "1 week", "is a multiple of it"),
        ("0 days", "1 day", "is a multiple of it"),
        ("6000 days", "1 day", "each record would be in 6,000 windows"),
        ("12 hours", "1 hour", "and not every '1 hour'"),
    ],
)
def test_sizes_unsuitable_for_a_calendar_step_are_refused(size: str, every: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        hopping_window(TICKS, key="symbol", size=size, every=every, zone=BERLIN, aggregates=COUNT, table="windows")


def test_state_names_its_zone_and_the_start_of_its_weeks() -> None:
    def made_by(size: str, **more: Any) -> str:
        operator = tumbling_window(TICKS, key="symbol", size=size, aggregates=COUNT, table="windows", **more)
        return operator.tables[0].made_by.removeprefix("tumbling_window(key=['symbol'], ").partition(", keep=")[0]

    assert made_by("1 day") == "size=1 day, every=1 day"
    assert made_by("1 day", zone="UTC") == "size=1 day, every=1 day, zone=UTC"
    assert made_by("7 days", zone=BERLIN) == "size=1 week, every=1 week, zone=Europe/Berlin, week_begins=monday"
    assert made_by("1 year", zone=BERLIN) == "size=12 months, every=12 months, zone=Europe/Berlin"
    hops = hopping_window(
        TICKS,
        key="symbol",
        size="2 weeks",
        every="1 week",
        week_begins="sunday",
        zone=BERLIN,
        aggregates=COUNT,
        table="w",
    )
    assert "size=2 weeks, every=1 week, zone=Europe/Berlin, week_begins=sunday" in hops.tables[0].made_by
    paced = at_most_every(TICKS, key="symbol", every="1 day", zone=BERLIN, table="due")
    assert paced.tables[0].made_by == "at_most_every(key=['symbol'], every=1 day, zone=Europe/Berlin) of (ticks)"
    assert (
        at_most_every(TICKS, key="symbol", every="1 day", table="due").tables[0].made_by
        == "at_most_every(key=['symbol'], every=1 day) of (ticks)"
    )
