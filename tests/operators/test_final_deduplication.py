"""Deduplication that waits: the first record of a run, in any read order of its partitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support import oracle_windows as oracle
from support.oracle_windows import TICK, TOPIC
from support.windowing import assert_as_expected, late, pipe, rows, tick

from kappa.errors import TopologyError
from kappa.operators import deduplicate
from kappa.testing import Input, TopologyDriver
from kappa.topology import Append, Source, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("symbol", "amount", "at")
TICKS = Source(topic=TOPIC, schema=TICK, time="at", grace="1 second")
FIRST = partial(deduplicate, key="symbol", within="2 seconds", emit="final", table="seen")


def led(spark: SparkSession, *, grace: str, partitions: int = 2) -> TopologyDriver:
    ticks = Source(topic=TOPIC, schema=TICK, time="at", grace=grace)
    first = FIRST(ticks)
    topology = Topology(
        name="stocks.distinct",
        version="1",
        sources=[ticks],
        operators=[first],
        outputs=[Append(name="seen_final", of=first.rows)],
    )
    return TopologyDriver(topology, spark, partitions={TOPIC: partitions})


@pytest.mark.spark
def test_the_first_record_of_a_run_is_emitted_once_the_run_is_over(spark: SparkSession) -> None:
    driver = led(spark, grace="1 second", partitions=1)
    pipe(driver, tick("a", 0, 1), tick("a", 2000, 2), tick("a", 1500, 3), tick(None, 0), tick("b", 5000, 4))
    assert rows(driver, "seen_final", *COLUMNS) == []
    assert rows(driver, "seen", "symbol", "session_end") == [("a", 2000), ("b", 5000)]

    pipe(driver, tick("b", 5001, 5))
    assert [(a, int(b), c) for a, b, c in rows(driver, "seen_final", *COLUMNS)] == [("a", 1, 0)]
    assert rows(driver, "seen", "symbol", "session_end") == [("b", 5001)]

    pipe(driver, tick("a", 4000, 6))
    assert late(driver) == [("deduplicate", "its time lies before the frontier", 6)]


@pytest.mark.spark
def test_a_record_is_emitted_as_it_is(spark: SparkSession) -> None:
    source = Source(topic=TOPIC, schema="symbol STRING, x DOUBLE, at BIGINT", time="at", grace="1 second")
    first = FIRST(source)
    outputs = [Append(name="seen_final", of=first.rows)]
    driver = TopologyDriver(
        Topology(name="stocks.distinct", version="1", sources=[source], operators=[first], outputs=outputs), spark
    )
    for at, x in ((0, -0.0), (1000, 0.0), (9000, 1.0)):
        driver.pipe([Input(topic=TOPIC, value={"symbol": "a", "x": x, "at": at}, timestamp_ms=at)])
    assert [repr(row["x"]) for row in driver.rows_in_order("seen_final")] == ["-0.0"]


@pytest.mark.spark
def test_a_key_in_two_partitions_has_one_first_record_in_any_read_order(spark: SparkSession) -> None:
    here, there = tick("a", 500, 1, partition=0, sent=2), tick("a", 0, 2, partition=1, sent=1)
    ends = [tick("z", 9000, partition=partition, sent=9) for partition in (0, 1)]
    outcomes = []
    for order in ((here, there), (there, here)):
        driver = led(spark, grace="1 second")
        for one in order:
            pipe(driver, one)
        pipe(driver, *ends)
        outcomes.append([(row["_partition"], row["at"]) for row in driver.rows_in_order("seen_final")])
    assert outcomes == [[(1, 0)], [(1, 0)]]


@pytest.mark.spark
@pytest.mark.parametrize("seed", [0])
def test_a_random_history_matches_plain_python(spark: SparkSession, seed: int) -> None:
    assert_distinct(spark, seed)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 150))
def test_more_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_distinct(spark, seed)


def assert_distinct(spark: SparkSession, seed: int) -> None:
    history = oracle.history(seed)
    expected = oracle.distinct(history, grace=2000, within=2000)
    expected.late = [("its time lies before the frontier", *place) for _, *place in expected.late]  # type: ignore[misc]
    assert expected.late and len(expected.final) > 3
    assert_as_expected(led(spark, grace="2 seconds"), history, {"seen": expected}, label=f"seed {seed}")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"within": None}, "does not fit"),
        ({"within": "0 seconds"}, "deduplicate: within '0 seconds' is not a time at all"),
        ({"emit": "last"}, "does not fit"),
        ({"rows": f"{TICK}, tags MAP<STRING, STRING>"}, "contain a MAP"),
        ({"key": "price"}, "not among its rows"),
    ],
)
def test_invalid_arguments_are_refused_on_declaration(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        FIRST(TICKS, **wrong)


def test_parameters_are_part_of_the_tables_shape() -> None:
    (table,) = FIRST(TICKS).tables
    assert table.expires
    assert table.made_by.startswith("deduplicate(final, key=['symbol'], gap=2 seconds")
