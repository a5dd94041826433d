"""`inventory.stock` on movements written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STOCK = shipped("inventory.stock")


def item(kind: str, quantity: int, store: str = "S1", sku: str = "rug", at: int = 0, partition: int = 0) -> Input:
    value = {"storeID": store, "sku": sku, "type": kind, "quantity": quantity, "price": 9.5}
    return Input(topic="items", key=store.encode(), value=value, partition=partition, timestamp_ms=at)


def stock(driver: TopologyDriver) -> dict[tuple[str, str], int]:
    return {(row["storeID"], row["sku"]): row["quantity"] for row in driver.rows("stock")}


def test_restocks_add_and_sales_subtract_in_each_store(spark: SparkSession) -> None:
    driver = TopologyDriver(STOCK, spark)

    driver.pipe([item("RESTOCK", 10), item("SALE", 3), item("RESTOCK", 5, store="S2"), item("COUNT", 99)])
    driver.pipe([item("SALE", 1), item("RESTOCK", 2, sku="lamp"), Input(topic="items", value=None)])

    assert stock(driver) == {("S1", "rug"): 6, ("S1", "lamp"): 2, ("S2", "rug"): 5}
    assert driver.sent("stock-levels")[-1][0] in (b'["S1","rug"]', b'["S1","lamp"]')


def test_small_letters_count_since_version_2(spark: SparkSession) -> None:
    second, first = TopologyDriver(STOCK, spark), TopologyDriver(first_version("inventory.stock"), spark)

    for driver in (second, first):
        driver.pipe([item("RESTOCK", 10), item("sale", 4)])

    assert (stock(second), stock(first)) == ({("S1", "rug"): 6}, {("S1", "rug"): 10})


def test_no_cut_or_order_changes_the_stock(spark: SparkSession) -> None:
    moved = [("RESTOCK", 9, 3, 0), ("SALE", 2, 1, 0), ("SALE", 1, 5, 1), ("RESTOCK", 4, 2, 1), ("sale", 1, 4, 2)]
    items = [item(kind, quantity, at=at, partition=partition) for kind, quantity, at, partition in moved]

    assert_slice_invariant(STOCK, items, spark, cuts=1, by_arrival=True)
