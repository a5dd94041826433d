"""Sliding windows: their bounds, their records, and when they are emitted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from support import oracle_windows as oracle
from support.windowing import SUMMARY, assert_as_expected, late, led, pipe, rows, tick

from kappa.operators import agg, sliding_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLLECTED = partial(sliding_window, key="symbol", size="5 seconds", aggregates={"amounts": agg.collect("amount")})
COLUMNS = ("symbol", "window_start", "window_end", "amounts")


def test_windows_have_the_same_bounds_as_in_kafka_streams(spark: SparkSession) -> None:
    """The example in the documentation of ``org.apache.kafka.streams.kstream.SlidingWindows``."""
    driver = led(spark, {"windows": COLLECTED}, grace="0 seconds", partitions=1)

    pipe(driver, tick("A", 8000, 1), tick("A", 9200, 2), tick("A", 12_400, 3))
    pipe(driver, tick("z", 14_202))

    assert [(start, end, [int(amount) for amount in amounts]) for _, start, end, amounts in _of(driver, "A")] == [
        (3000, 8000, [1]),
        (4200, 9200, [1, 2]),
        (7400, 12_400, [1, 2, 3]),
        (8001, 13_001, [2, 3]),
        (9201, 14_201, [3]),
    ]


def test_a_window_is_emitted_once_when_the_frontier_is_past_its_end(spark: SparkSession) -> None:
    driver = led(spark, {"windows": COLLECTED}, grace="1 second", partitions=1)
    pipe(driver, tick("a", 1000), tick("b", 2000))
    assert _of(driver, "a") == []

    pipe(driver, tick("a", 1000), tick("b", 2001))
    assert [row[:3] for row in _of(driver, "a")] == [("a", -4000, 1000)]

    pipe(driver, tick("b", 7001))  # the window after the records ends at 6001; it has none
    assert rows(driver, "windows", "symbol", "event_time") == [("a", 1000), ("b", 2000), ("b", 2001), ("b", 7001)]

    pipe(driver, tick("b", 7003))
    assert rows(driver, "windows", "symbol", "event_time") == [("b", 2000), ("b", 2001), ("b", 7001), ("b", 7003)]
    assert [row[:3] for row in _of(driver, "a")] == [("a", -4000, 1000)]


def test_a_record_before_the_frontier_is_in_no_window(spark: SparkSession) -> None:
    driver = led(spark, {"windows": COLLECTED}, grace="1 second", partitions=1)

    pipe(driver, tick("a", 5000), tick("a", 4000), tick("a", 3999), tick(None, 5000), tick("b", 6001))

    assert [row[:3] for row in _of(driver, "a")] == [("a", -1000, 4000), ("a", 0, 5000)]
    assert late(driver) == [("sliding_window", "its time is before the frontier", 2)]


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_sliding(spark, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_sliding(spark, seed)


def assert_sliding(spark: SparkSession, seed: int) -> None:
    summed = partial(sliding_window, key=["symbol"], size="1500 milliseconds", aggregates=SUMMARY)
    history = oracle.history(seed)
    assert_as_expected(
        led(spark, {"windows": summed}, grace="2 seconds"),
        history,
        {"windows": oracle.sliding(history, grace=2000, size=1500)},
        label=f"seed {seed}",
    )


def _of(driver: object, symbol: str) -> list[tuple[object, ...]]:
    windows = rows(driver, "windows_final", *COLUMNS)  # type: ignore[arg-type]
    return sorted((row for row in windows if row[0] == symbol), key=lambda row: row[1])
