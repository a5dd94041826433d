"""Operators over partitions that fall silent: releases are part of the log, so cuts change nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kappa import Append, Source, Topology
from kappa.errors import TopologyError
from kappa.operators import agg, interval_join, tumbling_window
from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def topology(idle_after: str | None) -> Topology:
    """Counts of moves by window, and moves joined with payments nearby; payments are rare."""
    moves = Source(
        topic="moves", schema="id STRING NOT NULL, at BIGINT", time="at", grace="2 seconds", idle_after=idle_after
    )
    payments = Source(
        topic="payments",
        schema="id STRING NOT NULL, paid BIGINT",
        time="paid",
        grace="0 seconds",
        idle_after=idle_after and "0 seconds",
    )
    sums = tumbling_window(moves, key="id", size="10 seconds", aggregates={"moves": agg.count()}, table="open")
    near = {"before": "5 seconds", "after": "5 seconds"}
    pairs = interval_join(moves, payments, key="id", how="left", tables=("unpaid", "unmoved"), **near)
    return Topology(
        name="test.idle",
        version="1",
        sources=[moves, payments],
        operators=[sums, pairs],
        outputs=[Append(name="counts", of=sums.final), Append(name="pairs", of=pairs.rows)],
    )


def move(second: int, partition: int = 0) -> Input:
    return Input(topic="moves", value={"id": "a", "at": second * 1000}, partition=partition, timestamp_ms=second * 1000)


@pytest.mark.spark
def test_a_driver_releases_a_partition_that_falls_silent(spark: SparkSession) -> None:
    waiting, released = (
        TopologyDriver(topology(after), spark, partitions={"moves": 2, "payments": 1}) for after in (None, "20 seconds")
    )
    for driver in (waiting, released):
        driver.pipe([move(1), move(2, partition=1)])
        for second in (15, 31, 40):
            driver.pipe([move(second)])
    assert waiting.rows("counts") == [] and waiting.rows("pairs") == []
    assert [row["window_start"].second for row in released.rows("counts")] == [0, 10]
    assert len(released.rows("pairs")) == 3, "no payment will come for those before 25 any more"
    released.pipe([move(16, partition=1)])
    late = [(row["operator"], row["reason"]) for row in released.rows("late_records")]
    assert late == [
        ("tumbling_window", "released: its window is closed"),
        ("interval_join", "released: the left row is before its frontier"),
    ]


@pytest.mark.spark
def test_a_release_does_not_change_the_reason_of_a_late_record(spark: SparkSession) -> None:
    driver = TopologyDriver(topology("20 seconds"), spark, partitions={"moves": 2, "payments": 1})
    for part in ([move(1), move(2, partition=1)], [move(15)], [move(31)], [move(40)], [move(70, partition=1)]):
        driver.pipe(part)

    driver.pipe([move(16, partition=1)])

    assert [row["reason"] for row in driver.rows("late_records")] == [
        "its window is closed",
        "the left row is before its frontier",
    ]


@pytest.mark.spark
@pytest.mark.parametrize("seed", [20261123, *(pytest.param(n, marks=pytest.mark.soak) for n in range(10))])
def test_no_cut_changes_what_is_released_and_what_is_late(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    inputs = []
    for burst in range(3):
        partition, begin = chance.randrange(2), burst * 30
        inputs += [move(max(0, begin + n * 3 - chance.choice([0, 0, 4, 25])), partition) for n in range(4)]
        if chance.random() < 0.7:
            paid = begin + chance.randrange(8)
            inputs.append(Input(topic="payments", value={"id": "a", "paid": paid * 1000}, timestamp_ms=paid * 1000))
    assert_slice_invariant(topology("8 seconds"), inputs, spark, cuts=1, seed=seed, by_arrival=True)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"idle_after": "1 minute"}, "no grace"),
        ({"idle_after": "1 minute", "grace": "0 seconds", "time": "wall clock"}, "the wall clock"),
        ({"idle_after": "1 minute", "grace": "0 seconds", "of": "shop.orders"}, "of='shop.orders'"),
        ({"idle_after": "a while", "grace": "0 seconds"}, "is not a length of time"),
    ],
)
def test_a_source_without_idle_partitions_is_refused(source: dict[str, str], why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        Source(topic="moves", schema="id STRING", **source)  # type: ignore[arg-type]  # each is text
