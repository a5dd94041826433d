"""The topology driver: a topology's behaviour without Kafka, Delta or a driver process."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kappa.errors import TopologyError
from kappa.registry import load
from kappa.testing import Input, TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPOLOGIES = Path(__file__).resolve().parents[1] / "include" / "topologies"


@pytest.fixture
def loyalty(spark: SparkSession) -> TopologyDriver:
    return TopologyDriver(load(TOPOLOGIES, "retail.loyalty"), spark)


def invoice(number: str, amount: float, customer: str = "c1") -> Input:
    value = {"InvoiceNumber": number, "CustomerType": "PRIME", "CustomerCardNo": customer, "TotalAmount": amount}
    return Input(topic="pos", value=value)


def test_tables_are_kept_between_slices(loyalty: TopologyDriver) -> None:
    loyalty.pipe([invoice("1", 100)])
    loyalty.pipe([invoice("2", 50), invoice("3", 10, "c2")])
    assert loyalty.rows("rewards") == [
        {"CustomerCardNo": "c1", "TotalLoyaltyPoints": Decimal("3.0000")},
        {"CustomerCardNo": "c2", "TotalLoyaltyPoints": Decimal("0.2000")},
    ]
    assert [row["InvoiceNumber"] for row in loyalty.rows("notifications")] == ["1", "2", "3"]


def test_what_is_sent_to_a_topic_is_seen_as_bytes(loyalty: TopologyDriver) -> None:
    loyalty.pipe([invoice("1", 100)])
    ((key, value),) = loyalty.sent("loyalty")
    assert key == b"c1"
    assert orjson.loads(value or b"")["TotalLoyaltyPoints"] == 2


def test_what_does_not_parse_is_a_dead_letter_and_a_slice_may_be_empty(loyalty: TopologyDriver) -> None:
    loyalty.pipe([])
    loyalty.pipe([Input(topic="pos", value=b"{", partition=1)])
    (letter,) = loyalty.dead_letters
    assert (letter["_partition"], letter["_offset"], letter["_value"]) == (1, 0, b"{")
    assert loyalty.rows("rewards") == []


def test_a_record_of_a_topic_that_is_no_source_is_refused(loyalty: TopologyDriver) -> None:
    with pytest.raises(TopologyError, match="elsewhere"):
        loyalty.pipe([Input(topic="elsewhere", value=b"")])


def test_an_effect_that_was_not_declared_is_refused(spark: SparkSession) -> None:
    from dataclasses import replace

    def step(seen: Any) -> Any:
        return {"surprise": seen["pos"]}

    broken = replace(load(TOPOLOGIES, "retail.loyalty"), step=step)
    with pytest.raises(TopologyError, match="surprise"):
        TopologyDriver(broken, spark).pipe([invoice("1", 100)])
