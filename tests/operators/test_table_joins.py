"""Rows of a stream joined with a table: as of their time, before them in the log, or as a global table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.oracle_joins import (
    Event,
    Placing,
    arrivals,
    as_of,
    closing,
    lesser_of,
    logs,
    moment,
    newest_seen,
    still_asked,
)
from support.plans import executed_plan

from kappa import Append, Effects, Slice, Source, Topology
from kappa.errors import TopologyError
from kappa.operators import lookup, newest_by, newest_table_join, running_total, table_join
from kappa.testing import Input, TopologyDriver, assert_slice_invariant
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

ROW = "id STRING, value INT, at BIGINT"
NAMED, CODE = "id STRING, name STRING", "code STRING, name STRING"
GRACE = {"orders": 1_000, "products": 2_000}


def source(topic: str, **event_time: str) -> Source:
    """The source of a topic; null values of products delete."""
    keys = {"key_schema": "id STRING", "tombstones": True} if topic == "products" else {}
    return Source(topic=topic, schema=ROW, **keys, **event_time)  # type: ignore[arg-type]


TIMED = [source(topic, time="at", grace=f"{ms} milliseconds") for topic, ms in GRACE.items()]
PLAIN = [source(topic) for topic in GRACE]
AS_OF = {
    how: table_join(*TIMED, key="id", how=how, tables=(f"{how}_waiting", f"{how}_versions"))  # type: ignore[arg-type]
    for how in ("inner", "left")
}
NEWEST = {
    how: newest_table_join(*PLAIN, key="id", how=how, table=f"{how}_products")  # type: ignore[arg-type]
    for how in ("inner", "left")
}

LOOKUP = lookup(*PLAIN, key="id", table="products")


def as_of_step(slice: Slice) -> Effects:
    """Orders with the product as it was at their time."""
    for join in AS_OF.values():
        join(slice)
    return {}


as_of_topology = Topology(
    name="inventory.enriched",
    version="1",
    sources=TIMED,
    operators=list(AS_OF.values()),
    outputs=[Append(name=f"{how}_rows", of=join.rows) for how, join in AS_OF.items()],
    step=as_of_step,
)


def newest_step(slice: Slice) -> Effects:
    """Orders with the product that was last before them, by a join of streams and by a global table."""
    orders, products = slice["orders"], slice["products"]
    for join in NEWEST.values():
        join(slice, orders, products)
    LOOKUP(slice, orders, products)
    return {}


newest_topology = Topology(
    name="inventory.newest",
    version="1",
    sources=PLAIN,
    operators=[*NEWEST.values(), LOOKUP],
    outputs=[
        *(Append(name=f"{how}_rows", of=join.rows) for how, join in NEWEST.items()),
        Append(name="lookup_rows", of=LOOKUP.rows),
    ],
    step=newest_step,
)


def driver_of(session: SparkSession, topology: Topology, *, partitions: int = 1) -> TopologyDriver:
    return TopologyDriver(topology, session, partitions=dict.fromkeys(GRACE, partitions))


def order(at: int, value: int = 1, id: str | None = "a", sent: int | None = None, topic: str = "orders") -> Event:
    return Event(topic=topic, id=id, value=value, at=at, sent=max(at, 0) if sent is None else sent)


def product(at: int, value: int | None, id: str | None = "a", sent: int | None = None) -> Event:
    return order(at, value, id, sent, "products")  # type: ignore[arg-type]


def run(driver: TopologyDriver, *batches: Sequence[Event]) -> None:
    for batch in batches:
        driver.pipe(event.input for event in batch)


def values(driver: TopologyDriver, output: str) -> list[tuple[Any, Any]]:
    return sorted(((row["value"], row["value_right"]) for row in driver.rows(output)), key=repr)


def test_a_row_is_joined_with_the_version_of_its_own_time(spark: SparkSession) -> None:
    driver = driver_of(spark, as_of_topology)

    run(
        driver,
        [product(10_000, 10), product(11_000, 20), product(20_000, 99, "b")],
        [order(9_999, 1), order(10_000, 2), order(10_999, 3), order(11_000, 4), order(20_000, 5)],
    )

    assert values(driver, "left_rows") == [(1, None), (2, 10), (3, 10), (4, 20)]
    assert values(driver, "inner_rows") == [(2, 10), (3, 10), (4, 20)]


def test_a_row_waits_until_both_frontiers_are_past_its_time(spark: SparkSession) -> None:
    driver = driver_of(spark, as_of_topology)

    run(driver, [product(10_000, 10), order(10_000, 1)], [product(12_000, 20), order(11_001, 2)])
    before = [(values(driver, "left_rows"), [row["value"] for row in driver.rows("left_waiting")])]
    run(driver, [product(12_001, 30)])

    assert before == [([], [1, 2])]
    assert values(driver, "left_rows") == [(1, 10)]
    assert [row["value"] for row in driver.rows("left_waiting")] == [2]


def test_rows_are_emitted_in_order_of_their_times(spark: SparkSession) -> None:
    # The second order is behind the first one in time, and comes when the table's frontier is past both.
    log = [order(10_500, 1), product(30_000, 9, "z"), order(10_000, 2), order(30_000, 3)]
    small, large = driver_of(spark, as_of_topology), driver_of(spark, as_of_topology)

    run(small, *([event] for event in log))
    run(large, log)

    assert [[row["value"] for row in driver.rows("left_rows")] for driver in (small, large)] == [[2, 1], [2, 1]]
    assert [row["_order_timestamp"] for row in large.rows_in_order("left_rows")] == [moment(10_000), moment(10_500)]


def test_a_row_without_a_key_is_kept_by_a_left_join(spark: SparkSession) -> None:
    driver = driver_of(spark, as_of_topology)

    run(driver, [product(10_000, 10), product(10_000, 11, None), order(10_000, 1, None), order(20_000, 2)])
    waiting = [[row["value"] for row in driver.rows(f"{how}_waiting")] for how in AS_OF]
    run(driver, [product(20_000, 20), order(1_000, 3, None)])

    assert waiting == [[2], [1, 2]]
    assert (values(driver, "inner_rows"), values(driver, "left_rows")) == ([], [(1, None)])
    assert [row["_offset"] for row in driver.rows_in_order("late_records")] == [2]


def spread_step(slice: Slice) -> Effects:
    """Lines of orders with the last of the prices that their record gives of a product, as of their time and newest."""
    lines = slice["orders"].selectExpr("* EXCEPT (rows)", "INLINE(rows)")
    prices = slice["products"].selectExpr("* EXCEPT (rows)", "INLINE(rows)")
    SPREAD(slice, lines, prices)
    SPREAD_NEWEST(slice, lines, prices)
    SPREAD_LOOKUP(slice, lines, prices)
    return {}


SPREAD_ROW = "id STRING, value INT"
SPREAD_SOURCES = [
    Source(topic=topic, schema="rows ARRAY<STRUCT<id: STRING, value: INT>>, at BIGINT", time="at", grace="1 second")
    for topic in GRACE
]
SPREAD = table_join(
    *SPREAD_SOURCES, key="id", tables=("waiting", "versions"), left_rows=SPREAD_ROW, version_rows=SPREAD_ROW
)
SPREAD_NEWEST = newest_table_join(
    *SPREAD_SOURCES, key="id", table="products", left_rows=SPREAD_ROW, table_rows=SPREAD_ROW
)
SPREAD_LOOKUP = lookup(*SPREAD_SOURCES, key="id", table="small", left_rows=SPREAD_ROW, table_rows=SPREAD_ROW)
spread = Topology(
    name="inventory.spread",
    version="1",
    sources=SPREAD_SOURCES,
    operators=[SPREAD, SPREAD_NEWEST, SPREAD_LOOKUP],
    outputs=[
        Append(name="as_of", of=SPREAD.rows),
        Append(name="newest", of=SPREAD_NEWEST.rows),
        Append(name="looked_up", of=SPREAD_LOOKUP.rows),
    ],
    step=spread_step,
)


def test_a_record_may_have_several_rows_per_key(spark: SparkSession) -> None:
    def record(topic: str, at: int, *rows: tuple[str | None, int]) -> Input:
        listed = [{"id": id, "value": value} for id, value in rows]
        return Input(topic=topic, value={"rows": listed, "at": at}, timestamp_ms=at)

    log = [
        record("products", 1_000, ("a", 20), ("b", 5), ("a", 10), ("a", 20)),
        record("orders", 1_500, ("a", 2), (None, 7), ("a", 1), ("a", 2)),
        record("products", 5_000, ("c", 30)),
        record("orders", 5_001, ("c", 3)),
    ]
    driver = TopologyDriver(spread, spark)
    driver.pipe(log[:2])
    state = {name: [(row["_row"], row["value"]) for row in driver.rows(name)] for name in ("waiting", "versions")}
    driver.pipe(log[2:])

    assert state == {"waiting": [(1, 7), (2, 1), (3, 2), (4, 2)], "versions": [(1, 20), (1, 5)]}
    assert values(driver, "as_of") == [(1, 20), (2, 20), (2, 20), (7, None)]
    assert values(driver, "newest") == values(driver, "looked_up")
    assert values(driver, "newest") == [(1, 20), (2, 20), (2, 20), (3, 30), (7, None)]
    assert_slice_invariant(spread, log, spark, cuts=1, by_arrival=True)


def test_a_late_version_is_valid_from_the_frontier_at_its_record(spark: SparkSession) -> None:
    driver = driver_of(spark, as_of_topology)

    # The frontier is at 10,000 when a version of 5,000 comes: what is before that has been told.
    run(
        driver,
        [product(1_000, 10), product(12_000, 99, "b"), product(5_000, 20), product(4_000, 30)],
        [product(20_000, 99, "b"), order(9_999, 1), order(10_000, 2), order(20_000, 3)],
    )

    assert values(driver, "left_rows") == [(1, 10), (2, 20)]
    assert driver.rows("late_records") == []


def test_the_last_of_versions_with_the_same_time_counts(spark: SparkSession) -> None:
    driver = driver_of(spark, as_of_topology)

    run(
        driver,
        [product(10_000, 10), product(10_000, 20)],
        [order(10_000, 1), product(20_000, 99, "b"), order(20_000, 2)],
    )

    assert values(driver, "left_rows") == [(1, 20)]


def test_a_null_value_ends_a_version_at_the_time_of_its_partition(spark: SparkSession) -> None:
    driver = driver_of(spark, as_of_topology)

    run(
        driver,
        [product(10_000, 10), product(12_000, 98, "b"), product(0, None, sent=900_000)],
        [order(11_999, 1), order(12_000, 2), product(20_000, 99, "b"), order(20_000, 3)],
    )

    assert values(driver, "left_rows") == [(1, 10), (2, None)]
    assert values(driver, "inner_rows") == [(1, 10)]


def test_versions_are_removed_once_no_row_can_need_them(spark: SparkSession) -> None:
    driver = driver_of(spark, as_of_topology)

    run(driver, [product(10_000, 10), product(11_000, 20), order(10_500, 1)], [product(30_000, 99, "b")])
    before = sorted(row["value"] for row in driver.rows("left_versions"))
    run(driver, [order(12_000, 2, "b")])  # the lesser frontier comes to 11,000

    assert before == [10, 20, 99]
    assert sorted(row["value"] for row in driver.rows("left_versions")) == [20, 99]


def test_a_late_row_of_the_stream_is_refused(spark: SparkSession) -> None:
    driver = driver_of(spark, as_of_topology)

    late = [order(10_000, 1, "b"), order(8_999, 2), order(9_000, 3), order(20_000, 4)]
    run(driver, [product(1_000, 10), *late, product(20_000, 99, "c")])

    assert values(driver, "left_rows") == [(1, None), (3, 10)]
    assert [row["operator"] for row in driver.rows("late_records")] == ["table_join"] * len(AS_OF)


def test_a_row_is_joined_with_the_table_before_it_even_within_a_slice(spark: SparkSession) -> None:
    driver = driver_of(spark, newest_topology)

    run(
        driver,
        [product(0, 10, sent=1), order(0, 1, sent=2), product(0, 20, sent=3), order(0, 2, sent=3)],
        [order(0, 3, sent=4), product(0, None, sent=5), order(0, 4, sent=6), order(0, 5, None, sent=7)],
    )

    # At equal times the topic decides: order 2 is before product 20.
    assert values(driver, "left_rows") == [(1, 10), (2, 10), (3, 20), (4, None), (5, None)]
    assert values(driver, "inner_rows") == [(1, 10), (2, 10), (3, 20)]
    assert values(driver, "lookup_rows") == [(1, 10), (2, 10), (3, 20), (4, None), (5, None)]
    assert [driver.rows(name) for name in ("inner_products", "left_products", "products")] == [[], [], []]


def test_a_lookup_reads_an_unchanged_table_directly(spark: SparkSession) -> None:
    lines, codes = (Source(topic=topic, schema=ddl) for topic, ddl in (("rows", NAMED), ("codes", CODE)))
    table = spark.createDataFrame([("a", "Ada")], CODE)
    place = "TIMESTAMP_SECONDS(0) AS _order_timestamp, 'rows' AS _topic, 0 AS _partition, 0L AS _offset"
    rows = spark.createDataFrame([("a", "x"), ("b", "y"), (None, "z")], NAMED).selectExpr("*", *place.split(", "))
    records = {"rows": rows, "codes": rows.limit(0).selectExpr("id AS code", "name", *place.split(", "))}

    def seen(how: str) -> DataFrame:
        operator = lookup(lines, codes, key={"id": "code"}, table="known", how=how)  # type: ignore[arg-type]
        return operator(Slice(seq=1, records=records, tables={"known": table})).rows

    assert seen("left").columns[:3] == ["id", "name", "name_right"]
    expected = {("a", "Ada"), ("b", None), (None, None)}
    assert {(row["id"], row["name_right"]) for row in seen("left").collect()} == expected
    assert [row["id"] for row in seen("inner").collect()] == ["a"]
    plan = executed_plan(seen("left"))
    assert "BroadcastHashJoin" in plan
    assert "hashpartitioning(id" not in plan.split("Union")[0]


@pytest.mark.parametrize("topology", ["as_of", "newest"])
def test_rows_are_not_compared_with_all_versions_of_their_key(spark: SparkSession, topology: str) -> None:
    order = "'t' AS _topic, 0 AS _partition, id AS _offset, TIMESTAMP_SECONDS(id) AS _order_timestamp"
    times = "TIMESTAMP_SECONDS(id) AS _event_time, CAST(NULL AS TIMESTAMP) AS _frontier"
    rows = spark.range(3).selectExpr("'a' AS id", "1 AS value", "id AS at", *order.split(", "), *times.split(", "))
    none, records = rows.limit(0), dict.fromkeys(GRACE, rows)

    if topology == "as_of":
        state = none.selectExpr("*", "1 AS _row").drop("_frontier")
        versions = state.selectExpr("*", "_event_time AS _valid_from", "FALSE AS _is_tombstone")
        frontiers = dict.fromkeys(GRACE, Frontier(ms=10**12))
        tables = {"inner_waiting": state, "inner_versions": versions}
        joined = AS_OF["inner"](Slice(seq=1, records=records, tables=tables, frontiers=frontiers)).rows
    else:
        tables = {"inner_products": none.select("id", "value", "at")}
        joined = NEWEST["inner"](Slice(seq=1, records=records, tables=tables)).rows

    assert [row["value_right"] for row in joined.collect()] == [1] * (3 if topology == "as_of" else 2)
    assert "Join" not in executed_plan(joined)


def test_a_lookup_compares_only_by_key(spark: SparkSession) -> None:
    place = "TIMESTAMP_SECONDS(id) AS _order_timestamp, 't' AS _topic, 0 AS _partition, id AS _offset"
    # Of a constant Spark makes no key at all.
    rows = spark.range(3).selectExpr("CAST(id DIV 100 AS STRING) AS id", "id AS at", *place.split(", "))
    stream = Source(topic="t", schema="id STRING, at BIGINT")
    looked_up = lookup(stream, stream, key="id", table="known")

    joined = looked_up(Slice(seq=1, records={"t": rows}, tables={"known": rows.limit(0).select("id", "at")})).rows

    assert {(row["at"], row["at_right"]) for row in joined.collect()} == {(0, None), (1, 0), (2, 1)}
    plan = executed_plan(joined)
    assert "BroadcastHashJoin" in plan and " >= " not in plan and " < " not in plan


CLICKS, GOALS = Source(topic="clicks", schema="id STRING, n INT"), Source(topic="goals", schema="id STRING, by INT")
SCORED = running_total(GOALS, key="id", amount="by", total="score", table="scores")
CLICKED = lookup(CLICKS, SCORED, key="id")
scored = Topology(
    name="games.scored",
    version="1",
    sources=[CLICKS, GOALS],
    operators=[SCORED, CLICKED],
    outputs=[Append(name="clicked", of=CLICKED.rows)],
)


def test_a_lookup_of_a_running_total_reads_the_total_before_each_row(spark: SparkSession) -> None:
    def event(topic: str, at: int, id: str | None, number: int) -> Input:
        return Input(topic=topic, value={"id": id, "n" if topic == "clicks" else "by": number}, timestamp_ms=at)

    log = [
        *(event("clicks", 1, "a", 1), event("goals", 2, "a", 5), event("clicks", 3, "a", 2)),
        *(event("goals", 4, "a", -3), event("goals", 5, None, 9), event("clicks", 6, "a", 3)),
        *(event("clicks", 7, None, 4), event("clicks", 8, "b", 5)),
    ]
    driver = TopologyDriver(scored, spark)
    driver.pipe(log)
    assert [(row["n"], row["score"]) for row in driver.rows_in_order("clicked")] == [
        *((1, None), (2, 5), (3, 2), (4, None), (5, None))
    ]
    assert driver.rows("scores") == [{"id": "a", "score": 2}]
    assert CLICKED.tables == () and CLICKED.rows.cuts == "time"
    parts = TopologyDriver(scored, spark)
    for part in (log[:2], log[2:5], log[5:]):
        parts.pipe(part)
    assert parts.rows("clicked") == driver.rows("clicked")


def test_a_lookup_reads_the_last_total_of_a_record(spark: SparkSession) -> None:
    lines = Source(topic="goals", schema="by ARRAY<INT>")
    sums = running_total(lines, key="id", amount="points", total="score", table="scores", rows="id STRING, points INT")
    scores = lookup(CLICKS, sums, key="id")

    def step(slice: Slice) -> Effects:
        sums(slice, slice["goals"].selectExpr("*", "'a' AS id", "EXPLODE(by) AS points"))
        scores(slice)
        return {}

    topology = Topology(
        name="games.sums",
        version="1",
        sources=[CLICKS, lines],
        operators=[sums, scores],
        outputs=[Append(name="clicked", of=scores.rows)],
        step=step,
    )
    click = Input(topic="clicks", value={"id": "a", "n": 1}, timestamp_ms=9)
    goals = Input(topic="goals", value={"by": [7, -5]}, timestamp_ms=1)
    for parts in ([[goals, click]], [[goals], [click]]):
        driver = TopologyDriver(topology, spark)
        for part in parts:
            driver.pipe(part)
        assert [row["score"] for row in driver.rows("clicked")] == [2], parts


def test_invalid_lookups_are_refused(spark: SparkSession) -> None:
    products = newest_by(PLAIN[1], key="id", table="products")
    pairs = running_total(GOALS, key=["id", "by"], total="times", table="pairs")
    maps = Source(topic="maps", schema="id STRING, k MAP<STRING, INT>")
    for declare, words in (
        (lambda: lookup(spark.range(1), spark.range(1), on="id"), r"lookup\(orders, products, key='sku'"),
        (lambda: lookup(CLICKS, GOALS, key="id"), "has no name for it"),
        (lambda: lookup(CLICKS, SCORED, key="id", table="t"), "that operator keeps the table"),
        (lambda: lookup(CLICKS, products, key="id"), "newest_by 'products', which has only the newest"),
        (lambda: lookup(CLICKS, pairs, key="id"), r"whose key is \['id', 'by'\]"),
        (lambda: lookup(CLICKS, SCORED, key={"n": "id"}), "Cast one of them"),
        (lambda: lookup(maps, maps, key=["id", "k"], table="t"), "which is MAP<STRING, INT>, and maps cannot be"),
        (lambda: lookup(CLICKS, GOALS, key="code", table="t"), "no column 'code'"),
        (lambda: lookup(CLICKS, GOALS, key="id", how="outer", table="t"), "inner, left"),
    ):
        with pytest.raises(TopologyError, match=words):
            declare()  # type: ignore[no-untyped-call]

    def choose(slice: Slice) -> Effects:
        CLICKED(slice, None, SCORED(slice).rows.where("score > 1"))
        return {}

    driven = TopologyDriver(replace(scored, step=choose), spark)
    with pytest.raises(TopologyError, match="Call it without rows; select rows"):
        driven.pipe([Input(topic="goals", value={"id": "a", "by": 1})])


def test_invalid_declarations_are_refused() -> None:
    with pytest.raises(TopologyError, match="inner, left"):
        table_join(*TIMED, key="id", how="outer", tables=("waiting", "versions"))  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="Did you mean 'id'"):
        newest_table_join(*PLAIN, key="ids", table="products")
    clash = Source(topic="t", schema="id STRING, value INT, value_right INT")
    with pytest.raises(TopologyError, match="value_right"):
        lookup(clash, clash, key="id", table="t")


def test_state_of_another_declaration_has_another_shape() -> None:
    other = table_join(*TIMED, key={"id": "id", "at": "at"}, how="left", tables=("left_waiting", "left_versions"))

    assert other.tables[1].made_by != AS_OF["left"].tables[1].made_by
    assert other.tables[1].key == ("id", "at", "_topic", "_partition", "_offset", "_row")


def check_as_of_against_oracle(session: SparkSession, seed: int, *, records: int = 30, slices: int = 6) -> None:
    """Rows, state and late records after each slice, of a history in which one source is behind the other."""
    chance = random.Random(seed)
    behind = chance.choice(["orders", "products", ""])
    driver = driver_of(session, as_of_topology, partitions=2)
    placing = Placing(grace=GRACE)
    events_of: dict[str, list[Event]] = {topic: [] for topic in GRACE}
    log = logs(chance, list(GRACE), records=records, tombstones="products")
    for number, batch in enumerate([*arrivals(chance, log, slices=slices, behind=behind), closing(GRACE)]):
        for event in placing.place(batch):
            events_of[event.topic].append(event)
        run(driver, batch)
        place = f"seed {seed}, slice {number}, behind: {behind}"
        reached = {topic: placing.frontier(topic) for topic in GRACE}
        due = lesser_of(*reached.values())
        versions = still_asked(events_of["products"], since=due)
        for how in AS_OF:
            admitted = [e for e in events_of["orders"] if e.is_in_time and (e.id is not None or how == "left")]
            waiting = [e.value for e in admitted if due is None or e.at >= due]
            rows = as_of(events_of["orders"], events_of["products"], how=how, frontier=due)
            assert values(driver, f"{how}_rows") == pairs(rows), f"{how} rows; {place}"
            assert sorted(row["value"] for row in driver.rows(f"{how}_waiting")) == sorted(waiting), f"waiting; {place}"
            versions_kept = sorted((row["_partition"], row["_offset"]) for row in driver.rows(f"{how}_versions"))
            assert versions_kept == sorted((one.partition, one.offset) for one in versions), f"versions; {place}"
    late = sorted(row["_offset"] for row in driver.rows_in_order("late_records"))
    refused = [
        e for how in AS_OF for e in events_of["orders"] if not e.is_in_time and (e.id is not None or how == "left")
    ]
    assert late == sorted(event.offset for event in refused), f"late; seed {seed}"


def pairs(rows: list[tuple[Event, Event | None]]) -> list[tuple[Any, Any]]:
    return sorted(((left.value, right and right.value) for left, right in rows), key=repr)


@pytest.mark.parametrize("seed", range(2))
def test_as_of_joins_match_the_definition(spark: SparkSession, seed: int) -> None:
    check_as_of_against_oracle(spark, seed)


@pytest.mark.parametrize("seed", range(2))
def test_newest_rows_are_the_last_ones_before_in_the_log(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    driver = driver_of(spark, newest_topology, partitions=2)
    placing, table = Placing(grace=GRACE), {"inner": dict[str, Event](), "left": dict[str, Event]()}
    expected: dict[str, list[tuple[Event, Event | None]]] = {"inner": [], "left": []}
    log = logs(chance, list(GRACE), records=30, tombstones="products")
    for batch in arrivals(chance, log, slices=4):
        placed = list(placing.place(batch))
        for how, rows in expected.items():
            rows.extend(newest_seen(placed, table[how], rows="orders", how=how))
        run(driver, batch)

    for how, rows in expected.items():
        assert values(driver, f"{how}_rows") == pairs(rows), f"{how}; seed {seed}"
        assert {row["id"]: row["value"] for row in driver.rows(f"{how}_products")} == {
            id: event.value for id, event in table[how].items()
        }, f"table, {how}; seed {seed}"
    assert values(driver, "lookup_rows") == pairs(expected["left"]), f"lookup; seed {seed}"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 40))
def test_more_as_of_joins_match_the_definition(spark: SparkSession, seed: int) -> None:
    check_as_of_against_oracle(spark, seed, records=60, slices=12)


def two_joins(returns_versions: str) -> Topology:
    """Orders and returns with one table of products; their versions in a table of this name for the returns."""
    orders, returns, products = (
        Source(topic=topic, schema=ROW, time="at", grace="0 seconds") for topic in ("orders", "returns", "products")
    )
    joins = [
        table_join(left, products, key="id", tables=(f"waiting_{left.topic}", versions))
        for left, versions in ((orders, "versions"), (returns, returns_versions))
    ]
    return Topology(
        name="inventory.two_joins",
        version="1",
        sources=[orders, returns, products],
        operators=joins,
        outputs=[
            Append(name=f"{topic}_rows", of=join.rows) for topic, join in zip(("orders", "returns"), joins, strict=True)
        ],
    )


def test_versions_of_two_joins_are_removed_by_their_own_frontiers(spark: SparkSession) -> None:
    driver = TopologyDriver(two_joins("returns_versions"), spark)

    first = [product(0, 10), product(10_000, 20), product(30_000, 99, "b"), order(20_000, 1)]
    run(driver, [*first, order(1_000, 2, "b", topic="returns")])
    run(driver, [order(5_000, 3, topic="returns"), order(6_000, 4, topic="returns")])

    assert values(driver, "returns_rows") == [(2, None), (3, 10)]
    # The orders' frontier is at 20,000, that of the returns at 6,000: the first version is still asked for.
    versions = {name: sorted(row["value"] for row in driver.rows(name)) for name in ("versions", "returns_versions")}
    assert versions == {"versions": [20, 99], "returns_versions": [10, 20, 99]}


def test_versions_shared_by_the_tables_of_two_joins_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"declares table or output \['versions'\] more than once"):
        two_joins("versions")
