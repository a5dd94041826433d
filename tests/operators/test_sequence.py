"""Several rows of one record are ordered by their content, wherever they lie and whatever a step selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from kappa.errors import TopologyError
from kappa.operators import deduplicate, newest, newest_by, running_total
from kappa.operators.origin import ORIGIN_TYPE
from kappa.operators.running_total import Totals
from kappa.operators.sequence import content
from kappa.slices.rows.effects import conform
from kappa.spark.tuning import tune
from kappa.topology import ORDER, Append, Slice, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LINE = "who STRING, sku STRING, amount BIGINT"
POS = Source(topic="pos", schema=LINE)
LINES = [
    ("ada", "pen", -1),
    ("ada", "ink", -5),
    ("ada", "pen", -1),
    ("ada", "ink", 7),
    (None, "pen", 3),
    (None, "x", 4),
]


@pytest.fixture(autouse=True)
def _small(spark: SparkSession) -> None:
    """Plans as those of a small slice."""
    tune(spark, is_small=True)


def lines(spark: SparkSession, rows: Sequence[tuple[Any, ...]], *, parts: int = 1) -> DataFrame:
    """Lines of one invoice: all have its place."""
    place = "TIMESTAMP'2026-01-01' AS _order_timestamp, 'pos' AS _topic, 0 AS _partition, 0L AS _offset"
    values = ", ".join(
        f"({'NULL' if who is None else repr(who)}, {sku!r}, CAST({amount} AS BIGINT))" for who, sku, amount in rows
    )
    frame = spark.sql(f"SELECT *, {place} FROM VALUES {values} AS t(who, sku, amount)")
    return frame.repartition(parts) if parts > 1 else frame


def ways(spark: SparkSession) -> list[DataFrame]:
    return [lines(spark, LINES), lines(spark, LINES[::-1], parts=3)]


def before(spark: SparkSession, total: int = 100) -> DataFrame:
    return spark.sql(f"SELECT 'ada' AS who, {total}L AS total")


SUMS = running_total(POS, key="who", amount="amount", total="total", table="totals", thresholds=[101])


def summed(frame: DataFrame, spark: SparkSession) -> Totals:
    return SUMS(Slice(seq=1, records={"pos": frame}, tables={"totals": before(spark)}))


def totals(frame: DataFrame, spark: SparkSession) -> DataFrame:
    return summed(frame, spark).rows


def test_totals_add_up_the_lines_of_a_record_by_content(spark: SparkSession) -> None:
    for frame in ways(spark):
        rows = totals(frame, spark).where("who IS NOT NULL").select("sku", "amount", "total").collect()
        assert sorted(map(tuple, rows)) == [("ink", -5, 95), ("ink", 7, 102), ("pen", -1, 100), ("pen", -1, 101)]


def test_each_row_without_a_key_has_a_total_of_its_own(spark: SparkSession) -> None:
    for frame in ways(spark):
        rows = totals(frame, spark).where("who IS NULL").select("sku", "total").collect()
        assert sorted(map(tuple, rows)) == [("pen", 3), ("x", 4)]


@pytest.mark.parametrize(
    "columns",
    [
        ["*"],
        ["who", "total", *ORDER],
        ["sku", "who", "total", *ORDER],
        ["total AS balance", "who", *ORDER],
        ["*", "-total AS owed"],
    ],
    ids=lambda columns: ", ".join(columns)[:30],
)
def test_the_newest_total_follows_all_lines_whatever_a_step_selects(spark: SparkSession, columns: list[str]) -> None:
    for frame in ways(spark):
        rows = newest(totals(frame, spark).selectExpr(*columns), key="who").collect()
        assert [row["balance" if "total AS balance" in columns else "total"] for row in rows] == [100]
        assert [tuple(row) for row in summed(frame, spark).changes.collect()] == [("ada", 100, False)]


def test_a_threshold_is_crossed_once_by_the_lines_of_a_record(spark: SparkSession) -> None:
    for frame in ways(spark):
        crossed = summed(frame, spark).crossings
        assert crossed is not None
        assert [tuple(row) for row in crossed.select("sku", "amount", "threshold").collect()] == [("ink", 7, 101)]


def test_the_first_of_repeated_lines_in_a_record_is_kept(spark: SparkSession) -> None:
    first = deduplicate(POS, key="who", within=None, table="seen", rows="who STRING, sku STRING")
    state = spark.createDataFrame([], "who STRING")
    for frame in ways(spark):
        slice_ = Slice(seq=1, records={"pos": frame}, tables={"seen": state})
        rows = first(slice_).rows.select("sku", "amount").collect()
        assert [tuple(row) for row in rows] == [("ink", -5)]


def test_newest_rows_are_the_last_by_content(spark: SparkSession) -> None:
    last = newest_by(POS, key="who", table="last")
    nothing = spark.createDataFrame([], f"{LINE}, origin {ORIGIN_TYPE}")
    for frame in ways(spark):
        slice_ = Slice(seq=1, records={"pos": frame}, tables={"last": nothing})
        for newest_rows in (newest(frame, key="who"), last(slice_).changes):
            assert [tuple(row) for row in newest_rows.select("sku", "amount").collect()] == [("pen", -1)]


def test_maps_order_rows_as_text_after_all_other_columns(spark: SparkSession) -> None:
    frame = lines(spark, LINES).selectExpr("MAP('b', sku) AS tags", "ARRAY(STRUCT(amount)) AS parts", "*")
    assert content(frame)[-1] == "TO_JSON(STRUCT(`tags`))"
    tagged = lines(spark, [("ada", sku, 1) for sku in "bca"], parts=3).selectExpr(
        "who", "MAP('k', sku) AS tags", *ORDER
    )
    assert [row["tags"] for row in newest(tagged, key="who").collect()] == [{"k": "c"}]


def test_columns_with_dots_can_be_key_and_amount(spark: SparkSession) -> None:
    frame = lines(spark, LINES).withColumnsRenamed({"amount": "net.amount"})
    source = Source(topic="pos", schema=LINE.replace("amount", "`net.amount`"))
    sums = running_total(source, key="who", amount="net.amount", total="net.total", table="t", every=1)
    nothing = spark.createDataFrame([], "who STRING, `net.total` BIGINT")
    result = sums(Slice(seq=1, records={"pos": frame}, tables={"t": nothing}))
    assert newest(result.rows, key="who").collect()[0]["net.total"] == 0
    assert result.changes.collect()[0]["net.total"] == 0


def test_rows_are_written_without_their_sequence(spark: SparkSession) -> None:
    with_totals = totals(lines(spark, LINES), spark)
    assert with_totals.schema["total"].metadata
    written = conform(with_totals, Append(name="totals", schema="who STRING, total BIGINT"), "ops.totals")
    assert [field.metadata for field in written.schema.fields if field.metadata] == []
    assert written.columns[:2] == ["who", "total"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("DOUBLE", "'amount' is DOUBLE; the amount must be"),
        ("FLOAT", "'amount' is FLOAT; the amount must be"),
        ("STRING", "'amount' is STRING; the amount must be"),
        ("ARRAY<INT>", "the amount must be"),
        ("DECIMAL(28,7)", r"DECIMAL\(28, 7\), and totals of it .* to DECIMAL\(27, 7\)"),
    ],
)
def test_a_total_that_depends_on_cuts_is_refused(kind: str, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        running_total(
            Source(topic="pos", schema=f"who STRING, amount {kind}"), key="who", amount="amount", total="t", table="t"
        )
