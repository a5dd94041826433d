"""`retail.revenue` on invoices written by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

REVENUE = shipped("retail.revenue")


def invoice(number: int, total: float, partition: int = 0, method: str = "CARD", at: int = 0) -> Input:
    """An invoice of which a tenth is taxes."""
    taxes = {"CGST": round(total * 0.05, 2), "SGST": round(total * 0.05, 2), "CESS": None}
    value = {"InvoiceNumber": str(number), "PaymentMethod": method, "TotalAmount": total, **taxes}
    return Input(topic="pos", value=value, partition=partition, timestamp_ms=at)


def revenue(driver: TopologyDriver, table: str = "revenue") -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in driver.rows(table)]


def test_revenue_is_summed_per_partition_and_then_in_total(spark: SparkSession) -> None:
    driver = TopologyDriver(REVENUE, spark)

    driver.pipe([invoice(1, 100), invoice(2, 50, partition=1), invoice(3, 10, method="CASH")])
    driver.pipe([invoice(4, 200, partition=1), Input(topic="pos", value=None)])

    assert revenue(driver) == [("CARD", 3, Decimal(315)), ("CASH", 1, Decimal(9))]
    assert revenue(driver, "revenue_parts") == [
        ("CARD", 0, 1, Decimal(90)),
        ("CARD", 1, 2, Decimal(225)),
        ("CASH", 0, 1, Decimal(9)),
    ]


def test_the_check_passes_and_reports_a_missing_part(spark: SparkSession) -> None:
    [check] = REVENUE.checks
    driver = TopologyDriver(REVENUE, spark)
    driver.pipe([invoice(1, 100), invoice(2, 50, partition=1)])
    for name in ("revenue", "revenue_parts"):
        spark.createDataFrame(driver.state(name), REVENUE.table(name).schema).createOrReplaceTempView(name)

    assert spark.sql(check.sql).count() == 0
    spark.table("revenue_parts").where("part = 0").createOrReplaceTempView("revenue_parts")
    assert spark.sql(check.sql).count() == 1


def test_taxes_do_not_count_as_revenue_since_version_2(spark: SparkSession) -> None:
    driver = TopologyDriver(first_version("retail.revenue"), spark)

    driver.pipe([invoice(1, 100)])

    assert revenue(driver) == [("CARD", 1, Decimal(100))]


def test_no_cut_changes_the_revenue(spark: SparkSession) -> None:
    sent = [
        invoice(at, 10 * at, partition=at % 3, method=("CARD", "CASH")[at % 2], at=at * 7 % 5) for at in range(1, 7)
    ]

    assert_slice_invariant(REVENUE, sent, spark, cuts=1, by_arrival=True)
