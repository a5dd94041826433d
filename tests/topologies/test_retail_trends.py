"""`retail.trends` on invoices written by hand, and the values that it has to mask."""

from __future__ import annotations

import hashlib
import hmac
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from support.topologies import shipped

from kappa.testing import MASK_KEY, Input, TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TRENDS = shipped("retail.trends")


def invoice(number: str, *items: str, card: str | None = "4711") -> dict[str, Any]:
    lines = [
        {"ItemCode": item, "ItemDescription": item, "ItemPrice": 2.5, "ItemQty": 2, "TotalValue": 5} for item in items
    ]
    address = {"AddressLine": "1 Long Street", "City": "Köln", "State": "NW", "PinCode": "1", "ContactNumber": "0221"}
    return {
        "InvoiceNumber": number,
        "CreatedTime": 1_767_225_600_000,
        "StoreID": "STR1",
        "CustomerCardNo": card,
        "DeliveryAddress": address,
        "InvoiceLineItems": lines,
    }


def mask(value: str) -> str:
    return hmac.new(MASK_KEY.encode(), value.encode(), hashlib.sha256).hexdigest()


def test_each_line_of_an_invoice_is_a_row_and_personal_values_are_masked(spark: SparkSession) -> None:
    driver = TopologyDriver(TRENDS, spark)
    driver.pipe(
        [
            Input(topic="pos", value=invoice("1", "milk", "bread")),
            Input(topic="pos", value=invoice("2", card=None)),
            Input(topic="pos", value=invoice("3", "milk", card=None)),
        ]
    )

    rows = driver.rows("lines")
    assert [(row["InvoiceNumber"], row["ItemCode"], row["TotalValue"]) for row in rows] == [
        ("1", "milk", Decimal("5.00")),
        ("1", "bread", Decimal("5.00")),
        ("3", "milk", Decimal("5.00")),
    ]
    assert [row["Customer"] for row in rows] == [mask("4711"), mask("4711"), None]
    assert {(row["Address"], row["Contact"]) for row in rows} == {(mask("1 Long Street"), mask("0221"))}
    assert {(row["City"], row["Day"]) for row in rows} == {("Köln", date(2026, 1, 1))}
    assert {key for key, _ in driver.sent("hadoop-sink")} == {b"STR1"}
    sent = b"".join(value or b"" for _, value in driver.sent("hadoop-sink"))
    assert not [value for value in (b"4711", b"Long Street", b"0221") if value in sent]
