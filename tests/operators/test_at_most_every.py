"""A key's newest row at the boundaries of a grid."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from support import oracle_windows as oracle
from support.oracle_windows import TICK, TOPIC
from support.windowing import assert_as_expected, late, led, pipe, rows, tick

from kappa import Source
from kappa.errors import TopologyError
from kappa.operators import at_most_every

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PACED = partial(at_most_every, key="symbol", every="10 seconds")
COLUMNS = ("symbol", "boundary", "at")


def test_a_key_is_emitted_with_its_newest_row_at_a_final_boundary(spark: SparkSession) -> None:
    driver = led(spark, {"paced": PACED}, grace="1 second", partitions=1)

    pipe(driver, tick("a", 1000), tick("a", 9000), tick("a", 8500), tick("b", 10_000), tick(None, 1))
    assert rows(driver, "paced_final", *COLUMNS) == []

    pipe(driver, tick("b", 10_999))
    assert rows(driver, "paced_final", *COLUMNS) == []

    pipe(driver, tick("b", 11_000))
    assert rows(driver, "paced_final", *COLUMNS) == [("a", 10_000, 9000)]

    pipe(driver, tick("b", 40_000))  # a key without new rows is not emitted again
    assert rows(driver, "paced_final", *COLUMNS) == [("a", 10_000, 9000), ("b", 20_000, 11_000)]


def test_a_row_before_the_frontier_counts_at_the_frontier_and_is_not_late(spark: SparkSession) -> None:
    driver = led(spark, {"paced": PACED}, grace="1 second", partitions=1)

    pipe(driver, tick("b", 25_000), tick("a", 3000))
    assert rows(driver, "paced", *COLUMNS) == [("a", 30_000, 3000), ("b", 30_000, 25_000)]

    pipe(driver, tick("b", 31_000))
    assert rows(driver, "paced_final", *COLUMNS) == [("a", 30_000, 3000), ("b", 30_000, 25_000)]
    assert late(driver) == []


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_paced(spark, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_random_histories_match_plain_python(spark: SparkSession, seed: int) -> None:
    assert_paced(spark, seed)


def assert_paced(spark: SparkSession, seed: int) -> None:
    paced = partial(at_most_every, key=["symbol"], every="3 seconds")
    history = oracle.history(seed)
    assert_as_expected(
        led(spark, {"paced": paced}, grace="1 second"),
        history,
        {"paced": oracle.at_most_every(history, grace=1000, every=3000)},
        label=f"seed {seed}",
    )


@pytest.mark.parametrize(
    ("schema", "every"),
    [(TICK, "0 seconds"), (f"{TICK}, boundary INT", "1 second"), (f"{TICK}, m MAP<STRING, INT>", "1 day")],
)
def test_invalid_arguments_are_refused_on_declaration(schema: str, every: str) -> None:
    ticks = Source(topic=TOPIC, schema=schema, time="at", grace="1 second")

    with pytest.raises(TopologyError):
        at_most_every(ticks, key="symbol", every=every, table="paced")
