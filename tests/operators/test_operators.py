"""Results of the operators on three rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from support.plans import executed_plan

from kappa.operators import newest, running_total
from kappa.slices.rows.effects import conform
from kappa.topology import Slice, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Rows = Callable[[Iterable[tuple[Any, ...]]], "DataFrame"]


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    """Rows of (who, amount, order time in ms, topic, partition, offset)."""

    def frame(values: Iterable[tuple[Any, ...]]) -> DataFrame:
        columns = "who STRING, amount DECIMAL(12,2), ms BIGINT, _topic STRING, _partition INT, _offset BIGINT"
        facts = spark.createDataFrame(list(values), columns)
        return facts.selectExpr("* EXCEPT (ms)", "timestamp_millis(ms) AS _order_timestamp")

    return frame


@pytest.fixture
def balances(spark: SparkSession) -> Callable[..., DataFrame]:
    """A table of balances before the slice."""
    return lambda *pairs: spark.createDataFrame(list(pairs), "who STRING, balance DECIMAL(22,2)")


SALES = Source(topic="pos", schema="who STRING, amount DECIMAL(12,2)")
BALANCE = running_total(SALES, key="who", amount="amount", total="balance", table="balances")


@pytest.fixture
def balance(balances: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """The rows with their totals, after a table of balances."""

    def rows(frame: DataFrame, *before: tuple[Any, ...]) -> DataFrame:
        return BALANCE(Slice(seq=1, records={"pos": frame}, tables={"balances": balances(*before)})).rows

    return rows


def totals(frame: DataFrame) -> dict[int, Decimal]:
    return {row["_offset"]: row["balance"] for row in frame.collect()}


def test_a_running_total_continues_from_the_table(rows: Rows, balance: Callable[..., DataFrame]) -> None:
    facts = rows(
        [
            ("ada", Decimal("1.50"), 1, "pos", 0, 0),
            ("ada", Decimal("2.00"), 2, "pos", 0, 1),
            ("bob", Decimal(5), 3, "pos", 0, 2),
        ]
    )

    with_totals = balance(facts, ("ada", Decimal("10.12")))

    assert totals(with_totals) == {0: Decimal("11.62"), 1: Decimal("13.62"), 2: Decimal(5)}


@pytest.mark.parametrize(
    ("amount", "total"),
    [
        *((kind, "BIGINT") for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")),
        ("DECIMAL(12,2)", "DECIMAL(22, 2)"),
        ("DECIMAL(38,6)", "DECIMAL(38, 6)"),
        ("DECIMAL(27,20)", "DECIMAL(37, 20)"),
    ],
)
def test_a_total_has_the_type_of_the_sum_of_its_amounts(spark: SparkSession, amount: str, total: str) -> None:
    source = Source(topic="t", schema=f"who STRING, amount {amount}")
    summed = running_total(source, key="who", amount="amount", total="total", table="totals")
    assert summed.schema == f"`who` STRING NOT NULL, `total` {total} NOT NULL"
    order = "TIMESTAMP_SECONDS(id) AS _order_timestamp, 't' AS _topic, 0 AS _partition, id AS _offset"
    rows = spark.range(2).selectExpr("'a' AS who", f"CAST(id + 1 AS {amount}) AS amount", *order.split(", "))
    before = spark.sql(f"SELECT 'a' AS who, CAST(5 AS {total}) AS total")
    result = summed(Slice(seq=1, records={"t": rows}, tables={"totals": before}))
    assert [row["total"] for row in result.rows.orderBy("_offset").collect()] == [6, 8]
    assert {row["total"] for row in result.changes.collect()} == {8}
    conform(result.changes, summed.tables[0], "t")


LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("before", "amounts", "total"),
    [
        (-5, [("a", MOST), ("a", 3)], [MOST - 5, MOST - 2]),
        (LEAST + 1, [("a", -1), ("a", MOST), ("a", MOST)], [LEAST, -1, MOST - 1]),
        (0, [("b", MOST), ("c", MOST), ("d", LEAST), ("d", 1)], [MOST, MOST, LEAST, LEAST + 1]),
        (MOST, [("a", 1)], None),
        (LEAST, [("a", -1)], None),
    ],
)
def test_a_total_is_right_while_it_fits_its_type(
    spark: SparkSession, before: int, amounts: list[tuple[str, int]], total: list[int] | None
) -> None:
    source = Source(topic="t", schema="who STRING, amount BIGINT, day STRING")
    rows = spark.createDataFrame(
        [("ada", amount, day, at) for at, (day, amount) in enumerate(amounts)],
        "who STRING, amount BIGINT, day STRING, _offset BIGINT",
    ).selectExpr("*", "'t' AS _topic", "0 AS _partition", "TIMESTAMP_SECONDS(_offset) AS _order_timestamp")
    for since in ("day", None) if {day for day, _ in amounts} == {"a"} else ("day",):
        summed = running_total(source, key="who", amount="amount", total="total", since=since, table="totals")
        table = spark.sql(f"SELECT 'ada' AS who, CAST('{before}' AS BIGINT) AS total, 'a' AS day")
        result = summed(Slice(seq=1, records={"t": rows}, tables={"totals": table})).rows.orderBy("_offset")
        if total is None:
            with pytest.raises(Exception, match=r"(?i)overflow"):
                result.collect()
        else:
            assert [row["total"] for row in result.collect()] == total, since


def test_rows_are_counted_without_an_amount(rows: Rows, spark: SparkSession) -> None:
    facts = rows([("ada", None, 1, "pos", 0, 0), (None, None, 2, "pos", 0, 1), ("ada", Decimal(7), 3, "pos", 0, 2)])
    counted = running_total(SALES, key="who", total="times", table="counts")
    before = spark.sql("SELECT 'ada' AS who, 3L AS times")

    result = counted(Slice(seq=1, records={"pos": facts}, tables={"counts": before}))

    assert {row["_offset"]: row["times"] for row in result.rows.collect()} == {0: 4, 1: 1, 2: 5}
    assert [tuple(row) for row in result.changes.collect()] == [("ada", 5, False)]
    assert counted.tables[0].made_by == "running_total(key=['who'], times=count())"
    assert BALANCE.tables[0].made_by == "running_total(key=['who'], balance=sum(amount))"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1, "pos", 1, 9), (2, "pos", 0, 0)),  # time first
        ((1, "a", 1, 9), (1, "b", 0, 0)),  # then topic
        ((1, "pos", 0, 9), (1, "pos", 1, 0)),  # then partition
        ((1, "pos", 0, 0), (1, "pos", 0, 1)),  # then offset
    ],
)
def test_rows_per_key_follow_the_total_order(
    rows: Rows, balance: Callable[..., DataFrame], first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    facts = rows([("ada", Decimal(2), *second), ("ada", Decimal(1), *first)])

    with_totals = balance(facts)

    assert {row["amount"]: row["balance"] for row in with_totals.collect()} == {
        Decimal(1): Decimal(1),
        Decimal(2): Decimal(3),
    }
    assert [row["amount"] for row in newest(facts, key="who").collect()] == [Decimal(2)]


def test_a_null_amount_adds_nothing(rows: Rows, balance: Callable[..., DataFrame]) -> None:
    with_totals = balance(rows([("ada", None, 1, "pos", 0, 0), ("ada", Decimal(1), 2, "pos", 0, 1)]))

    assert totals(with_totals) == {0: Decimal(0), 1: Decimal(1)}


def test_a_null_key_has_no_history(rows: Rows, balances: Callable[..., DataFrame]) -> None:
    facts = rows([(None, Decimal(1), 1, "pos", 0, 0), (None, Decimal(2), 2, "pos", 0, 1)])

    result = BALANCE(Slice(seq=1, records={"pos": facts}, tables={"balances": balances((None, Decimal(9)))}))

    assert totals(result.rows) == {0: Decimal(1), 1: Decimal(2)}
    assert result.changes.collect() == []


def test_newest_keeps_one_row_per_key(rows: Rows) -> None:
    facts = rows(
        [("ada", Decimal(1), 1, "pos", 0, 0), ("bob", Decimal(2), 2, "pos", 0, 1), ("ada", Decimal(3), 3, "pos", 0, 2)]
    )

    assert sorted((row["who"], row["amount"]) for row in newest(facts, key=["who"]).collect()) == [
        ("ada", Decimal(3)),
        ("bob", Decimal(2)),
    ]


def test_columns_are_unchanged(rows: Rows, balance: Callable[..., DataFrame]) -> None:
    facts = rows([("ada", Decimal(1), 1, "pos", 0, 0)])

    assert set(balance(facts).columns) == {*facts.columns, "balance"}
    assert newest(facts, key="who").columns == facts.columns


def test_frames_derived_from_totals_need_no_further_shuffle_or_sort(rows: Rows, spark: SparkSession) -> None:
    facts = rows([("ada", Decimal(1), 1, "pos", 0, 0)])
    crossing = running_total(SALES, key="who", amount="amount", total="balance", table="balances", every=5)
    before = spark.createDataFrame([], "who STRING, balance DECIMAL(22,2)")
    result = crossing(Slice(seq=1, records={"pos": facts}, tables={"balances": before}))

    assert result.crossings is not None
    rows_plan = executed_plan(result.rows)
    for frame in (result.changes, result.crossings, newest(result.rows, key="who")):
        plan = executed_plan(frame)
        for part in ("Exchange", "Sort "):
            assert plan.count(part) == rows_plan.count(part) > 0
