"""Rows of two streams that meet: pairs, rows without a partner, what waits and what is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from support.oracle_joins import Event, Placing, arrivals, closing, interval_joined, logs, moment
from support.plans import executed_plan

from kappa import Append, Effects, Slice, Source, Table, Topology
from kappa.errors import TopologyError
from kappa.operators import interval_join
from kappa.operators.bound import RowsOperator
from kappa.operators.joins.interval_join import IntervalJoined
from kappa.testing import Input, TopologyDriver, assert_slice_invariant
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

ROW = "id STRING, value INT, at BIGINT"
BEFORE, AFTER = 2_000, 1_000
GRACE = {"orders": 1_000, "payments": 1_500}
HOWS = ("inner", "left", "outer")
SOURCES = {topic: Source(topic=topic, schema=ROW, time="at", grace=f"{ms} milliseconds") for topic, ms in GRACE.items()}


def joined(how: str, left: Source, right: Source, *tables: str) -> RowsOperator[IntervalJoined]:
    return interval_join(left, right, key="id", how=how, before="2 seconds", after="1 second", tables=tables)  # type: ignore[arg-type]


JOINS = {how: joined(how, *SOURCES.values(), f"{how}_orders", f"{how}_payments") for how in HOWS}


def topology(*hows: str) -> Topology:
    """One that joins orders with payments, in each of the ways."""
    return Topology(
        name="inventory.matched",
        version="1",
        sources=list(SOURCES.values()),
        operators=[JOINS[how] for how in hows],
        outputs=[Append(name=f"{how}_rows", of=JOINS[how].rows) for how in hows],
    )


def driver_of(session: SparkSession, *hows: str, partitions: int = 1) -> TopologyDriver:
    return TopologyDriver(topology(*hows), session, partitions=dict.fromkeys(GRACE, partitions))


def order(at: int, value: int = 1, id: str | None = "a", topic: str = "orders") -> Event:
    return Event(topic=topic, id=id, value=value, at=at, sent=max(at, 0))


def payment(at: int, value: int = 2, id: str | None = "a") -> Event:
    return order(at, value, id, "payments")


def values(driver: TopologyDriver, how: str) -> list[tuple[Any, Any]]:
    return sorted(((row["value"], row["value_right"]) for row in driver.rows(f"{how}_rows")), key=repr)


def run(driver: TopologyDriver, *batches: Sequence[Event]) -> None:
    for batch in batches:
        driver.pipe(event.input for event in batch)


def test_a_partner_lies_within_the_reach_including_both_ends(spark: SparkSession) -> None:
    driver = driver_of(spark, "inner")
    times = [7_999, 8_000, 11_000, 11_001]

    run(driver, [event for at in times for event in (payment(at, at, str(at)), order(10_000, at, str(at)))])

    assert values(driver, "inner") == [(11_000, 11_000), (8_000, 8_000)]


def test_rows_of_two_slices_are_joined_in_either_order(spark: SparkSession) -> None:
    driver = driver_of(spark, "inner")

    run(driver, [order(10_000, 1), payment(10_000, 4, "b")], [payment(10_500, 2), order(10_500, 3, "b")])

    assert values(driver, "inner") == [(1, 2), (3, 4)]


def test_a_row_without_a_partner_waits_for_both_frontiers(spark: SparkSession) -> None:
    driver = driver_of(spark, "left", "outer")

    # Its reach ends at 11,000. The payments' frontier comes to 11,000, then the orders', then the payments' past it.
    run(driver, [order(10_000)], [payment(12_500, 4, "b")], [order(12_001, 3)])
    before = values(driver, "left")
    run(driver, [payment(12_501, 5, "b")])

    assert before == []
    assert values(driver, "left") == [(1, None)]
    # The orders' frontier is at 11,001: the reach of both payments ends later.
    assert values(driver, "outer") == [(1, None)]


def test_unmatched_rows_are_emitted_in_order_of_their_times(spark: SparkSession) -> None:
    # The second order is behind the first one, in time and in the log, and comes when the payments are past both.
    log = [order(10_500, 1), payment(30_000, 9, "z"), order(10_000, 2), order(30_000, 3)]
    small, large = driver_of(spark, "left"), driver_of(spark, "left")

    run(small, *([event] for event in log))
    run(large, log)

    rows = [[row["value"] for row in driver.rows("left_rows")] for driver in (small, large)]
    assert rows == [[2, 1], [2, 1]]
    assert [row["_order_timestamp"] for row in large.rows_in_order("left_rows")] == [moment(11_000), moment(11_500)]


def test_a_row_that_had_a_partner_is_never_emitted_alone(spark: SparkSession) -> None:
    driver = driver_of(spark, "left")

    # The payment goes with the second slice, the order with the last.
    run(driver, [order(10_000), payment(8_000)], [order(20_000, 3)], [payment(50_000, 4), order(30_000, 5, "b")])

    assert values(driver, "left") == [(1, 2), (3, None)]
    assert [row["value"] for row in driver.rows("left_orders")] == [5]


def test_a_row_before_its_own_frontier_is_refused(spark: SparkSession) -> None:
    driver = driver_of(spark, "left")

    run(driver, [order(10_000, 1, "b"), order(8_999, 2), order(9_000, 3), payment(9_000, 4)])

    assert values(driver, "left") == [(3, 4)]
    (late,) = driver.rows("late_records")
    assert (late["operator"], late["record"]) == ("interval_join", '{"id":"a","value":2,"at":8999}')


def test_rows_without_a_key_are_kept_where_unmatched_rows_are(spark: SparkSession) -> None:
    driver = driver_of(spark, *HOWS)

    run(driver, [order(10_000, 1, None), payment(10_000, 2, None)])
    before = {how: values(driver, how) for how in HOWS}
    run(driver, [order(50_000, 3), payment(50_000, 4)], [order(10_000, 5, None)])

    assert before == {how: [] for how in HOWS}
    assert values(driver, "inner") == [(3, 4)]
    assert values(driver, "left") == [(1, None), (3, 4)]
    assert values(driver, "outer") == [(1, None), (3, 4), (None, 2)]
    # A late one is refused where it would be kept: by the left join and by the outer one.
    assert [row["record"] for row in driver.rows("late_records")] == ['{"value":5,"at":10000}'] * 2


def test_rows_per_key_are_compared_only_within_the_reach(spark: SparkSession) -> None:
    place = "TIMESTAMP_SECONDS(id) AS _order_timestamp, 't' AS _topic, 0 AS _partition, id AS _offset"
    times = "TIMESTAMP_SECONDS(id) AS _event_time, CAST(NULL AS TIMESTAMP) AS _frontier"
    rows = spark.range(100).selectExpr("'a' AS id", "1 AS value", "id AS at", *place.split(", "), *times.split(", "))
    none = rows.limit(0).selectExpr("* EXCEPT (_frontier)", "0 AS _row")
    slice = Slice(
        seq=1,
        records=dict.fromkeys(SOURCES, rows),
        tables={"inner_orders": none, "inner_payments": none},
        frontiers=dict.fromkeys(SOURCES, Frontier(ms=0)),
    )
    joined_rows = JOINS["inner"](slice).rows

    assert joined_rows.count() == 100 * 4 - 2 - 1 - 1
    joins = [line for line in executed_plan(joined_rows).splitlines() if "Join [" in line]
    assert joins and all("_cell" in line for line in joins)


def test_a_record_may_have_several_rows_per_key(spark: SparkSession) -> None:
    line, payment_row = "id STRING, value INT", "id STRING, amount INT"
    orders, payments = (
        Source(topic=topic, schema=f"{columns}, at BIGINT", time="at", grace="1 second")
        for topic, columns in {"orders": "lines ARRAY<STRUCT<id: STRING, value: INT>>", "payments": payment_row}.items()
    )
    tables, rows = ("lines", "payments"), {"left_rows": line, "right_rows": payment_row}
    join = interval_join(orders, payments, key="id", within="1 second", how="outer", tables=tables, **rows)

    def step(slice: Slice) -> Effects:
        join(slice, slice["orders"].selectExpr("* EXCEPT (lines)", "INLINE(lines)"))
        return {}

    ordered = Topology(
        name="inventory.lines",
        version="1",
        sources=[orders, payments],
        operators=[join],
        outputs=[Append(name="rows", of=join.rows)],
        step=step,
    )
    lines = [{"id": "a", "value": 5}, {"id": None, "value": 4}, {"id": "a", "value": 1}, {"id": "a", "value": 5}]
    log = [
        Input(topic="orders", value={"lines": lines, "at": 1_000}, timestamp_ms=1_000),
        Input(topic="payments", value={"id": "a", "amount": 9, "at": 1_500}, timestamp_ms=1_500),
    ]
    driver = TopologyDriver(ordered, spark)
    driver.pipe(log[:1])
    state = [(row["_row"], row["id"], row["value"]) for row in driver.rows("lines")]
    driver.pipe(log[1:])

    assert state == [(1, None, 4), (2, "a", 1), (3, "a", 5), (4, "a", 5)]
    assert sorted(row["value"] for row in driver.rows("rows")) == [1, 5, 5]
    assert_slice_invariant(ordered, log, spark, cuts=1, by_arrival=True)


def test_state_is_removed_by_the_frontier_of_the_other_side(spark: SparkSession) -> None:
    driver = driver_of(spark, "inner")

    run(driver, [order(10_000, 1), payment(10_000, 2)], [payment(12_501, 3)])
    orders = [row["value"] for row in driver.rows("inner_orders")]
    payments = [row["value"] for row in driver.rows("inner_payments")]

    assert (orders, payments) == ([], [2, 3])


def test_a_source_may_be_joined_with_itself(spark: SparkSession) -> None:
    events = Source(topic="events", schema=ROW, time="at", grace="1 second")
    join = joined("outer", events, events, "lefts", "rights")

    def step(slice: Slice) -> Effects:
        join(slice, slice["events"].where("value < 10"), slice["events"].where("value >= 10"))
        return {}

    twice = Topology(
        name="events.twice",
        version="1",
        sources=[events],
        operators=[join],
        outputs=[Append(name="outer_rows", of=join.rows)],
        step=step,
    )
    driver = TopologyDriver(twice, spark)

    run(driver, [order(0, 1, topic="events"), order(500, 10, topic="events")], [order(9_000, 2, topic="events")])

    assert values(driver, "outer") == [(1, 10)]
    assert [row["value"] for row in driver.rows("lefts")] == [2]


def test_keys_may_have_different_names_and_columns_the_same() -> None:
    orders, payments = (
        Source(topic=name, schema=f"{name} STRING, customer STRING, amount INT NOT NULL", grace="1 second")
        for name in ("order_id", "ref")
    )
    key = {"order_id": "ref", "customer": "customer"}
    join = interval_join(orders, payments, key=key, within="10 minutes", how="left", tables=("orders", "payments"))

    assert join.schema == ("`order_id` STRING, `customer` STRING, `amount` INT NOT NULL, `amount_right` INT")


def test_the_state_names_its_operator() -> None:
    def orders(key: str | list[str], within: str) -> Table:
        return interval_join(*SOURCES.values(), key=key, within=within, tables=("orders", "payments")).tables[0]

    assert orders("id", "10 minutes").made_by != orders("id", "20 minutes").made_by
    assert orders("id", "10 minutes") == orders(["id"], "600 seconds")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"key": "ids"}, "Did you mean 'id'"),
        ({"how": "full"}, "inner, left, outer"),
        ({"within": None}, "within"),
        ({"before": "1 second"}, "before"),
        ({"right_rows": "id BIGINT"}, "Cast one"),
        ({"right_rows": "id STRING, _offset INT"}, "_offset"),
        ({"right_rows": "id STRING, value INT, value_right INT"}, "value_right"),
    ],
)
def test_an_impossible_join_is_refused(words: dict[str, Any], message: str) -> None:
    arguments = {"key": "id", "within": "1 second", "tables": ("orders", "payments"), **words}

    with pytest.raises(TopologyError, match=message):
        interval_join(*SOURCES.values(), **arguments)


def check_against_oracle(session: SparkSession, seed: int, *hows: str, records: int = 30, slices: int = 6) -> None:
    """Rows, state and late records after each slice, of a history in which one source is behind the other."""
    chance = random.Random(seed)
    behind = chance.choice(["orders", "payments", ""])
    driver = driver_of(session, *hows, partitions=2)
    placing = Placing(grace=GRACE)
    events_of: dict[str, list[Event]] = {topic: [] for topic in GRACE}
    batches = arrivals(chance, logs(chance, list(GRACE), records=records), slices=slices, behind=behind)
    for number, batch in enumerate([*batches, closing(GRACE)]):
        for event in placing.place(batch):
            events_of[event.topic].append(event)
        run(driver, batch)
        place = f"seed {seed}, slice {number}, behind: {behind}"
        for how in hows:
            expected = interval_joined(
                events_of["orders"],
                events_of["payments"],
                before=BEFORE,
                after=AFTER,
                how=how,
                left_frontier=placing.frontier("orders"),
                right_frontier=placing.frontier("payments"),
            )
            assert emitted(driver, how) == sorted(map(as_row, expected.rows), key=repr), f"{how} rows; {place}"
            sides = [("orders", expected.left, how != "inner"), ("payments", expected.right, how == "outer")]
            for side, rows, is_tracked in sides:
                assert waiting(driver, f"{how}_{side}") == sorted(
                    (event.value, is_met if is_tracked else None) for event, is_met in rows.items()
                ), f"{how} {side}; {place}"
    late = sorted(row["_offset"] for row in driver.rows_in_order("late_records"))
    refused = [
        e
        for how in hows
        for side, events in events_of.items()
        for e in events
        if not e.is_in_time and (e.id is not None or how == "outer" or (how == "left" and side == "orders"))
    ]
    assert late == sorted(event.offset for event in refused), f"late; seed {seed}"


def emitted(driver: TopologyDriver, how: str) -> list[tuple[Any, ...]]:
    places = ("_order_timestamp", "_topic", "_partition", "_offset")
    rows = driver.rows_in_order(f"{how}_rows")
    return sorted(
        ((*(row[p] for p in places), row["id"], row["value"], row["value_right"], row["at_right"]) for row in rows),
        key=repr,
    )


def as_row(pair: tuple[Event | None, Event | None]) -> tuple[Any, ...]:
    left, right = pair
    one = left or right
    assert one is not None
    final = None if left and right else one.at + (AFTER if left else BEFORE)
    return (
        moment(one.order_ms if final is None else final),
        one.topic,
        one.partition,
        one.offset,
        one.id,
        left and left.value,
        right and right.value,
        right and right.at,
    )


def waiting(driver: TopologyDriver, table: str) -> list[tuple[Any, Any]]:
    return sorted((row["value"], row.get("_has_met")) for row in driver.rows(table))


@pytest.mark.parametrize(("seed", "how"), list(enumerate(HOWS)))
def test_a_history_matches_the_definition_after_each_slice(spark: SparkSession, seed: int, how: str) -> None:
    check_against_oracle(spark, seed, how)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 40))
def test_more_histories_match_the_definition(spark: SparkSession, seed: int) -> None:
    check_against_oracle(spark, seed, *HOWS, records=60, slices=12)
