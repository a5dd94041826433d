"""Frames that a step passes to operators: declared types, rows of a stream, and event time where it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kappa import Slice, Source, Table
from kappa.errors import TopologyError
from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    at_most_every,
    cogroup,
    deduplicate,
    foreign_key_join,
    hopping_window,
    interval_join,
    lookup,
    newest_by,
    newest_table_join,
    running_total,
    session_window,
    sliding_window,
    table_join,
    table_table_join,
    tumbling_window,
    two_phase,
)
from kappa.topology.operator import Operator
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = "k STRING, amount DECIMAL(12,2)"
SUM = {"total": agg.sum("amount"), "mean": agg.avg("amount")}
STREAM = Source(topic="t", schema=ROWS, grace="0 seconds")
KEYED: dict[str, Any] = {"key": "k", "table": "state"}
#: Each operator on the rows of a stream.
OPERATORS: dict[str, Operator[Any]] = {
    "aggregate": aggregate(STREAM, **KEYED, aggregates=SUM),
    "two_phase": two_phase(STREAM, **KEYED, aggregates=SUM),
    "cogroup: 'one'": cogroup({"one": STREAM}, **KEYED, aggregates={"one": SUM}),
    "tumbling_window": tumbling_window(STREAM, **KEYED, size="1 minute", aggregates=SUM),
    "session_window": session_window(STREAM, **KEYED, gap="1 minute", aggregates=SUM),
    "sliding_window": sliding_window(STREAM, **KEYED, size="1 minute", aggregates=SUM),
    "at_most_every": at_most_every(STREAM, **KEYED, every="1 minute"),
    "deduplicate": deduplicate(STREAM, **KEYED, within="1 minute", emit="final"),
}
OTHER = Source(topic="u", schema=ROWS, grace="0 seconds")
TABLES = [Table(name=name, key="k", schema=ROWS.replace("k STRING", "k STRING NOT NULL")) for name in "lr"]
#: Each join of two inputs with the same columns.
JOINS: dict[str, Operator[Any]] = {
    "interval_join": interval_join(STREAM, OTHER, key="k", within="1 minute", tables=("state", "more")),
    "table_join": table_join(STREAM, OTHER, key="k", tables=("state", "more")),
    "newest_table_join": newest_table_join(STREAM, OTHER, **KEYED),
    "lookup": lookup(STREAM, OTHER, **KEYED),
    "foreign_key_join": foreign_key_join(*TABLES, foreign_key="k", table="state"),
    "table_table_join": table_table_join(*TABLES, **KEYED),
}
NOW = Frontier(ms=0)
TIMED = [name for name in OPERATORS if name.endswith("_window") or name in ("at_most_every", "deduplicate")]


def labelled(name: str) -> str:
    """An operator with its table, as messages call it."""
    operator, colon, stream = name.partition(":")
    return f"{operator} 'state'{colon}{stream}"


def called(operator: Operator[Any], rows: DataFrame, **tables: DataFrame) -> Any:
    """The result of an operator on these rows; its state has the same columns unless it is passed."""
    before = {"state": rows, **tables}
    slice = Slice(seq=1, records={"t": rows}, tables=before, frontiers={"t": NOW})
    return operator(slice, rows)


def frame(spark: SparkSession, amount: str = "CAST(1 AS DECIMAL(12,2))", more: str = "", key: str = "'a'") -> DataFrame:
    times = "TIMESTAMP'2026-01-01' AS _event_time, TIMESTAMP'2026-01-01' AS _frontier"
    place = "TIMESTAMP'2026-01-01' AS _order_timestamp, 't' AS _topic, 0 AS _partition, 0L AS _offset"
    return spark.sql(f"SELECT {key} AS k, {amount} AS amount, {times}, {place}{more}")


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("amount", ["CAST(1 AS DECIMAL(12,4))", "1D", "1"])
def test_a_frame_with_undeclared_types_is_refused(spark: SparkSession, name: str, amount: str) -> None:
    with pytest.raises(
        TopologyError, match=rf"^{name}: column 'amount' of the rows is .*, but declared as DECIMAL\(12, ?2\)"
    ):
        called(OPERATORS[name], frame(spark, amount))


@pytest.mark.parametrize("of", ["min", "max", "first", "last", "collect", "distinct", "count", "top"])
def test_every_aggregate_refuses_another_type(spark: SparkSession, of: str) -> None:
    what = agg.top("k", 2, by="amount") if of == "top" else getattr(agg, of)("amount")
    operator = aggregate(STREAM, **KEYED, aggregates={"x": what})
    with pytest.raises(TopologyError, match="column 'amount' of the rows is DECIMAL"):
        called(operator, frame(spark, "CAST(1 AS DECIMAL(14,2))"), state=frame(spark))


def test_a_key_with_another_type_or_without_a_column_is_refused(spark: SparkSession) -> None:
    with pytest.raises(TopologyError, match="column 'k' of the rows is BIGINT, but declared as STRING"):
        called(OPERATORS["aggregate"], frame(spark, key="1L"))
    with pytest.raises(TopologyError, match="the rows lack column 'amount'"):
        called(OPERATORS["aggregate"], frame(spark).drop("amount"))
    with pytest.raises(TopologyError, match="newest_by: column 'amount' of the rows is DOUBLE"):
        called(newest_by(STREAM, **KEYED), frame(spark, "1D"), state=frame(spark))
    people = Table(name="people", key="k", schema="k STRING NOT NULL, amount DECIMAL(12,2)")
    cities = aggregate_table(people, **KEYED, aggregates=SUM)
    for changes, rows in ((frame(spark, "1D"), frame(spark)), (frame(spark), frame(spark, "1D"))):
        with pytest.raises(TopologyError, match="aggregate_table: column 'amount' of the rows is DOUBLE"):
            called(cities, changes, people=rows, state=frame(spark))


def test_columns_unused_by_aggregates_may_have_any_type(spark: SparkSession) -> None:
    counted = aggregate(STREAM, **KEYED, aggregates={"n": agg.count()})
    before = spark.createDataFrame([], "k STRING, n BIGINT")
    assert called(counted, frame(spark, "1D"), state=before).changes.collect()[0]["n"] == 1


@pytest.mark.parametrize("name", OPERATORS)
def test_changes_of_a_table_are_refused_as_a_stream(spark: SparkSession, name: str) -> None:
    with pytest.raises(TopologyError, match=rf"^{labelled(name)}: the rows have _deleted.* Use aggregate_table"):
        called(OPERATORS[name], frame(spark, more=", FALSE AS _deleted"))


@pytest.mark.parametrize("name", OPERATORS)
def test_null_values_of_a_topic_are_refused_as_rows_of_a_stream(spark: SparkSession, name: str) -> None:
    with pytest.raises(TopologyError, match=rf"^{labelled(name)}: the rows have _tombstone.*'NOT _tombstone'"):
        called(OPERATORS[name], frame(spark, more=", FALSE AS _tombstone"))


def test_a_running_total_of_a_tables_changes_is_refused(spark: SparkSession) -> None:
    changes = frame(spark, more=", FALSE AS _deleted")
    totals = running_total(STREAM, **KEYED, amount="amount", total="total")
    with pytest.raises(TopologyError, match=r"^running_total 'state': the rows have _deleted"):
        called(totals, changes, state=frame(spark))


@pytest.mark.parametrize("name", TIMED)
def test_rows_without_event_time_are_refused_by_name(spark: SparkSession, name: str) -> None:
    with pytest.raises(TopologyError, match=f"^{name}: the rows have no event time"):
        called(OPERATORS[name], frame(spark).drop("_frontier"))


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("is_left", [True, False], ids=["left", "right"])
def test_a_join_refuses_undeclared_types_and_missing_columns(spark: SparkSession, name: str, is_left: bool) -> None:
    rows = frame(spark)
    tables = dict.fromkeys(("state", "more", "l", "r"), rows)
    odd_ones = {
        frame(spark, key="1L"): "column 'k' of the rows is BIGINT, but declared as STRING",
        frame(spark, "1D"): "column 'amount' of the rows is DOUBLE, but declared as DECIMAL",
        rows.drop("amount"): "the rows lack column 'amount'",
    }
    if name in ("interval_join", "table_join"):
        odd_ones[rows.drop("_frontier")] = "the rows have no event time"

    for odd, message in odd_ones.items():
        slice = Slice(seq=1, records={"t": rows, "u": rows}, tables=tables, frontiers={"t": NOW, "u": NOW})
        with pytest.raises(TopologyError, match=rf"{name}: {message}"):
            JOINS[name](slice, *((odd, rows) if is_left else (rows, odd)))


def test_a_window_at_every_millisecond_of_a_month_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"in 2,592,000,000 windows of 4 weeks 2 days"):
        hopping_window(STREAM, **KEYED, size="30 days", every="1 millisecond", aggregates=SUM)
    for every, is_taken in (("1 second", True), ("999 milliseconds", False)):
        arguments = {**KEYED, "size": "5000 seconds", "every": every, "aggregates": SUM}
        if is_taken:
            hopping_window(STREAM, **arguments)
        else:
            with pytest.raises(TopologyError, match="in 5,006 windows"):
                hopping_window(STREAM, **arguments)


def test_a_key_named_like_a_state_column_is_refused_with_the_operator() -> None:
    with pytest.raises(TopologyError, match=r"^deduplicate with emit='final': columns .'first'. have names"):
        deduplicate(
            Source(topic="t", schema="first STRING", grace="0 seconds"),
            key="first",
            within="1 minute",
            emit="final",
            table="state",
        )
