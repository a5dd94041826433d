"""`logs.browser_windows`, by a field of the record and by the wall clock."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from support.drawn_histories import KEYS
from support.oracle_histories import moment
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WINDOWS = shipped("logs.browser_windows")
WINDOWS_NOW = shipped("logs.browser_windows_now")
WINDOWS_V1 = first_version("logs.browser_windows")
_DAY = 86_400_000


def event(browser: str, at: int, action: str | None = "view", level: str = "INFO", partition: int = 0) -> Input:
    """A log event with its own time; it is sent a day later, with all the others of that day."""
    value = {"browser": browser, "thread": "worker-1", "level": level, "action": action, "CreatedTime": at}
    return Input(topic="logs", value=value, key=browser.encode(), partition=partition, timestamp_ms=_DAY)


def test_events_errors_and_actions_of_a_browser_are_counted_in_each_window(spark: SparkSession) -> None:
    driver = TopologyDriver(WINDOWS, spark)

    driver.pipe([event("b1", 4_000), event("b1", 7_999, "login", "ERROR"), event("b1", 8_000), event("b2", 4_000)])

    windows = {row["window_start"]: row for row in driver.rows("windows") if row["browser"] == "b1"}
    counts = {start: (row["events"], row["errors"], row["actions"]) for start, row in windows.items()}
    assert counts == {
        moment(0): (1, 0, 1),
        moment(2_000): (1, 0, 1),
        moment(4_000): (3, 1, 2),
        moment(6_000): (2, 1, 2),
        moment(8_000): (1, 0, 1),
    }


def test_a_day_of_old_logs_gives_the_windows_of_that_day(spark: SparkSession) -> None:
    driver = TopologyDriver(WINDOWS, spark, now=moment(30 * _DAY))

    driver.pipe([event("b1", 1_000), event("b1", 60_000)])

    assert [row["window_start"] for row in driver.rows("visits")] == [moment(-2_000), moment(0)]


def test_wall_clock_windows_count_old_logs_on_arrival(spark: SparkSession) -> None:
    driver = TopologyDriver(WINDOWS_NOW, spark, now=moment(30 * _DAY))

    driver.pipe([event("b1", 1_000), event("b1", 60_000)])
    driver.advance(timedelta(seconds=5))
    driver.pipe([event("b2", 0)])

    visits = [(row["browser"], row["window_start"], row["events"]) for row in driver.rows("visits")]
    assert sorted(visits) == [("b1", moment(30 * _DAY - after), 2) for after in (4_000, 2_000, 0)]
    assert driver.rows("late_records") == []


def test_version_1_counts_events_only(spark: SparkSession) -> None:
    driver = TopologyDriver(WINDOWS_V1, spark)
    driver.pipe([event("b1", 1_000, "view", "ERROR"), event("b1", 60_000)])

    row = {"browser": "b1", "window_end": moment(5_000), "window_start": moment(0), "events": 1}
    assert driver.rows("visits")[-1] == row


def test_windows_are_the_same_however_the_log_is_cut(spark: SparkSession) -> None:
    chance = random.Random(1)
    events = [
        event(chance.choice(KEYS), 40_000 + 1_500 * number - chance.choice([0, 0, 3_000, 16_000]), partition=number % 2)
        for number in range(20)
    ]

    assert_slice_invariant(WINDOWS, events, spark, by_arrival=True, cuts=2)
