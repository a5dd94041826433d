"""A longer grace in the middle of a stream: what was closed under the old one is not opened and emitted again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from support.oracle_windows import EPOCH

from kappa import Append, Source, Topology
from kappa.operators import (
    agg,
    at_most_every,
    deduplicate,
    hopping_window,
    interval_join,
    session_window,
    sliding_window,
    tumbling_window,
)
from kappa.testing import Input, TopologyDriver
from kappa.topology.operator import Operator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROW = "id STRING NOT NULL, at BIGINT NOT NULL"
NAMES = ("tumbling", "hopping", "sliding", "sessions", "paced", "first", "runs", "pairs")


def topology(grace: str, names: Sequence[str] = NAMES) -> Topology:
    """Operators that close by event time, over sales and payments with that grace."""
    sales, payments = (Source(topic=topic, schema=ROW, time="at", grace=grace) for topic in ("sales", "payments"))
    counts: dict[str, Any] = {"key": "id", "aggregates": {"n": agg.count()}}
    within: dict[str, Any] = {"key": "id", "within": "20 seconds"}
    near = {"before": "5 seconds", "after": "5 seconds"}
    operators: dict[str, Operator[Any]] = {
        "tumbling": tumbling_window(sales, size="10 seconds", table="tumbling", **counts),
        "hopping": hopping_window(sales, size="20 seconds", every="10 seconds", table="hopping", **counts),
        "sliding": sliding_window(sales, size="10 seconds", table="sliding", **counts),
        "sessions": session_window(sales, gap="5 seconds", table="sessions", **counts),
        "paced": at_most_every(sales, key="id", every="10 seconds", table="paced"),
        "first": deduplicate(sales, table="first", **within),
        "runs": deduplicate(sales, emit="final", table="runs", **within),
        "pairs": interval_join(sales, payments, key="id", how="left", tables=("unpaid", "paid"), **near),
    }
    return Topology(
        name="shop.sales",
        version="1",
        sources=[sales, payments],
        operators=[operators[name] for name in names],
        outputs=[Append(name=f"{name}_final", of=operators[name].emits) for name in names],
    )


def at(second: int, id: str = "a", topic: str = "sales", partition: int = 0) -> Input:
    value = {"id": id, "at": second * 1000}
    return Input(topic=topic, value=value, partition=partition, timestamp_ms=second * 1000)


def driver_of(spark: SparkSession, names: Sequence[str] = NAMES, partitions: int = 1) -> TopologyDriver:
    """After a slice that closed the first minute under a grace of ten seconds."""
    driver = TopologyDriver(topology("10 seconds", names), spark, partitions={"sales": partitions, "payments": 1})
    driver.pipe([at(5), at(12), at(41, "b"), *(at(75, "z", partition=p) for p in range(partitions))])
    driver.pipe([at(74, "z", "payments")])
    return driver


def identities(driver: TopologyDriver, name: str) -> Counter[tuple[Any, ...]]:
    """Final rows by the identity under which each may exist once."""
    names = {
        "sessions": ("id", "session_start"),
        "paced": ("id", "boundary"),
        "first": ("id", "at"),
        "runs": ("id", "at"),
        "pairs": ("id", "at"),
    }
    return Counter(
        tuple(row[c] for c in names.get(name, ("id", "window_start"))) for row in driver.rows(f"{name}_final")
    )


@pytest.mark.parametrize("grace", ["1 hour", "1 second"])
def test_nothing_is_emitted_twice_after_another_grace_in_any_operator(spark: SparkSession, grace: str) -> None:
    driver = driver_of(spark)
    closed = {name: identities(driver, name) for name in NAMES}
    assert all(closed.values()), "each operator has closed something"

    driver.topology = topology(grace)
    driver.pipe([at(6), at(30), at(13, "b"), at(6, topic="payments"), at(13, "b", "payments")])
    driver.pipe([at(8000, "z"), at(8000, "z", "payments")])

    for name, before in closed.items():
        after = identities(driver, name)
        assert max(after.values()) == 1, f"{name}: {after}"
        assert not before - after
    assert {tuple(row[c] for c in ("id", "n")) for row in driver.rows("tumbling_final")} >= {("a", 1), ("b", 1)}


def test_a_longer_grace_applies_from_the_old_frontier_on(spark: SparkSession) -> None:
    driver = driver_of(spark, ["sessions"])
    driver.topology = topology("1 hour", ["sessions"])

    driver.pipe([at(64, "late"), at(65, "taken"), at(4000, "z"), at(500, "taken")])
    driver.pipe([at(399, "late"), at(401, "taken"), at(8000, "z")])

    late = {row["record"] for row in driver.rows("late_records") if row["operator"] == "session_window"}
    assert all('"late"' in record for record in late) and len(late) == 2
    sessions = [row for row in driver.rows("sessions_final") if row["id"] == "taken"]
    assert sorted(round((row["session_start"] - EPOCH).total_seconds()) for row in sessions) == [65, 401, 500]


def test_a_grace_made_longer_twice_keeps_the_first_frontier(spark: SparkSession) -> None:
    driver = driver_of(spark, ["tumbling"])
    driver.topology = topology("1 minute", ["tumbling"])
    driver.pipe([])
    driver.topology = topology("1 hour", ["tumbling"])

    driver.pipe([at(6), at(30)])
    driver.pipe([at(8000, "z"), at(8000, "z", "payments")])

    assert max(identities(driver, "tumbling").values()) == 1


def test_each_partition_has_a_floor_of_its_own(spark: SparkSession) -> None:
    driver = driver_of(spark, ["sessions"], partitions=2)
    driver.pipe([at(300, "z", partition=1)])
    driver.topology = topology("1 hour", ["sessions"])

    driver.pipe([at(100, "a", partition=0), at(100, "b", partition=1)])

    late = [row["record"] for row in driver.rows("late_records") if row["operator"] == "session_window"]
    assert len(late) == 1 and '"b"' in late[0]
