"""`inventory.matched` on orders and payments written by hand and on random ones."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MATCHED = shipped("inventory.matched")
MATCHED_V1 = first_version("inventory.matched")
_MINUTE = 60_000


def order(number: str, at: float, kind: str = "PLACED", partition: int = 0) -> Input:
    """An event of an order at that minute."""
    time = round(at * _MINUTE)
    value = {"orderID": number, "type": kind, "customerID": "c1", "sku": "SKU1", "quantity": 2, "CreatedTime": time}
    key = number.encode()
    return Input(topic="order-events", value=value, key=key, partition=partition, timestamp_ms=time + 3_600_000)


def payment(number: str, at: float, amount: float = 9.5, of: str = "p", partition: int = 0) -> Input:
    """A payment of an order at that minute."""
    time = round(at * _MINUTE)
    value = {"paymentID": f"{of}-{number}", "orderID": number, "amount": amount, "method": "CARD", "CreatedTime": time}
    key = number.encode()
    return Input(topic="payments", value=value, key=key, partition=partition, timestamp_ms=time + 3_600_000)


def matched(driver: TopologyDriver) -> list[tuple[str, str | None]]:
    return sorted((row["orderID"], row["paymentID"]) for row in driver.rows("matched"))


def test_an_order_and_a_payment_ten_minutes_apart_are_matched_whichever_comes_first(spark: SparkSession) -> None:
    driver = TopologyDriver(MATCHED, spark)
    driver.pipe([order("o1", 20), order("o2", 20), order("o3", 20), payment("o4", 20)])
    assert matched(driver) == []

    driver.pipe([order("o4", 30), payment("o1", 30), payment("o2", 30.001), payment("o3", 29.999)])
    assert matched(driver) == [("o1", "p-o1"), ("o3", "p-o3"), ("o4", "p-o4")]
    assert driver.rows("matched")[0] == {
        **{"orderID": "o1", "customerID": "c1", "sku": "SKU1", "quantity": 2, "CreatedTime": 20 * _MINUTE},
        **{"paymentID": "p-o1", "amount": Decimal("9.50")},
    }


def test_an_order_is_reported_unpaid_once_when_no_payment_can_come(spark: SparkSession) -> None:
    driver = TopologyDriver(MATCHED, spark)
    driver.pipe([order("o1", 20), order("o2", 20), order("o3", 20, "CANCELLED"), payment("o1", 21), payment("?", 31)])
    assert matched(driver) == [("o1", "p-o1")]

    driver.pipe([payment("?", 31.001)])
    assert matched(driver) == [("o1", "p-o1")], "an order of an earlier minute may still come"

    driver.pipe([order("o4", 31.001)])
    assert matched(driver) == [("o1", "p-o1"), ("o2", None)]

    driver.pipe([payment("o2", 30, of="late"), order("o1", 60)])
    assert matched(driver) == [("o1", "p-o1"), ("o2", None)]
    assert [row["reason"] for row in driver.rows("late_records")] == ["the right row is before its frontier"]


def test_an_order_is_reported_unpaid_in_time_without_any_payments(spark: SparkSession) -> None:
    driver = TopologyDriver(MATCHED, spark, partitions={"order-events": 1, "payments": 1})
    driver.pipe([order("o1", 20), payment("?", 19)])
    driver.pipe([order("o2", 31)])
    driver.pipe([order("o3", 33)])

    driver.pipe([order("o4", 60)])
    driver.pipe([order("o5", 61)])

    assert matched(driver) == [("o1", None), ("o2", None), ("o3", None)]


def test_no_state_is_older_than_the_window_behind_the_other_side(spark: SparkSession) -> None:
    driver = TopologyDriver(MATCHED, spark)
    for minute in range(0, 60, 15):
        driver.pipe([order(f"o{minute + at}", minute + at) for at in range(0, 15, 5)])
        driver.pipe([payment(f"o{minute + at}", minute + at + 1) for at in range(0, 15, 5)])
        # Payments have come to 11 min past the slice's first order, orders to 10; less the grace, less the window.
        assert min(row["CreatedTime"] for row in driver.rows("orders")) >= minute * _MINUTE
        assert min(row["_event_time"].timestamp() for row in driver.rows("payments")) >= (minute - 1) * 60

    assert len(driver.rows("orders")) == len(driver.rows("payments")) == 3


def test_version_1_leaves_out_orders_that_were_not_paid(spark: SparkSession) -> None:
    driver = TopologyDriver(MATCHED_V1, spark)
    driver.pipe([order("o1", 20), order("o2", 20), payment("o1", 21), payment("?", 99), order("?", 99)])

    assert sorted(matched(driver)) == [("?", "p-?"), ("o1", "p-o1")]


def test_matches_are_the_same_however_the_logs_are_cut(spark: SparkSession) -> None:
    chance = random.Random(1)
    inputs = []
    for number in range(10):
        at, other = (60 + 4 * number - chance.choice([0, 0, 0.9, 15]) for _ in range(2))
        inputs.append(order(chance.choice(["o1", "Größe", "o3"]), at, partition=number % 2))
        inputs.append(payment(chance.choice(["o1", "Größe", "o3"]), other, of=f"p{number}", partition=number % 2))

    assert_slice_invariant(MATCHED, inputs, spark, by_arrival=True, cuts=2)
