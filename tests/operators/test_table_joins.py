"""Rows of a stream with what a table had for them: as of their time, before them in the log, or in a global table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from support.oracle_joins import Event, Placing, arrivals, as_of, closing, logs, newest_seen, still_asked
from support.plans import executed_plan

from kappa import Append, Effects, Slice, Source, Topology
from kappa.errors import TopologyError
from kappa.operators import lookup, newest_table_join, table_join, tombstones
from kappa.testing import TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

ROW = "id STRING, value INT, at BIGINT"
GRACE = {"orders": 1_000, "products": 2_000}
AS_OF = {how: table_join(left=ROW, table=ROW, key="id", how=how) for how in ("inner", "left")}
NEWEST = {how: newest_table_join(left=ROW, table=ROW, key="id", how=how) for how in ("inner", "left")}


def source(topic: str, **event_time: str) -> Source:
    """Products are a table of which null values delete."""
    keys = {"key_schema": "id STRING", "tombstones": True} if topic == "products" else {}
    return Source(topic=topic, schema=ROW, **keys, **event_time)  # type: ignore[arg-type]


def as_of_step(slice: Slice) -> Effects:
    """Orders with the product as it was at their time."""
    orders, products = slice["orders"], tombstones(slice["products"], key="id")
    effects: Effects = {}
    for how, join in AS_OF.items():
        found = join(
            orders,
            products,
            waiting_before=slice.table(f"{how}_waiting"),
            versions_before=slice.table(f"{how}_versions"),
            left_frontier=slice.frontier("orders"),
            table_frontier=slice.frontier("products"),
        )
        effects = {
            **effects,
            f"{how}_rows": found.rows,
            f"{how}_waiting": found.waiting_changes,
            f"{how}_versions": found.version_changes,
            "late_records": found.late,
        }
    return effects


as_of_topology = Topology(
    name="inventory.enriched",
    version="1",
    sources=[source(topic, time="at", grace=f"{ms} milliseconds") for topic, ms in GRACE.items()],
    tables=[
        table
        for how, join in AS_OF.items()
        for table in (join.waiting_table(f"{how}_waiting"), join.versions_table(f"{how}_versions"))
    ],
    outputs=[Append(name=f"{how}_rows", schema=join.schema) for how, join in AS_OF.items()],
    step=as_of_step,
)


def newest_step(slice: Slice) -> Effects:
    """Orders with the product that was last before them, by a join of streams and by a global table."""
    orders, products = slice["orders"], tombstones(slice["products"], key="id")
    joined = {how: join(orders, products, before=slice.table("products")) for how, join in NEWEST.items()}
    seen = lookup(orders, slice.table("products"), on="id", changes=products)
    return {
        "products": joined["left"].changes,
        "inner_rows": joined["inner"].rows,
        "left_rows": joined["left"].rows,
        "lookup_rows": seen,
    }


newest_topology = Topology(
    name="inventory.newest",
    version="1",
    sources=[source(topic) for topic in GRACE],
    tables=[NEWEST["left"].table("products")],
    outputs=[
        Append(name="inner_rows", schema=NEWEST["inner"].schema),
        Append(name="left_rows", schema=NEWEST["left"].schema),
        Append(name="lookup_rows", schema=f"{ROW}, value_right INT, at_right BIGINT"),
    ],
    step=newest_step,
)


def driver(session: SparkSession, topology: Topology, *, partitions: int = 1) -> TopologyDriver:
    return TopologyDriver(topology, session, partitions=dict.fromkeys(GRACE, partitions))


def order(at: int, value: int = 1, id: str | None = "a", sent: int | None = None, topic: str = "orders") -> Event:
    return Event(topic=topic, id=id, value=value, at=at, sent=max(at, 0) if sent is None else sent)


def product(at: int, value: int | None, id: str | None = "a", sent: int | None = None) -> Event:
    return order(at, value, id, sent, "products")  # type: ignore[arg-type]


def run(found: TopologyDriver, *batches: Sequence[Event]) -> None:
    for batch in batches:
        found.pipe(event.input for event in batch)


def values(found: TopologyDriver, output: str) -> list[tuple[Any, Any]]:
    return sorted(((row["value"], row["value_right"]) for row in found.rows(output)), key=repr)


def test_a_row_sees_the_version_of_its_own_time(spark: SparkSession) -> None:
    found = driver(spark, as_of_topology)

    run(
        found,
        [product(10_000, 10), product(11_000, 20), product(20_000, 99, "b")],
        [order(9_999, 1), order(10_000, 2), order(10_999, 3), order(11_000, 4)],
    )

    assert values(found, "left_rows") == [(1, None), (2, 10), (3, 10), (4, 20)]
    assert values(found, "inner_rows") == [(2, 10), (3, 10), (4, 20)]


def test_a_row_waits_until_the_tables_frontier_is_past_its_time(spark: SparkSession) -> None:
    found = driver(spark, as_of_topology)

    run(found, [product(10_000, 10), order(10_000, 1)], [product(12_000, 20)])
    before = (values(found, "left_rows"), [row["value"] for row in found.rows("left_waiting")])
    run(found, [product(12_001, 30)])

    assert before == ([], [1])
    assert values(found, "left_rows") == [(1, 10)]
    assert found.rows("left_waiting") == []


def test_a_late_version_is_valid_from_the_frontier_at_its_record(spark: SparkSession) -> None:
    found = driver(spark, as_of_topology)

    # The frontier is at 10,000 when a version of 5,000 comes: what is before that has been told.
    run(
        found,
        [product(1_000, 10), product(12_000, 99, "b"), product(5_000, 20), product(4_000, 30)],
        [product(20_000, 99, "b"), order(9_999, 1), order(10_000, 2)],
    )

    assert values(found, "left_rows") == [(1, 10), (2, 20)]
    assert found.rows("late_records") == []


def test_of_versions_with_one_time_the_last_in_the_log_counts(spark: SparkSession) -> None:
    found = driver(spark, as_of_topology)

    run(found, [product(10_000, 10), product(10_000, 20)], [order(10_000, 1), product(20_000, 99, "b")])

    assert values(found, "left_rows") == [(1, 20)]


def test_a_null_value_ends_the_version_before_where_its_partition_stands(spark: SparkSession) -> None:
    found = driver(spark, as_of_topology)

    run(
        found,
        [product(10_000, 10), product(12_000, 98, "b"), product(0, None, sent=900_000)],
        [order(11_999, 1), order(12_000, 2), product(20_000, 99, "b")],
    )

    assert values(found, "left_rows") == [(1, 10), (2, None)]
    assert values(found, "inner_rows") == [(1, 10)]


def test_versions_go_once_no_row_can_ask_for_them(spark: SparkSession) -> None:
    found = driver(spark, as_of_topology)

    run(found, [product(10_000, 10), product(11_000, 20), order(10_500, 1)], [product(30_000, 99, "b")])
    before = sorted(row["value"] for row in found.rows("left_versions"))
    run(found, [order(12_000, 2, "b")])  # the lesser frontier comes to 11,000

    assert before == [10, 20, 99]
    assert sorted(row["value"] for row in found.rows("left_versions")) == [20, 99]


def test_a_late_row_of_the_stream_is_refused(spark: SparkSession) -> None:
    found = driver(spark, as_of_topology)

    run(found, [product(1_000, 10), order(10_000, 1, "b"), order(8_999, 2), order(9_000, 3), product(20_000, 99, "c")])

    assert values(found, "left_rows") == [(1, None), (3, 10)]
    assert [row["operator"] for row in found.rows("late_records")] == ["table_join"]


def test_a_row_sees_the_table_before_it_within_its_slice_too(spark: SparkSession) -> None:
    found = driver(spark, newest_topology)

    run(
        found,
        [product(0, 10, sent=1), order(0, 1, sent=2), product(0, 20, sent=3), order(0, 2, sent=3)],
        [order(0, 3, sent=4), product(0, None, sent=5), order(0, 4, sent=6), order(0, 5, None, sent=7)],
    )

    # At equal times the topic decides: order 2 is before product 20.
    assert values(found, "left_rows") == [(1, 10), (2, 10), (3, 20), (4, None)]
    assert values(found, "inner_rows") == [(1, 10), (2, 10), (3, 20)]
    assert values(found, "lookup_rows") == [(1, 10), (2, 10), (3, 20), (4, None), (5, None)]
    assert found.rows("products") == []


def test_a_lookup_without_changes_sees_the_table_as_it_is(spark: SparkSession) -> None:
    table = spark.createDataFrame([("a", "Ada", 1)], "code STRING, name STRING, _seq INT")
    rows = spark.createDataFrame([("a", "x"), ("b", "y"), (None, "z")], "id STRING, name STRING")

    found = lookup(rows, table, on={"id": "code"})

    assert found.columns == ["id", "name", "name_right"]
    assert {(row["id"], row["name_right"]) for row in found.collect()} == {("a", "Ada"), ("b", None), (None, None)}
    assert [row["id"] for row in lookup(rows, table, on={"id": "code"}, how="inner").collect()] == ["a"]


def test_a_lookup_does_not_shuffle_its_rows(spark: SparkSession) -> None:
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS id")

    plan = executed_plan(lookup(rows, rows.selectExpr("id", "1 AS one"), on="id"))

    assert "BroadcastHashJoin" in plan
    assert "hashpartitioning" not in plan


def test_declarations_that_do_not_fit_are_refused(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("id", "id AS value", "id AS value_right")
    with pytest.raises(TopologyError, match="inner, left"):
        table_join(left=ROW, table=ROW, key="id", how="outer")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="Did you mean 'id'"):
        newest_table_join(left=ROW, table=ROW, key="ids")
    with pytest.raises(TopologyError, match="no column 'code'"):
        lookup(rows, rows, on="code")
    with pytest.raises(TopologyError, match="value_right"):
        lookup(rows, rows, on="id")


def test_state_of_another_declaration_has_another_shape() -> None:
    other = table_join(left=ROW, table=ROW, key={"id": "id", "at": "at"}, how="left")

    assert other.versions_table("v").made_by != AS_OF["left"].versions_table("v").made_by
    assert other.versions_table("v").key == ("id", "at", "_topic", "_partition", "_offset")


def as_of_held_against_the_oracle(session: SparkSession, seed: int, *, records: int = 30, slices: int = 6) -> None:
    """Rows, state and late records after each slice, of a history in which one source is behind the other."""
    chance = random.Random(seed)
    behind = chance.choice(["orders", "products", ""])
    found = driver(session, as_of_topology, partitions=2)
    placing = Placing(grace=GRACE)
    seen: dict[str, list[Event]] = {topic: [] for topic in GRACE}
    made = logs(chance, list(GRACE), records=records, tombstones="products")
    for number, batch in enumerate([*arrivals(chance, made, slices=slices, behind=behind), closing(GRACE)]):
        for event in placing.place(batch):
            seen[event.topic].append(event)
        run(found, batch)
        said = f"seed {seed}, slice {number}, behind: {behind}"
        reached = {topic: placing.frontier(topic) for topic in GRACE}
        due = reached["products"]
        ends = [end for end in reached.values() if end is not None]
        waiting = [e.value for e in seen["orders"] if e.is_admitted and (due is None or e.at >= due)]
        versions = still_asked(seen["products"], since=min(ends) if len(ends) == len(GRACE) else None)
        for how in AS_OF:
            rows = as_of(seen["orders"], seen["products"], how=how, frontier=due)
            assert values(found, f"{how}_rows") == pairs(rows), f"{how} rows; {said}"
            assert sorted(row["value"] for row in found.rows(f"{how}_waiting")) == sorted(waiting), f"waiting; {said}"
            kept = sorted((row["_partition"], row["_offset"]) for row in found.rows(f"{how}_versions"))
            assert kept == sorted((one.partition, one.offset) for one in versions), f"versions; {said}"
    late = sorted(row["_offset"] for row in found.rows_in_order("late_records"))
    refused = [e for e in seen["orders"] if e.id is not None and not e.is_admitted]
    assert late == sorted(event.offset for event in refused), f"late; seed {seed}"


def pairs(rows: list[tuple[Event, Event | None]]) -> list[tuple[Any, Any]]:
    return sorted(((left.value, right and right.value) for left, right in rows), key=repr)


@pytest.mark.parametrize("seed", range(2))
def test_as_of_joins_give_what_the_definition_says(spark: SparkSession, seed: int) -> None:
    as_of_held_against_the_oracle(spark, seed)


@pytest.mark.parametrize("seed", range(2))
def test_newest_rows_are_those_before_in_the_log(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    found = driver(spark, newest_topology, partitions=2)
    placing, table = Placing(grace=GRACE), {"inner": dict[str, Event](), "left": dict[str, Event]()}
    expected: dict[str, list[tuple[Event, Event | None]]] = {"inner": [], "left": []}
    made = logs(chance, list(GRACE), records=30, tombstones="products")
    for batch in arrivals(chance, made, slices=4):
        placed = list(placing.place(batch))
        for how, rows in expected.items():
            rows.extend(newest_seen(placed, table[how], rows="orders", how=how))
        run(found, batch)

    for how, rows in expected.items():
        assert values(found, f"{how}_rows") == pairs(rows), f"{how}; seed {seed}"
    with_key = [pair for pair in values(found, "lookup_rows") if pair in pairs(expected["left"])]
    assert with_key == pairs(expected["left"]), f"lookup; seed {seed}"
    assert {row["id"]: row["value"] for row in found.rows("products")} == {
        id: event.value for id, event in table["left"].items()
    }, f"table; seed {seed}"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 40))
def test_more_as_of_joins_give_what_the_definition_says(spark: SparkSession, seed: int) -> None:
    as_of_held_against_the_oracle(spark, seed, records=60, slices=12)
