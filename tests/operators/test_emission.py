"""The order of emission: final rows are sent, and are newest, in one order, wherever slices end."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from kappa import Append, Source, Topic, Topology, operators
from kappa.errors import TopologyError
from kappa.operators import (
    agg,
    aggregate,
    at_most_every,
    deduplicate,
    hopping_window,
    interval_join,
    newest,
    newest_by,
    running_total,
    session_window,
    sliding_window,
    table_join,
    tumbling_window,
)
from kappa.operators.origin import ORDERS, ORIGIN_TYPE, order_of, ordered
from kappa.operators.timed.windowed import Windowed
from kappa.spark.catalyst import is_union
from kappa.testing import BEGIN, Input, TopologyDriver, assert_slice_invariant
from kappa.topology import Effects, Slice, Table
from kappa.topology.operator import Operator
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SALE = "store STRING NOT NULL, at BIGINT NOT NULL"
COUNT = {"n": agg.count()}
KEYED: dict[str, Any] = {"key": "store", "table": "state"}
#: Operators without their source.
OPERATORS: dict[str, Callable[[Source], Operator[Any]]] = {
    "tumbling": partial(tumbling_window, **KEYED, size="1 minute", aggregates=COUNT),
    "hopping": partial(hopping_window, **KEYED, size="1 minute", every="20 seconds", aggregates=COUNT),
    "session": partial(session_window, **KEYED, gap="5 seconds", aggregates=COUNT),
    "sliding": partial(sliding_window, **KEYED, size="10 seconds", aggregates=COUNT),
    "paced": partial(at_most_every, **KEYED, every="1 minute"),
    "distinct": partial(deduplicate, **KEYED, within="5 seconds", emit="final"),
}
#: What is kept of each operator's last row.
TIMES = {
    "tumbling": "window_start",
    "hopping": "window_start",
    "session": "session_start",
    "sliding": "window_start",
    "paced": "boundary",
    "distinct": "at",
}


def sale(store: str, second: float, partition: int = 0) -> Input:
    value = {"store": store, "at": round(second * 1000)}
    return Input(topic="pos", value=value, partition=partition, timestamp_ms=round(second * 1000))


#: S1's window from 0 on gets its last record after the one from 60 on has its first.
OUT_OF_ORDER = [sale("S1", 5), sale("S1", 65), sale("S1", 58), sale("S2", 71), sale("S2", 131), sale("S1", 200)]


def topology(name: str) -> Topology:
    pos, time = Source(topic="pos", schema=SALE, time="at", grace="10 seconds"), TIMES[name]
    operator = OPERATORS[name](pos)
    assert operator.emits is not None
    last = newest_by(operator.emits, key="store", table="by_newest_by")
    totals = aggregate(operator.emits, key="store", aggregates={"last": agg.last(time)}, table="by_last")
    counted = running_total(operator.emits, key="store", total="nth", table="nth")

    def step(slice: Slice) -> Effects:
        result = operator(slice)
        final = result.final if isinstance(result, Windowed) else result.rows
        for one in (counted, last, totals):
            one(slice)
        return {"by_newest": newest(final, key="store")}

    return Topology(
        name="ops.emission",
        version="1",
        sources=[pos],
        operators=[operator, last, totals, counted],
        tables=[Table(name="by_newest", key=["store"], schema=operator.schema)],
        outputs=[
            Append(name="final", of=operator.emits),
            Append(name="numbered", of=counted.rows),
            Topic(name="final", of="final", key="store"),
            Topic(name="newest-window", of="by_newest", key="store"),
        ],
        step=step,
    )


def ran(name: str, slices: Sequence[Sequence[Input]], spark: SparkSession, partitions: int = 1) -> TopologyDriver:
    driver = TopologyDriver(topology(name), spark, partitions={"pos": partitions})
    for part in slices:
        driver.pipe(part)
    return driver


def sent(driver: TopologyDriver) -> list[dict[str, Any]]:
    return [json.loads(value or b"") for _, value in driver.sent("final")]


def test_closed_windows_are_sent_in_order_of_their_ends(spark: SparkSession) -> None:
    drivers = [ran("tumbling", slices, spark) for slices in ([OUT_OF_ORDER], [[one] for one in OUT_OF_ORDER])]

    ends = [[(row["store"], row["window_end"][14:19]) for row in sent(driver)] for driver in drivers]
    assert ends[0] == ends[1] == [("S1", "01:00"), ("S1", "02:00"), ("S2", "02:00"), ("S2", "03:00")]


@pytest.mark.parametrize("name", OPERATORS)
def test_the_last_final_row_is_the_newest(spark: SparkSession, name: str) -> None:
    drivers = [ran(name, slices, spark) for slices in ([OUT_OF_ORDER], [OUT_OF_ORDER[:5], OUT_OF_ORDER[5:]])]

    time = TIMES[name]
    for driver in drivers:
        greatest = {store: max(row[time] for row in sent_rows(driver, store)) for store in ("S1", "S2")}
        for table, column in (("by_newest", time), ("by_newest_by", time), ("by_last", "last")):
            assert {row["store"]: row[column] for row in driver.rows(table)} == greatest, table


def sent_rows(driver: TopologyDriver, store: str) -> list[dict[str, Any]]:
    return [row for row in driver.rows("final") if row["store"] == store]


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_are_sent_in_one_order_under_every_cut(spark: SparkSession, name: str) -> None:
    chance = random.Random(name)
    log = history(chance)
    whole = ran(name, [log], spark, 2)
    lagging = [one for one in log if one.partition], [one for one in log if not one.partition]

    for slices in ([[one] for one in log], lagging, arrival(chance, log)):
        assert sent(ran(name, slices, spark, 2)) == sent(whole)
    assert len(sent(whole)) > 3


def history(chance: random.Random) -> list[Input]:
    """Records of two partitions, some of them late and many of one time; at last one of each far ahead."""
    at, log = [0, 0], []
    for _ in range(14):
        partition = chance.randrange(2)
        at[partition] += chance.choice((0, 2, 15, 30))
        log.append(sale(chance.choice("abc"), max(0, at[partition] - chance.choice((0, 0, 5, 9))), partition))
    return [*log, sale("z", 900, 0), sale("z", 900, 1)]


def arrival(chance: random.Random, log: Sequence[Input]) -> list[list[Input]]:
    """Each partition at its own pace."""
    slices: list[list[Input]] = [[] for _ in range(4)]
    for partition in (0, 1):
        number = 0
        for one in (one for one in log if one.partition == partition):
            number = min(3, number + chance.choice((0, 0, 0, 1)))
            slices[number].append(one)
    return [part for part in slices if part]


def test_an_honest_topology_of_windows_with_a_topic_is_slice_invariant(spark: SparkSession) -> None:
    assert_slice_invariant(topology("tumbling"), OUT_OF_ORDER, spark, cuts=1)


def test_a_declared_order_that_is_not_kept_is_reported(spark: SparkSession) -> None:
    honest = topology("tumbling")
    hours, *_ = honest.operators

    def step(slice: Slice) -> Effects:
        astray = hours(slice).final.withColumn("_order_timestamp", F.lit(BEGIN))
        return {"final": ordered(astray, "topic") if declared else astray}

    outputs = [output for output in honest.outputs if output.name == "final"]
    odd = replace(honest, operators=[hours], tables=[], outputs=outputs, step=step)
    declared = False
    assert_slice_invariant(odd, OUT_OF_ORDER, spark, cuts=0, by_arrival=True)
    declared = True
    with pytest.raises(AssertionError, match="topic final depends on how the log is cut"):
        assert_slice_invariant(odd, OUT_OF_ORDER, spark, cuts=0, by_arrival=True)


def test_rows_of_two_operators_in_one_topic_are_ordered_per_key(spark: SparkSession) -> None:
    driver = TopologyDriver(topology("tumbling"), spark)
    driver.pipe(OUT_OF_ORDER)
    assert driver.orders == {"final": "topic", "numbered": "topic", "late_records": None}
    final = ordered(spark.sql("SELECT TIMESTAMP'2026-01-01' AS _order_timestamp"), "topic")
    assert (is_union(final.where("TRUE")), is_union(final.unionByName(final).select("*"))) == (False, True)
    assert order_of(final.selectExpr("_order_timestamp", "1 AS one")) == "topic"


def test_newest_refuses_pairs_and_newest_by_orders_them(spark: SparkSession) -> None:
    pairs = (
        "SELECT 'a' AS k, n, TIMESTAMP'2026-01-01' AS _order_timestamp, 't' AS _topic, 0 AS _partition, 0L AS _offset"
    )
    both = ordered(spark.sql(f"{pairs} FROM VALUES (1), (2) AS t(n)"), "contributor")
    with pytest.raises(TopologyError, match="pairs of a join"):
        newest(both, key="k")

    last = newest_by(Source(topic="t", schema="k STRING, n INT"), key="k", table="last")

    def changes(condition: str, before: DataFrame) -> DataFrame:
        slice = Slice(seq=1, records={"t": both.where(condition)}, tables={"last": before})
        last(slice)
        return slice.calls.changes["last"]

    nothing = spark.createDataFrame([], f"k STRING, n INT, origin {ORIGIN_TYPE}")
    for first, second in (("n = 1", "n = 2"), ("n = 2", "n = 1")):
        earlier = changes(first, nothing)
        later = changes(second, earlier.drop("_deleted"))
        assert [row["n"] for row in (later if first == "n = 1" else earlier).collect()] == [2]
        assert later.count() == (first == "n = 1")


def test_every_operator_declares_its_order() -> None:
    others = {"agg", "masked", "rekey", "versions_by"}  # the last one has a table for joins alone
    assert set(ORDERS) == set(operators.__all__) - others


def test_joins_mark_the_order_of_their_rows(spark: SparkSession) -> None:
    at = "TIMESTAMP'2026-01-01'"
    times = ", ".join(f"{at} AS {name}" for name in ("_event_time", "_frontier", "_order_timestamp"))
    rows = spark.sql(f"SELECT 'a' AS k, 1 AS n, {times}, 't' AS _topic, 0 AS _partition, 0L AS _offset")
    both = Source(topic="t", schema="k STRING, n INT", grace="0 seconds")
    paid = interval_join(both, both, key="k", within="1 minute", tables=("l", "r"), left_rows="k STRING")
    priced = table_join(both, both, key="k", tables=("w", "v"), left_rows="k STRING")
    before = {table.name: spark.createDataFrame([], table.schema) for table in (*paid.tables, *priced.tables)}
    slice = Slice(seq=1, records={"t": rows}, tables=before, frontiers={"t": Frontier(ms=0)})
    assert (order_of(paid(slice).rows), order_of(priced(slice).rows)) == ("contributor", "topic")
