"""Joins that share one table of versions, and what plain Python makes of their records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kappa import Append, Effects, Slice, Source, Topology
from kappa.operators import table_join, versions_by
from kappa.testing import TopologyDriver
from support.oracle_joins import Event, Placing, arrivals, as_of, closing, lesser_of, logs, still_asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = "id STRING, value INT, at BIGINT"
#: How late a record of each source may be, milliseconds.
GRACE = {"orders": 1_000, "returns": 3_000, "products": 2_000}
#: The product that is offered in place of another.
OTHER = {"a": "b", "b": "c", "c": "a"}
_OTHER = "TRANSLATE(id, 'abc', 'bca') AS `other's id`"


def source(topic: str) -> Source:
    """Products are a table of which null values delete."""
    keys: dict[str, Any] = {"key_schema": "id STRING", "tombstones": True} if topic == "products" else {}
    return Source(topic=topic, schema=ROW, time="at", grace=f"{GRACE[topic]} milliseconds", **keys)


SOURCES = {topic: source(topic) for topic in GRACE}
products = versions_by(SOURCES["products"], key="id", table="versions")
orders = table_join(SOURCES["orders"], products, key="id", tables="waiting_orders")
returns = table_join(
    SOURCES["returns"],
    products,
    key={"an item": "id"},
    how="inner",
    tables="waiting_returns",
    left_rows="`an item` STRING, value INT",
)
#: Orders with their product, once more with the one that is offered in place of it.
others = table_join(
    orders.rows,
    products,
    key={"other's id": "id"},
    tables="waiting_others",
    left_rows="id STRING, value INT, priced INT, `other's id` STRING",
)
JOINS = {"orders": orders, "returns": returns, "others": others}


def joined(slice: Slice) -> Effects:
    """Rows of each stream with the product of their time."""
    products(slice)
    result = orders(slice)
    returns(slice, slice["returns"].selectExpr("* EXCEPT (id)", "id AS `an item`"))
    others(slice, result.rows.selectExpr("* EXCEPT (at, at_right, value_right)", "value_right AS priced", _OTHER))
    return {}


topology = Topology(
    name="inventory.shared",
    version="1",
    sources=list(SOURCES.values()),
    operators=[products, *JOINS.values()],
    outputs=[Append(name=name, of=join.rows) for name, join in JOINS.items()],
    step=joined,
)


def history(chance: random.Random, *, records: int) -> dict[str, list[Event]]:
    """Records of all sources in two partitions each."""
    return logs(chance, list(GRACE), records=records, tombstones="products")


def compare(session: SparkSession, seed: int, *, records: int, slices: int, idle: str = "") -> int:
    """Rows, state and late records are those of the definition, after each slice of random cuts and in one slice.

    Returns:
        How many versions were kept, slice after slice, that the orders alone ask for no more.

    Args:
        idle: a stream that has no record in one of its partitions up to the last slice.
    """
    chance = random.Random(seed)
    topic_logs = history(chance, records=records)
    if idle:
        topic_logs[idle] = [event for event in topic_logs[idle] if event.partition == 0]
    behind = chance.choice([*GRACE, ""])
    cut = arrivals(chance, topic_logs, slices=slices, behind=behind)
    label = f"seed {seed}, behind: {behind}, idle: {idle}"

    driver, placing = TopologyDriver(topology, session, partitions=dict.fromkeys(GRACE, 2)), Placing(grace=GRACE)
    seen: dict[str, list[Event]] = {topic: [] for topic in GRACE}
    held = 0
    for number, batch in enumerate([*cut, closing(GRACE)]):
        for event in placing.place(batch):
            seen[event.topic].append(event)
        driver.pipe(event.input for event in batch)
        same_as_defined(driver, placing, seen, f"{label}, slice {number}")
        due = lesser_of(placing.frontier("orders"), placing.frontier("products"))
        held += len(driver.rows("versions")) - len(still_asked(seen["products"], since=due))

    whole = TopologyDriver(topology, session, partitions=dict.fromkeys(GRACE, 2))
    whole.pipe(event.input for batch in [*cut, closing(GRACE)] for event in batch)
    for name in (*JOINS, "versions", "late_records"):
        rows = [sorted(map(str, one.rows(name))) for one in (driver, whole)]
        assert rows[0] == rows[1], f"{name} in one slice; {label}"
    assert whole.rows("others"), label
    return held


def same_as_defined(driver: TopologyDriver, placing: Placing, seen: dict[str, list[Event]], label: str) -> None:
    """The rows so far, and the state, are those of plain Python."""
    frontiers = {topic: placing.frontier(topic) for topic in GRACE}
    late: list[tuple[str, int, int]] = []
    for topic, how in (("orders", "left"), ("returns", "inner")):
        due = lesser_of(frontiers[topic], frontiers["products"])
        rows = as_of(seen[topic], seen["products"], how=how, frontier=due)
        assert pairs(driver.rows(topic)) == by_repr((row.value, one and one.value) for row, one in rows), (topic, label)
        own = [event for event in seen[topic] if event.id is not None or how == "left"]
        waiting = by_repr(event.value for event in own if event.is_in_time and (due is None or event.at >= due))
        assert by_repr(row["value"] for row in driver.rows(f"waiting_{topic}")) == waiting, (topic, label)
        late += [(event.topic, event.partition, event.offset) for event in own if not event.is_in_time]
    # All that wait for a product's frontier are emitted with their own product, and go on at once.
    due = lesser_of(frontiers["orders"], frontiers["products"])
    other_orders = [replace(event, id=OTHER.get(event.id or "", event.id)) for event in seen["orders"]]
    expected = as_of(other_orders, seen["products"], how="left", frontier=due)
    assert pairs(driver.rows("others")) == by_repr((row.value, one and one.value) for row, one in expected), label
    assert driver.rows("waiting_others") == [], label
    versions = still_asked(seen["products"], since=lesser_of(*frontiers.values()))
    places = sorted((row["_partition"], row["_offset"]) for row in driver.rows("versions"))
    assert places == sorted((event.partition, event.offset) for event in versions), label
    refused = [(row["_topic"], row["_partition"], row["_offset"]) for row in driver.rows_in_order("late_records")]
    assert sorted(refused) == sorted(late), label


def pairs(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """The values of left rows and of their versions."""
    return by_repr((row["value"], row["value_right"]) for row in rows)


def by_repr(rows: Any) -> list[Any]:
    """Rows in one order, nulls too."""
    return sorted(rows, key=repr)
