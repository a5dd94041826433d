"""What the operators make of three rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from support.plans import executed_plan

from kappa.operators import newest, running_total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Rows = Callable[[Iterable[tuple[Any, ...]]], "DataFrame"]


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    """Rows of (who, amount, order time in ms, topic, partition, offset)."""

    def frame(values: Iterable[tuple[Any, ...]]) -> DataFrame:
        columns = "who STRING, amount DECIMAL(12,2), ms BIGINT, _topic STRING, _partition INT, _offset BIGINT"
        made = spark.createDataFrame(list(values), columns)
        return made.selectExpr("* EXCEPT (ms)", "timestamp_millis(ms) AS _order_timestamp")

    return frame


@pytest.fixture
def balances(spark: SparkSession) -> Callable[..., DataFrame]:
    """A table of balances before the slice."""
    return lambda *pairs: spark.createDataFrame(list(pairs), "who STRING, balance DECIMAL(18,4)")


def totals(frame: DataFrame) -> dict[int, Decimal]:
    return {row["_offset"]: row["balance"] for row in frame.collect()}


def test_a_running_total_goes_on_from_the_table_before(rows: Rows, balances: Callable[..., DataFrame]) -> None:
    given = rows(
        [
            ("ada", Decimal("1.50"), 1, "pos", 0, 0),
            ("ada", Decimal("2.00"), 2, "pos", 0, 1),
            ("bob", Decimal(5), 3, "pos", 0, 2),
        ]
    )

    found = running_total(
        given, key="who", amount="amount", total="balance", before=balances(("ada", Decimal("10.1234")))
    )

    assert totals(found) == {0: Decimal("11.6234"), 1: Decimal("13.6234"), 2: Decimal(5)}


def test_a_running_total_has_the_type_of_the_table(rows: Rows, balances: Callable[..., DataFrame]) -> None:
    found = running_total(rows([]), key="who", amount="amount", total="balance", before=balances())

    assert found.schema["balance"].dataType.simpleString() == "decimal(18,4)"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1, "pos", 1, 9), (2, "pos", 0, 0)),  # time first
        ((1, "a", 1, 9), (1, "b", 0, 0)),  # then topic
        ((1, "pos", 0, 9), (1, "pos", 1, 0)),  # then partition
        ((1, "pos", 0, 0), (1, "pos", 0, 1)),  # then offset
    ],
)
def test_rows_of_a_key_follow_the_total_order(rows: Rows, first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    given = rows([("ada", Decimal(2), *second), ("ada", Decimal(1), *first)])

    found = running_total(given, key="who", amount="amount", total="balance")

    assert {row["amount"]: row["balance"] for row in found.collect()} == {
        Decimal(1): Decimal(1),
        Decimal(2): Decimal(3),
    }
    assert [row["amount"] for row in newest(given, key="who").collect()] == [Decimal(2)]


def test_a_null_amount_adds_nothing(rows: Rows) -> None:
    found = running_total(
        rows([("ada", None, 1, "pos", 0, 0), ("ada", Decimal(1), 2, "pos", 0, 1)]),
        key="who",
        amount="amount",
        total="balance",
    )

    assert totals(found) == {0: Decimal(0), 1: Decimal(1)}


def test_a_null_key_has_no_history(rows: Rows, balances: Callable[..., DataFrame]) -> None:
    found = running_total(
        rows([(None, Decimal(1), 1, "pos", 0, 0)]),
        key="who",
        amount="amount",
        total="balance",
        before=balances((None, Decimal(9))),
    )

    assert totals(found) == {0: Decimal(1)}


def test_newest_keeps_one_row_for_each_key(rows: Rows) -> None:
    given = rows(
        [("ada", Decimal(1), 1, "pos", 0, 0), ("bob", Decimal(2), 2, "pos", 0, 1), ("ada", Decimal(3), 3, "pos", 0, 2)]
    )

    assert sorted((row["who"], row["amount"]) for row in newest(given, key=["who"]).collect()) == [
        ("ada", Decimal(3)),
        ("bob", Decimal(2)),
    ]


def test_columns_stay_as_they_were(rows: Rows) -> None:
    given = rows([("ada", Decimal(1), 1, "pos", 0, 0)])

    assert set(running_total(given, key="who", amount="amount", total="balance").columns) == {*given.columns, "balance"}
    assert newest(given, key="who").columns == given.columns


def test_newest_after_a_running_total_shuffles_and_sorts_no_more(rows: Rows) -> None:
    given = running_total(rows([("ada", Decimal(1), 1, "pos", 0, 0)]), key="who", amount="amount", total="balance")

    plan = executed_plan(newest(given, key="who"))

    assert plan.count("Exchange") == 1
    assert plan.count("Sort ") == 1
