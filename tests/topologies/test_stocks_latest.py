"""`stocks.latest` on ticks written by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import orjson
import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LATEST = shipped("stocks.latest")


def tick(symbol: str, price: float | None, at: int = 0, partition: int = 0) -> Input:
    """A tick, or without a price the null value that ends a symbol."""
    value = None if price is None else {"symbol": symbol, "CreatedTime": at, "price": price, "volume": 1}
    return Input(topic="ticks", key=symbol.encode(), value=value, partition=partition, timestamp_ms=at)


def test_only_banks_have_a_newest_tick(spark: SparkSession) -> None:
    driver = TopologyDriver(LATEST, spark)

    driver.pipe([tick("SBIN", 5, at=3), tick("SBIN", 6.5, at=2), tick("TCS", 1), tick("HDFCLIFE", 1)])

    assert driver.rows("latest") == [{"symbol": "SBIN", "CreatedTime": 2, "price": Decimal("6.50"), "volume": 1}]


def test_of_many_updates_in_a_slice_only_the_newest_is_forwarded(spark: SparkSession) -> None:
    driver = TopologyDriver(LATEST, spark)

    driver.pipe([tick("SBIN", price) for price in range(1, 9)])
    driver.pipe([tick("SBIN", 9)])

    sent = [(key, value and orjson.loads(value)["price"]) for key, value in driver.sent("latest-ticks")]
    assert sent == [(b"SBIN", 8), (b"SBIN", 9)]


def test_a_null_value_deletes_its_symbol_until_the_next_tick(spark: SparkSession) -> None:
    driver = TopologyDriver(LATEST, spark)

    driver.pipe([tick("SBIN", 5), tick("HDFCBANK", 7)])
    driver.pipe([tick("SBIN", None), tick("TCS", None), Input(topic="ticks", value=None)])

    assert [row["symbol"] for row in driver.rows("latest")] == ["HDFCBANK"]
    assert driver.sent("latest-ticks")[-1] == (b"SBIN", None)
    driver.pipe([tick("SBIN", None), tick("SBIN", 4)])
    assert [row["symbol"] for row in driver.rows("latest")] == ["HDFCBANK", "SBIN"]


def test_version_1_follows_the_hdfc_group(spark: SparkSession) -> None:
    driver = TopologyDriver(first_version("stocks.latest"), spark)

    driver.pipe([tick("SBIN", 5), tick("HDFCBANK", 7), tick("HDFCLIFE", 8)])

    assert [row["symbol"] for row in driver.rows("latest")] == ["HDFCBANK", "HDFCLIFE"]


def test_no_cut_changes_a_tick(spark: SparkSession) -> None:
    ticks = [tick("SBIN", price, at) for price, at in ((1, 5), (2, 1), (None, 6), (3, 7))]
    others = [tick("HDFCBANK", price, at, partition=1) for price, at in ((1, 2), (2, 9), (None, 9), (None, 9))]

    assert_slice_invariant(LATEST, [*ticks, *others], spark, cuts=1, by_arrival=True)
