"""`inventory.orders` on events written by hand and on random ones."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from support.oracle_histories import moment
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ORDERS = shipped("inventory.orders")
ORDERS_V1 = first_version("inventory.orders")
_MINUTE = 60_000


def placed(order: str, at: float, sku: str = "SKU1", quantity: int = 2, partition: int = 0) -> Input:
    return event(order, "PLACED", at, partition, sku=sku, quantity=quantity, customerID="c1")


def event(order: str, kind: str, at: float, partition: int = 0, **more: Any) -> Input:
    """An event at that minute, sent in the order in which it is given."""
    value = {"orderID": order, "type": kind, "CreatedTime": round(at * _MINUTE), **more}
    sent = round((at + 60) * _MINUTE)
    return Input(topic="order-events", value=value, key=order.encode(), partition=partition, timestamp_ms=sent)


def test_an_order_stands_when_half_an_hour_has_passed_without_a_cancellation(spark: SparkSession) -> None:
    driver = TopologyDriver(ORDERS, spark)
    driver.pipe([placed("o1", 0), placed("o2", 1), event("o2", "CANCELLED", 20), placed("o3", 35)])
    assert driver.rows("orders") == []

    driver.pipe([event("o9", "PING", 35.001)])
    order = {"orderID": "o1", "customerID": "c1", "sku": "SKU1", "quantity": 2, "CreatedTime": 0}
    assert driver.rows("orders") == [{**order, "DecidedTime": 30 * _MINUTE}]
    assert [row["orderID"] for row in driver.rows("pending")] == ["o2", "o3", "o9"]

    driver.pipe([event("o9", "PING", 200)])
    assert [row["orderID"] for row in driver.rows("orders")] == ["o1", "o3"]
    demand = [{name: row[name] for name in ("sku", "orders", "quantity")} for row in driver.rows("demand")]
    assert demand == [{"sku": "SKU1", "orders": 2, "quantity": 4}]
    assert [(key, json.loads(value or b"")["orderID"]) for key, value in driver.sent("orders")] == [
        (b"o1", "o1"),
        (b"o3", "o3"),
    ]


def test_a_cancellation_undoes_its_order_even_if_it_comes_first(spark: SparkSession) -> None:
    events = [
        placed("o1", 1),
        event("o1", "CANCELLED", 4),
        placed("o2", 2),
        placed("o2", 3),
        event("o3", "CANCELLED", 2.5),
    ]
    results = []
    for order in (events, events[::-1]):
        driver = TopologyDriver(ORDERS, spark)
        driver.pipe(order[:2])
        driver.pipe(order[2:])
        open_orders = driver.rows("pending")
        driver.pipe([event("o9", "PING", 200)])
        results.append((open_orders, driver.rows("orders"), driver.rows("demand")))

    assert results[0] == results[1]
    assert [row["orderID"] for row in results[0][1]] == ["o2"]
    assert results[0][1][0]["CreatedTime"] == 2 * _MINUTE


def test_a_cancellation_after_the_order_stands_is_too_late(spark: SparkSession) -> None:
    driver = TopologyDriver(ORDERS, spark)
    driver.pipe([placed("o1", 0), event("o9", "PING", 36)])
    driver.pipe([event("o1", "CANCELLED", 31), event("o1", "CANCELLED", 30)])
    driver.pipe([event("o9", "PING", 200)])

    assert [row["orderID"] for row in driver.rows("orders")] == ["o1"]
    late = [(row["event_time"], json.loads(row["record"])["type"]) for row in driver.rows("late_records")]
    assert late == [(moment(30 * _MINUTE), "CANCELLED")]


def test_version_1_counts_cancelled_orders_at_once(spark: SparkSession) -> None:
    driver = TopologyDriver(ORDERS_V1, spark)
    driver.pipe([placed("o1", 0), event("o1", "CANCELLED", 1), placed("o2", 2)])

    assert [row["orderID"] for row in driver.rows("orders")] == ["o1", "o2"]
    assert driver.rows("demand") == [{"sku": "SKU1", "orders": 2, "quantity": 4}]


def test_orders_are_the_same_however_the_log_is_cut(spark: SparkSession) -> None:
    chance = random.Random(1)
    events = []
    for number in range(20):
        at = 60 + 5 * number - chance.choice([0, 0, 4, 20])
        order = chance.choice(["o1", "o2", "Größe", "o4"])
        record = placed(order, at, partition=number % 2) if chance.random() < 0.7 else event(order, "CANCELLED", at)
        events.append(record)

    assert_slice_invariant(ORDERS, events, spark, by_arrival=True, cuts=2)
