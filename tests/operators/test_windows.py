"""Windows on a grid: which records they hold, when they close, and which records are late."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support import oracle_windows as oracle
from support.oracle_windows import TICK, TOPIC
from support.windowing import SUMMARY, assert_as_expected, late, led, pipe, rows, tick

from kappa import Source
from kappa.errors import TopologyError
from kappa.operators import agg, hopping_window, tumbling_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TICKS = Source(topic=TOPIC, schema=TICK, time="at", grace="1 second")
COUNT = {"trades": agg.count()}


def test_a_window_includes_its_start_and_excludes_its_end(spark: SparkSession) -> None:
    counted = partial(tumbling_window, key="symbol", size="5 seconds", aggregates=COUNT)
    driver = led(spark, {"windows": counted}, grace="1 minute", partitions=1)

    pipe(driver, tick("a", 0), tick("a", 4999), tick("a", 5000), tick(None, 1), tick("b", -1), tick("b", -5000))

    assert rows(driver, "windows", "symbol", "window_start", "window_end", "trades") == [
        ("a", 0, 5000, 2),
        ("a", 5000, 10_000, 1),
        ("b", -5000, 0, 2),
    ]


def test_a_record_is_in_each_window_that_overlaps_it(spark: SparkSession) -> None:
    counted = partial(hopping_window, key="symbol", size="5 seconds", every="2 seconds", aggregates=COUNT)
    driver = led(spark, {"windows": counted}, grace="1 minute", partitions=1)

    pipe(driver, tick("a", 4000), tick("b", -1))

    assert rows(driver, "windows", "symbol", "window_start", "trades") == [
        ("a", 0, 1),
        ("a", 2000, 1),
        ("a", 4000, 1),
        ("b", -2000, 1),
        ("b", -4000, 1),
    ]


def test_a_window_closes_once_when_the_frontier_reaches_its_end(spark: SparkSession) -> None:
    counted = partial(tumbling_window, key="symbol", size="5 seconds", aggregates=COUNT)
    driver = led(spark, {"windows": counted}, grace="1 second", partitions=1)

    pipe(driver, tick("a", 1000), tick("b", 5999))
    assert rows(driver, "windows_final", "symbol", "window_start", "trades") == []

    pipe(driver, tick("a", 4999), tick("b", 6000))
    assert rows(driver, "windows_final", "symbol", "window_start", "trades") == [("a", 0, 2)]
    assert rows(driver, "windows", "symbol", "window_start", "trades") == [("b", 5000, 2)]

    pipe(driver, tick("a", 4999), tick("b", 6001))
    assert rows(driver, "windows_final", "symbol", "window_start", "trades") == [("a", 0, 2)]
    assert late(driver) == [("tumbling_window", "its window is closed", 4)]


def test_a_window_that_opens_and_closes_in_a_slice_is_never_in_the_table(spark: SparkSession) -> None:
    counted = partial(tumbling_window, key="symbol", size="5 seconds", aggregates=COUNT)
    driver = led(spark, {"windows": counted}, grace="1 second", partitions=1)

    pipe(driver, tick("a", 1000), tick("a", 99_000))

    assert rows(driver, "windows_final", "symbol", "window_start") == [("a", 0)]
    # The removal of a row that was never there is no change either.
    assert driver._tables["windows"].num_rows == 1


def test_a_late_record_is_reported_once_and_counts_in_open_windows(spark: SparkSession) -> None:
    counted = partial(hopping_window, key="symbol", size="5 seconds", every="1 second", aggregates=COUNT)
    driver = led(spark, {"windows": counted}, grace="1 second", partitions=1)

    pipe(driver, tick("a", 10_000), tick("b", 6000), tick("b", 4000))

    assert rows(driver, "windows", "symbol", "window_start") == [
        *(("a", start) for start in (10_000,)),
        *(("a", start) for start in (6000, 7000, 8000, 9000)),
        ("b", 5000),
        ("b", 6000),
    ]
    assert late(driver) == [
        ("hopping_window", "3 of its 5 windows are closed", 1),
        ("hopping_window", "5 of its 5 windows are closed", 2),
    ]


def test_a_closed_window_is_emitted_once_and_stays_while_kept(spark: SparkSession) -> None:
    counted = partial(tumbling_window, key="symbol", size="5 seconds", aggregates=COUNT, keep="10 seconds")
    driver = led(spark, {"windows": counted}, grace="0 seconds", partitions=1)
    pipe(driver, tick("a", 1000), tick("b", 5000))
    assert rows(driver, "windows", "symbol", "is_closed") == [("a", True), ("b", False)]

    pipe(driver, tick("b", 14_999))
    assert rows(driver, "windows", "symbol", "window_start", "is_closed") == [
        ("a", 0, True),
        ("b", 10_000, False),
        ("b", 5000, True),
    ]

    pipe(driver, tick("b", 15_000))
    assert rows(driver, "windows", "symbol", "window_start", "is_closed") == [
        ("b", 10_000, True),
        ("b", 15_000, False),
        ("b", 5000, True),
    ]
    assert rows(driver, "windows_final", "symbol", "window_start") == [("a", 0), ("b", 10_000), ("b", 5000)]


def test_nothing_closes_before_every_partition_has_a_record(spark: SparkSession) -> None:
    counted = partial(tumbling_window, key="symbol", size="5 seconds", aggregates=COUNT)
    driver = led(spark, {"windows": counted}, grace="0 seconds", partitions=2)

    pipe(driver, tick("a", 1000), tick("a", 50_000))
    assert rows(driver, "windows_final", "symbol") == []

    pipe(driver, tick("b", 7000, partition=1))
    assert rows(driver, "windows_final", "symbol", "window_start") == [("a", 0)]


def test_a_final_row_has_the_place_of_its_last_record(spark: SparkSession) -> None:
    summed = partial(tumbling_window, key="symbol", size="5 seconds", aggregates=SUMMARY)
    driver = led(spark, {"windows": summed}, grace="1 second", partitions=1)

    pipe(driver, tick("a", 2000, 5, sent=1))
    pipe(driver, tick("a", 1500, 7, sent=2), tick("b", 2000, sent=3))
    pipe(driver, tick("b", 9000, sent=4))

    row = next(row for row in driver.rows_in_order("windows_final") if row["symbol"] == "a")
    assert (row["_offset"], row["close"], row["volume"]) == (1, Decimal(7), Decimal(12))


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_windows(spark, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_windows(spark, seed)


def assert_windows(spark: SparkSession, seed: int) -> None:
    keeping = partial(tumbling_window, key="symbol", size="3 seconds", aggregates=SUMMARY, keep="4 seconds")
    hopping = partial(hopping_window, key=["symbol"], size="5 seconds", every="2 seconds", aggregates=SUMMARY)
    history = oracle.history(seed)
    assert_as_expected(
        led(spark, {"kept": keeping, "hopping": hopping}, grace="1 second"),
        history,
        {
            "kept": oracle.hopping(history, grace=1000, size=3000, every=3000, keep=4000),
            "hopping": oracle.hopping(history, grace=1000, size=5000, every=2000),
        },
        label=f"seed {seed}",
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size": "0 seconds"}, "size '0 seconds' is not a time at all"),
        ({"size": "1 second"}, "skip the records in between"),
        ({"key": "window_start"}, r"key columns \['window_start'\] are not among its rows"),
        ({"key": []}, "names no column"),
        ({"aggregates": {}}, "no aggregate"),
        ({"aggregates": {"window_end": agg.count()}}, "window_end"),
        ({"aggregates": {"symbol": agg.count()}}, "symbol"),
        ({"keep": "long"}, "keep 'long' is not a length of time"),
        ({"rows": "symbol STRING, amount DOUBLE", "aggregates": {"volume": agg.sum("amount")}}, "DOUBLE"),
    ],
)
def test_invalid_arguments_are_refused_on_declaration(changed: dict[str, object], message: str) -> None:
    arguments = {"key": "symbol", "size": "5 seconds", "every": "2 seconds", "aggregates": COUNT, "table": "windows"}

    with pytest.raises(TopologyError, match=message):
        hopping_window(TICKS, **{**arguments, **changed})  # type: ignore[arg-type]


def test_state_with_other_parameters_has_another_shape() -> None:
    shapes = {
        tumbling_window(TICKS, key="symbol", size=size, aggregates=COUNT, keep=keep, table="windows").tables[0].made_by
        for size in ("5 seconds", "6 seconds")
        for keep in (None, "1 hour")
    }

    assert len(shapes) == 4
