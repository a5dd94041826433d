"""`inventory.enriched` on orders and products written by hand and on random ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.topology import Topology

pytestmark = pytest.mark.spark

ENRICHED = shipped("inventory.enriched")
ENRICHED_V1 = first_version("inventory.enriched")
_MINUTE = 60_000


def order(number: str, at: float, sku: str = "SKU1", quantity: int = 2, partition: int = 0) -> Input:
    """An order at that minute."""
    time = round(at * _MINUTE)
    value = {"orderID": number, "customerID": "c1", "sku": sku, "quantity": quantity, "CreatedTime": time}
    value["DecidedTime"] = time
    return Input(topic="orders", value=value, key=number.encode(), partition=partition, timestamp_ms=time + 3_600_000)


def product(sku: str, at: float, price: float | None, partition: int = 0) -> Input:
    """A product's row at that minute; without a price, its end."""
    time = round(at * _MINUTE)
    value = None if price is None else {"sku": sku, "name": f"The {sku}", "price": price, "CreatedTime": time}
    return Input(topic="products", value=value, key=sku.encode(), partition=partition, timestamp_ms=time)


def prices(driver: TopologyDriver) -> list[tuple[str, Decimal | None]]:
    return [(row["orderID"], row["price"]) for row in driver.rows("enriched")]


def test_a_changed_product_affects_only_later_orders(spark: SparkSession) -> None:
    driver = TopologyDriver(ENRICHED, spark)
    driver.pipe([order("o1", 5), order("o2", 15.001), product("SKU1", 0, 1.5), product("SKU1", 10, 2)])
    assert prices(driver) == [("o1", Decimal("1.50"))]
    assert [row["orderID"] for row in driver.rows("waiting")] == ["o2"]

    driver.pipe([order("o3", 9.999), order("o4", 10), product("SKU1", 17, 3), order("o5", 26)])
    assert prices(driver) == [
        ("o1", Decimal("1.50")),
        ("o3", Decimal("1.50")),
        ("o4", Decimal("2.00")),
        ("o2", Decimal("2.00")),
    ]
    assert driver.rows("enriched")[0] == {
        **{"orderID": "o1", "customerID": "c1", "sku": "SKU1", "quantity": 2, "CreatedTime": 5 * _MINUTE},
        "DecidedTime": 5 * _MINUTE,
        **{"name": "The SKU1", "price": Decimal("1.50"), "amount": Decimal("3.00")},
    }
    assert len(driver.sent("enriched-orders")) == 4


def test_an_order_for_an_ended_or_unknown_product_has_no_price(spark: SparkSession) -> None:
    driver = TopologyDriver(ENRICHED, spark)
    driver.pipe(
        [product("SKU1", 0, 1), product("SKU2", 10, 5), product("SKU1", 10, None), order("o1", 9), order("o2", 11)]
    )
    driver.pipe([order("o3", 9, "?"), product("SKU2", 60, 1), order("o4", 22)])

    assert prices(driver) == [("o1", Decimal("1.00")), ("o3", None), ("o2", None)]


def test_an_order_too_late_is_refused_and_a_late_product_counts_from_then_on(spark: SparkSession) -> None:
    driver = TopologyDriver(ENRICHED, spark)
    driver.pipe([product("SKU1", 0, 1), product("SKU1", 20, 2), order("o1", 30)])
    late = [order("o2", 21), order("o3", 19.999), order("o4", 41)]
    driver.pipe([product("SKU1", 10, 7), *late, product("SKU1", 60, 1)])

    assert prices(driver) == [("o2", Decimal("2.00")), ("o1", Decimal("2.00"))]
    assert [row["reason"] for row in driver.rows("late_records")] == ["the left row is before its frontier"]


@pytest.mark.parametrize("version", [shipped, first_version], ids=["shipped", "version 1"])
def test_each_standing_order_is_enriched_however_late_it_was_decided(
    spark: SparkSession, version: Callable[[str], Topology]
) -> None:
    """A further event keeps an order open, so that orders stand in another order than they were placed."""

    def event(number: str, kind: str, at: int) -> Input:
        value = {"orderID": number, "type": kind, "customerID": "c1", "sku": "SKU1", "quantity": 1}
        value["CreatedTime"] = at * _MINUTE
        return Input(topic="order-events", key=number.encode(), value=value, timestamp_ms=at * _MINUTE)

    placed = [
        event("o1", "PLACED", 0),
        event("o2", "PLACED", 20),
        event("o1", "CHANGED", 25),
        event("o1", "PLACED", 50),
    ]
    others = [event("o3", "PLACED", 51), event("o4", "PLACED", 120), event("o5", "PLACED", 500)]
    orders = TopologyDriver(version("inventory.orders"), spark)
    for one in (*placed, *others):
        orders.pipe([one])
    sent = [(key, json.loads(value or b"")) for key, value in orders.sent("orders")]
    driver = TopologyDriver(version("inventory.enriched"), spark)
    driver.pipe([product("SKU1", 0, 2)])
    for key, row in sent:
        driver.pipe([Input(topic="orders", key=key, value=row, timestamp_ms=row["DecidedTime"])])
    driver.pipe([product("SKU1", 1000, 3), order("last", 1000)])
    assert driver.rows("late_records") == []
    enriched = [(row["orderID"], row["CreatedTime"]) for row in driver.rows("enriched")]
    assert sorted(enriched) == sorted((row["orderID"], row["CreatedTime"]) for _, row in sent)
    assert {number for number, _ in enriched} >= {"o1", "o2", "o3", "o4"}


def test_version_1_leaves_out_orders_of_unknown_products(spark: SparkSession) -> None:
    driver = TopologyDriver(ENRICHED_V1, spark)
    orders = [order("o1", 1), order("o2", 1, "?"), order("o3", 12)]
    driver.pipe([product("SKU1", 0, 1), *orders, product("SKU1", 60, 1)])

    assert prices(driver) == [("o1", Decimal("1.00"))]
    assert "amount" not in driver.rows("enriched")[0]


def test_enriched_orders_are_the_same_however_the_logs_are_cut(spark: SparkSession) -> None:
    chance = random.Random(1)
    inputs = []
    for number in range(12):
        at = 60 + 2 * number - chance.choice([0, 0, 5, 15])
        inputs.append(order(f"o{number}", at, chance.choice(["SKU1", "Größe"]), partition=number % 2))
    for number in range(10):
        at = 55 + 4 * number - chance.choice([0, 0, 5])
        price = chance.choice([None, 1.0, 2.0, 3.0])
        inputs.append(product(chance.choice(["SKU1", "Größe"]), at, price, partition=number % 2))

    assert_slice_invariant(ENRICHED, inputs, spark, by_arrival=True, cuts=2)
