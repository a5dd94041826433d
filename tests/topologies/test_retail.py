"""The retail topologies on records written by hand, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.ways import in_tasks

from kappa.slices.step import call_step
from kappa.topology import Slice, Topology
from kappa.topology.registry import load

if TYPE_CHECKING:
    from conftest_spark import Log, Sent
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

TOPOLOGIES = Path(__file__).resolve().parents[2] / "include" / "topologies"


class Stream:
    """Calls the step of a topology slice by slice and keeps its tables, in memory."""

    def __init__(self, topology: Topology, session: SparkSession, log: Log) -> None:
        self._topology, self._session, self._log = topology, session, log
        self._tables: dict[str, dict[tuple[Any, ...], Row]] = {table.name: {} for table in topology.tables}
        self._seq = 0

    def slice(self, sent: Iterable[Sent]) -> Mapping[str, list[Row]]:
        """The rows of each effect, in the total order."""
        self._seq += 1
        source = self._topology.sources[0]
        before = {
            t.name: self._session.createDataFrame(list(self._tables[t.name].values()), t.schema)
            for t in self._topology.tables
        }
        records = in_tasks(self._log(sent, source.topic), source).where("_dead IS NULL")
        effects = call_step(self._topology, Slice(seq=self._seq, records={source.topic: records}, tables=before))
        rows = {
            append.name: effects[append.name].orderBy("_order_timestamp", "_partition", "_offset").collect()
            for append in self._topology.appends
        }
        for table in self._topology.tables:
            names = [column.name for column in table.columns]
            for row in effects[table.name].select(*names).collect():
                self._tables[table.name][tuple(row[key] for key in table.key)] = row
        return rows

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """Rows of a table after the last slice, sorted."""
        return sorted(tuple(row) for row in self._tables[name].values())


@pytest.fixture
def stream(spark: SparkSession, log: Log) -> Callable[[str, str], Stream]:
    return lambda folder, name: Stream(load(TOPOLOGIES / folder, name), spark, log)


def invoice(number: int, customer: str | None = "c1", amount: float = 100.0, **more: Any) -> dict[str, Any]:
    return {
        "InvoiceNumber": str(number),
        "CustomerType": "PRIME",
        "CustomerCardNo": customer,
        "TotalAmount": amount,
        **more,
    }


def test_loyalty_v2_adds_up_points_per_customer_and_invoice(stream: Callable[[str, str], Stream]) -> None:
    loyalty = stream(".", "retail.loyalty")

    rows = loyalty.slice([(0, 1, invoice(1)), (0, 2, invoice(2, amount=0.01)), (0, 3, invoice(3, customer="c2"))])[
        "notifications"
    ]

    assert [(r["InvoiceNumber"], r["EarnedLoyaltyPoints"], r["TotalLoyaltyPoints"]) for r in rows] == [
        ("1", Decimal("2.0000"), Decimal("2.0000")),
        ("2", Decimal("0.0002"), Decimal("2.0002")),
        ("3", Decimal("2.0000"), Decimal("2.0000")),
    ]
    assert loyalty.table("rewards") == [("c1", Decimal("2.0002")), ("c2", Decimal("2.0000"))]


def test_loyalty_v2_continues_from_the_balance_before_the_slice(stream: Callable[[str, str], Stream]) -> None:
    loyalty = stream(".", "retail.loyalty")
    loyalty.slice([(0, 1, invoice(1))])

    rows = loyalty.slice([(0, 2, invoice(2, amount=50))])["notifications"]

    assert [r["TotalLoyaltyPoints"] for r in rows] == [Decimal("3.0000")]


def test_a_customer_of_two_stores_has_one_balance_in_the_order_of_time(stream: Callable[[str, str], Stream]) -> None:
    loyalty = stream(".", "retail.loyalty")

    rows = loyalty.slice([(1, 10, invoice(1)), (0, 5, invoice(2)), (0, 20, invoice(3))])["notifications"]

    assert [(r["InvoiceNumber"], r["TotalLoyaltyPoints"]) for r in rows] == [
        ("2", Decimal("2.0000")),
        ("1", Decimal("4.0000")),
        ("3", Decimal("6.0000")),
    ]


@pytest.mark.parametrize("folder", [".", "versions"])
def test_only_prime_customers_with_a_card_are_notified(stream: Callable[[str, str], Stream], folder: str) -> None:
    others = [invoice(2, CustomerType="NONPRIME"), invoice(3, CustomerType="prime"), invoice(4, customer=None)]

    rows = stream(folder, "retail.loyalty").slice(
        [(0, 1, invoice(1)), *((0, 2, other) for other in others), (0, 3, None)]
    )

    assert [r["InvoiceNumber"] for r in rows["notifications"]] == ["1"]


def test_loyalty_v1_and_v2_earn_the_same_points(stream: Callable[[str, str], Stream]) -> None:
    sent = [(0, 1, invoice(1, amount=12.34)), (0, 2, invoice(2, amount=99.99))]
    names = ("InvoiceNumber", "CustomerCardNo", "TotalAmount", "EarnedLoyaltyPoints")

    first, second = (stream(folder, "retail.loyalty").slice(sent)["notifications"] for folder in ("versions", "."))

    assert [[row[name] for name in names] for row in first] == [[row[name] for name in names] for row in second]


@pytest.mark.parametrize(
    ("kind", "is_shipped"),
    [("HOME-DELIVERY", True), ("home-delivery", True), ("Home-Delivery", True), ("TAKEAWAY", False), (None, False)],
)
def test_invoices_with_home_delivery_are_shipped(
    stream: Callable[[str, str], Stream], kind: str | None, is_shipped: bool
) -> None:
    address = {
        "AddressLine": "1 Hill Lane",
        "City": "Pune",
        "State": "Maharashtra",
        "PinCode": "411001",
        "ContactNumber": "5",
    }
    items = [{"ItemCode": "7", "ItemDescription": "Rug", "ItemPrice": 1.5, "ItemQty": 2, "TotalValue": 3.0}]
    sent = invoice(1, StoreID="STR1", DeliveryType=kind, DeliveryAddress=address, InvoiceLineItems=items)

    rows = stream(".", "retail.shipments").slice([(0, 1, sent)])["shipments"]

    assert [(r["InvoiceNumber"], r["DeliveryAddress"]["City"], r["InvoiceLineItems"][0]["ItemQty"]) for r in rows] == (
        [("1", "Pune", 2)] if is_shipped else []
    )


def test_every_effect_has_the_declared_columns_and_types(
    stream: Callable[[str, str], Stream], log: Log, spark: SparkSession
) -> None:
    for folder, name in ((".", "retail.loyalty"), ("versions", "retail.loyalty"), (".", "retail.shipments")):
        topology = load(TOPOLOGIES / folder, name)
        source = topology.sources[0]
        before = {t.name: spark.createDataFrame([], t.schema) for t in topology.tables}
        effects = call_step(topology, Slice(seq=1, records={source.topic: in_tasks(log([]), source)}, tables=before))
        assert set(effects) == {member.name for member in (*topology.tables, *topology.appends)}
        for member in (*topology.tables, *topology.appends):
            declared: DataFrame = spark.createDataFrame([], member.schema)
            frame = effects[member.name].select(*declared.columns)
            assert [field.dataType for field in frame.schema] == [field.dataType for field in declared.schema]
