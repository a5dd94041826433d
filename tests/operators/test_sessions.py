"""Sessions: which records belong together, when sessions merge and close, and which records are late."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from support import oracle_windows as oracle
from support.oracle_windows import TICK, TOPIC
from support.windowing import SUMMARY, assert_as_expected, late, led, pipe, rows, tick

from kappa import Source
from kappa.errors import TopologyError
from kappa.operators import agg, session_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COUNTED = partial(session_window, key="symbol", gap="2 seconds", aggregates={"trades": agg.count()})
COLUMNS = ("symbol", "session_start", "session_end", "trades")


def test_records_up_to_the_gap_apart_are_one_session(spark: SparkSession) -> None:
    driver = led(spark, {"sessions": COUNTED}, grace="1 minute", partitions=1)

    pipe(driver, tick("a", 3999), tick("a", 0), tick("a", 2000), tick("b", 0), tick("b", 2001), tick(None, 0))

    assert rows(driver, "sessions", *COLUMNS) == [("a", 0, 3999, 3), ("b", 0, 0, 1), ("b", 2001, 2001, 1)]


def test_a_record_between_two_sessions_merges_them(spark: SparkSession) -> None:
    driver = led(spark, {"sessions": COUNTED}, grace="1 minute", partitions=1)
    pipe(driver, tick("a", 0), tick("a", 4000), tick("a", 9000))
    assert rows(driver, "sessions", *COLUMNS) == [("a", 0, 0, 1), ("a", 4000, 4000, 1), ("a", 9000, 9000, 1)]

    pipe(driver, tick("a", 2000))
    assert rows(driver, "sessions", *COLUMNS) == [("a", 0, 4000, 3), ("a", 9000, 9000, 1)]

    pipe(driver, tick("a", -1000), tick("a", 8000))
    assert rows(driver, "sessions", *COLUMNS) == [("a", -1000, 4000, 4), ("a", 8000, 9000, 2)]


def test_a_session_closes_when_the_frontier_is_past_its_end_and_the_gap(spark: SparkSession) -> None:
    driver = led(spark, {"sessions": COUNTED}, grace="1 second", partitions=1)
    pipe(driver, tick("a", 0), tick("a", 1000), tick("b", 4000))
    assert rows(driver, "sessions_final", *COLUMNS) == []

    pipe(driver, tick("a", 3000))  # the frontier is at 3000: it belongs to the session, and closes with it later
    pipe(driver, tick("b", 6000))
    assert rows(driver, "sessions_final", *COLUMNS) == []

    pipe(driver, tick("b", 6001))
    assert rows(driver, "sessions_final", *COLUMNS) == [("a", 0, 3000, 3)]
    assert rows(driver, "sessions", *COLUMNS) == [("b", 4000, 6001, 3)]


def test_a_record_before_the_frontier_is_late_even_in_an_open_session(spark: SparkSession) -> None:
    driver = led(spark, {"sessions": COUNTED}, grace="1 second", partitions=1)

    pipe(driver, tick("a", 5000), tick("a", 4000), tick("a", 3999))

    assert rows(driver, "sessions", *COLUMNS) == [("a", 4000, 5000, 2)]
    assert late(driver) == [("session_window", "its time is before the frontier", 2)]


def test_only_changed_sessions_are_written(spark: SparkSession) -> None:
    driver = led(spark, {"sessions": COUNTED}, grace="1 minute", partitions=1)
    pipe(driver, tick("a", 0), tick("a", 10_000), tick("b", 0))
    before = driver._tables["sessions"].num_rows
    assert before == 3

    written = []
    step = driver.topology.step

    def watched(slice):  # type: ignore[no-untyped-def]
        effects = step(slice)
        written.extend((row["symbol"], row["trades"]) for row in slice.calls.changes["sessions"].collect())
        return effects

    object.__setattr__(driver.topology, "step", watched)
    pipe(driver, tick("a", 10_500))

    assert written == [("a", 2)]


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_sessions(spark, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_sessions(spark, seed)


def assert_sessions(spark: SparkSession, seed: int) -> None:
    summed = partial(session_window, key=["symbol"], gap="1500 milliseconds", aggregates=SUMMARY)
    history = oracle.history(seed)
    assert_as_expected(
        led(spark, {"sessions": summed}, grace="2 seconds"),
        history,
        {"sessions": oracle.sessions(history, grace=2000, gap=1500)},
        label=f"seed {seed}",
    )


@pytest.mark.parametrize(("gap", "key"), [("0 seconds", "symbol"), ("soon", "symbol"), ("1 second", "session_end")])
def test_invalid_arguments_are_refused_on_declaration(gap: str, key: str) -> None:
    ticks = Source(topic=TOPIC, schema=f"{TICK}, session_end TIMESTAMP", time="at", grace="1 second")

    with pytest.raises(TopologyError):
        session_window(ticks, key=key, gap=gap, aggregates={"trades": agg.count()}, table="sessions")
