"""A bound operator refuses what it is not called with, and the platform completes what the step returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kappa import Append, Source, Table, Topology
from kappa.errors import TopologyError
from kappa.operators import agg, aggregate, aggregate_table, interval_join, newest, newest_by, tumbling_window
from kappa.testing import Input, TopologyDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from kappa import Slice

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

TICK = "symbol STRING NOT NULL, price BIGINT, at BIGINT NOT NULL"
TICKS, TRADES = (Source(topic=topic, schema=TICK, time="at", grace="10 seconds") for topic in ("ticks", "trades"))
COUNT = {"ticks": agg.count()}
MINUTE = {"key": "symbol", "size": "1 minute", "aggregates": COUNT}


def tick(at: int, *, topic: str = "ticks", symbol: str = "a") -> Input:
    return Input(topic=topic, value={"symbol": symbol, "price": 1, "at": at}, timestamp_ms=at)


def driver_of(
    spark: SparkSession,
    *operators: Any,
    step: Callable[[Slice], Mapping[str, DataFrame]] | None = None,
    outputs: Any = (),
    tables: Any = (),
) -> TopologyDriver:
    topology = Topology(
        name="test.bound",
        version="1",
        sources=[TICKS, TRADES],
        operators=operators,
        step=step,
        outputs=outputs,
        tables=tables,
    )
    return TopologyDriver(topology, spark)


def test_operators_make_a_topology_without_a_step(spark: SparkSession) -> None:
    minutes = tumbling_window([TICKS], table="minutes", **MINUTE)
    driver = driver_of(spark, minutes, outputs=[Append(name="stats", of=minutes.final)])
    driver.pipe([tick(0), tick(1_000, topic="trades"), tick(80_000)])
    driver.pipe([tick(30_000), tick(90_000)])

    assert [row["ticks"] for row in driver.rows("stats")] == [1]
    assert [row["reason"] for row in driver.rows("late_records")] == ["its window is closed"]
    assert [row["ticks"] for row in driver.rows("minutes")] == [2]


def test_a_step_returns_its_own_effects_and_may_shape_an_output(spark: SparkSession) -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)

    def step(slice: Slice) -> Mapping[str, DataFrame]:
        windows = minutes(slice, slice["ticks"].where("symbol <> 'b'"))
        return {"few": windows.final.where("ticks < 2"), "newest": newest(slice["trades"], key="symbol")}

    driver = driver_of(
        spark,
        minutes,
        step=step,
        outputs=[Append(name="stats", of=minutes.final), Append(name="few", of=minutes.final)],
        tables=[Table(name="newest", key="symbol", schema=TICK)],
    )
    driver.pipe([tick(0), tick(1), tick(2, symbol="b"), tick(3, symbol="c"), tick(5, topic="trades"), tick(80_000)])

    assert [row["symbol"] for row in driver.rows("stats")] == ["a", "c"]
    assert [row["symbol"] for row in driver.rows("few")] == ["c"]
    assert [row["at"] for row in driver.rows("newest")] == [5]


MISTAKES: dict[str, tuple[Callable[[Any, Slice], Any], str]] = {
    "a frame in place of the slice": (
        lambda minutes, slice: minutes(slice["ticks"]),
        r"tumbling_window 'minutes' is called with DataFrame instead of the slice.*tumbling_window\(slice, rows\)",
    ),
    "twice": (lambda minutes, slice: (minutes(slice), minutes(slice)), "'minutes' is called twice in one slice"),
    "never": (lambda minutes, slice: None, "did not call tumbling_window 'minutes', and its table would stay behind"),
    "rows of another source": (
        lambda minutes, slice: minutes(slice, slice["trades"].where("price > 0")),
        "reads source 'ticks' but was passed rows of source 'trades'",
    ),
    "more rows than it reads": (
        lambda minutes, slice: minutes(slice, slice["ticks"], slice["trades"]),
        "has 1 inputs but was called with 2",
    ),
    "rows of a table": (
        lambda minutes, slice: minutes(slice, slice["ticks"].selectExpr("*", "FALSE AS _deleted")),
        "the rows have _deleted, so they are changes of a table",
    ),
    "another scale": (
        lambda minutes, slice: minutes(slice, slice["ticks"].selectExpr("* EXCEPT (symbol)", "1.5 AS symbol")),
        "column 'symbol' of the rows is DECIMAL",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_by_the_name_of_the_operator(spark: SparkSession, mistake: str) -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    act, message = MISTAKES[mistake]

    def step(slice: Slice) -> Mapping[str, DataFrame]:
        act(minutes, slice)
        return {}

    with pytest.raises(TopologyError, match=message):
        driver_of(spark, minutes, step=step).pipe([tick(0), tick(0, topic="trades")])


def test_only_a_declared_union_of_sources_is_accepted(spark: SparkSession) -> None:
    def step_of(minutes: Any) -> Callable[[Slice], Mapping[str, DataFrame]]:
        def step(slice: Slice) -> Mapping[str, DataFrame]:
            minutes(slice, slice["ticks"].unionByName(slice["trades"]))
            return {}

        return step

    log = [tick(0), tick(0, topic="trades"), tick(80_000), tick(80_000, topic="trades"), tick(81_000)]
    of_one = tumbling_window(TICKS, table="minutes", **MINUTE)
    of_both = tumbling_window([TICKS, TRADES], table="minutes", **MINUTE)

    with pytest.raises(Exception, match=r"was also passed rows of another source.*A row is of: trades"):
        driver_of(spark, of_one, step=step_of(of_one)).pipe(log)
    driver = driver_of(spark, of_both, step=step_of(of_both), outputs=[Append(name="stats", of=of_both.final)])
    driver.pipe(log)
    assert [row["ticks"] for row in driver.rows("stats")] == [2]


def test_swapped_sides_of_a_join_are_refused(spark: SparkSession) -> None:
    joined = interval_join(
        TICKS, TRADES, key="symbol", within="1 minute", tables=("l", "r"), right_rows="symbol STRING"
    )

    def step(slice: Slice) -> Mapping[str, DataFrame]:
        joined(slice, slice["trades"], slice["ticks"])
        return {}

    with pytest.raises(TopologyError, match="interval_join 'l' and 'r' reads source 'ticks' but was passed rows of"):
        driver_of(spark, joined, step=step).pipe([tick(0)])


def test_a_step_cannot_return_effects_of_operators(spark: SparkSession) -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    unlisted = aggregate(TICKS, key="symbol", aggregates=COUNT, table="counts")

    def returns(effects: Callable[[Any, Slice], Mapping[str, DataFrame]]) -> Callable[[Slice], Mapping[str, DataFrame]]:
        return lambda slice: effects(minutes(slice), slice)

    with pytest.raises(TopologyError, match="returned rows for table 'minutes', which is an operator's own"):
        driver_of(spark, minutes, step=returns(lambda result, _: {"minutes": result.changes.where("ticks > 1")})).pipe(
            []
        )
    with pytest.raises(TopologyError, match="returned late records, which its operators bring along"):
        driver_of(spark, minutes, step=returns(lambda result, _: {"late_records": result.late})).pipe([tick(0)])
    with pytest.raises(TopologyError, match="called aggregate 'counts', which is not among the topology's operators"):
        driver_of(
            spark, minutes, step=returns(lambda _, slice: {"x": unlisted(slice).changes}), tables=unlisted.tables
        ).pipe([tick(0)])


def test_an_operator_is_called_after_those_that_it_reads(spark: SparkSession) -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    hours = tumbling_window(minutes.final, key="symbol", size="1 hour", aggregates=COUNT, table="hours")
    newest_ticks = newest_by(TICKS, key="symbol", table="newest")
    prices = aggregate_table(newest_ticks, key="price", aggregates=COUNT, table="prices")

    with pytest.raises(
        TopologyError, match=r"tumbling_window 'minutes' has not been called yet in this slice. Call it"
    ):
        driver_of(spark, hours, minutes).pipe([tick(0)])
    with pytest.raises(TopologyError, match="aggregate_table 'prices' reads table 'newest', which has no changes"):
        driver_of(spark, prices, newest_ticks).pipe([tick(0)])


def test_an_operator_on_rows_of_the_step_has_to_be_called_with_them(spark: SparkSession) -> None:
    counts = aggregate(TICKS, key="name", aggregates=COUNT, table="counts", rows="name STRING")

    with pytest.raises(TopologyError, match="with a column that the step makes, but was called without rows"):
        driver_of(spark, counts).pipe([tick(0)])


def test_a_table_of_groups_follows_the_operator_that_keeps_the_table(spark: SparkSession) -> None:
    ticks = newest_by(TICKS, key="symbol", table="newest")
    driver = driver_of(spark, ticks, aggregate_table(ticks, key="price", aggregates=COUNT, table="prices"))
    driver.pipe([tick(0), tick(1, symbol="b"), tick(2)])

    assert [(row["price"], row["ticks"]) for row in driver.rows("prices")] == [(1, 2)]


def test_a_null_value_deletes_its_key_without_code_in_the_step(spark: SparkSession) -> None:
    products = Source(topic="products", schema="id STRING, price INT", key_schema="id STRING", tombstones=True)
    newest_products = newest_by(products, key="id", table="products")
    prices = aggregate_table(newest_products, key="price", aggregates={"products": agg.count()}, table="prices")
    topology = Topology(name="test.bound", version="1", sources=[products], operators=[newest_products, prices])
    driver = TopologyDriver(topology, spark)
    driver.pipe([Input(topic="products", key=key, value={"id": key, "price": 1}) for key in "ab"])
    driver.pipe([Input(topic="products", key="a", value=None)])

    assert [row["id"] for row in driver.rows("products")] == ["b"]
    assert [(row["price"], row["products"]) for row in driver.rows("prices")] == [(1, 1)]
