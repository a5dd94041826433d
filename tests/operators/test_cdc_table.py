"""A table of a database by the records of its changes: the newest row of each key, in any cut and in any arrival."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from support.changes import LEFT, drawn_changes, folded, histories, sent

from kappa import Source, Topology
from kappa.operators import cdc_table
from kappa.testing import Input, TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

CHANGES = Source(
    topic="changes",
    schema="id BIGINT, name STRING NOT NULL, note STRING, n INT",
    key_schema="id BIGINT",
    envelope="debezium",
)


def driver_of(spark: SparkSession, *, history: bool = False) -> TopologyDriver:
    customers = cdc_table(CHANGES, key="id", table="customers", history=history)
    return TopologyDriver(
        Topology(name="test.cdc", version="1", sources=[CHANGES], operators=[customers]),
        spark,
        partitions={"changes": 2},
    )


def table(driver: TopologyDriver) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["name"], row["note"], row["n"]) for row in driver.rows("customers"))


def test_the_row_with_the_newest_position_stays(spark: SparkSession) -> None:
    driver = driver_of(spark)
    driver.pipe(
        [
            sent("r", {"id": 1}, {"name": "a", "note": "long", "n": 1}, lsn=10),
            sent("c", {"id": 2}, {"name": "b", "note": None, "n": 2}, lsn=11),
            sent("u", {"id": 1}, {"name": "a2", "note": LEFT, "n": 5}, lsn=12),
        ]
    )
    assert table(driver) == [(1, "a2", "long", 5), (2, "b", None, 2)]
    driver.pipe([sent("u", {"id": 1}, {"name": "old", "note": "older", "n": 0}, lsn=9)])
    assert table(driver) == [(1, "a2", "long", 5), (2, "b", None, 2)]
    driver.pipe([sent("u", {"id": 1}, {"name": "old", "note": "newer", "n": 0}, lsn=11), sent("d", {"id": 2}, lsn=20)])
    assert table(driver) == [(1, "a2", "newer", 5)]
    driver.pipe([sent("c", {"id": 2}, {"name": "b", "n": 1}, lsn=19), sent("t", None, lsn=21, partition=1)])
    assert table(driver) == []
    driver.pipe([sent("c", {"id": 2}, {"name": "b", "n": 1}, lsn=20), sent("c", {"id": 3}, {"name": "x"}, lsn=30)])
    assert table(driver) == [(3, "x", None, None)]
    assert driver.dead_letters == []


@pytest.mark.parametrize("seed", [1, 2])
def test_the_table_follows_records_in_the_order_of_their_positions(spark: SparkSession, seed: int) -> None:
    log, rows = drawn_changes(seed, keys=25, length=240, partitions=2)
    cut, whole = driver_of(spark), driver_of(spark)
    ends = sorted(random.Random(seed).sample(range(1, len(log)), 4))

    def expected(records: list[Input]) -> list[tuple[Any, ...]]:
        return sorted((at, row["name"], row["note"], row["n"]) for at, row in folded(records, "id").items())

    for begin, end in pairwise([0, *ends, len(log)]):
        cut.pipe(log[begin:end])
        assert table(cut) == expected(log[:end])
    whole.pipe(log)

    assert folded(log, "id") == {at: {"id": at, **row} for at, row in rows.items()}
    for name in ("customers", "customers_deleted", "customers_truncated"):
        assert by_key(cut.state(name)) == by_key(whole.state(name))


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str((row.get("id"), row.get("_version"))))


def test_a_history_keeps_the_rows_of_all_times(spark: SparkSession) -> None:
    log, rows = drawn_changes(3, keys=12, length=120, partitions=2)
    cut, whole = driver_of(spark, history=True), driver_of(spark, history=True)
    ends = sorted(random.Random(3).sample(range(1, len(log)), 4))
    columns = ("id", "name", "note", "n", "valid_from", "valid_to", "is_current")

    def held(driver: TopologyDriver) -> list[tuple[Any, ...]]:
        return sorted((tuple(row[name] for name in columns) for row in driver.rows("customers")), key=str)

    for begin, end in pairwise([0, *ends, len(log)]):
        cut.pipe(log[begin:end])
        assert held(cut) == sorted(histories(log[:end], "id"), key=str)
    whole.pipe(log)

    assert {row[0]: row[1] for row in held(whole) if row[-1]} == {at: row["name"] for at, row in rows.items()}
    for name in ("customers", "customers_deleted", "customers_truncated"):
        assert by_key(cut.state(name)) == by_key(whole.state(name))


@pytest.mark.parametrize("cuts", [(4,), (1, 3), (2, 2), (1, 1, 1, 1)], ids=str)
def test_a_history_tells_a_deletion_from_a_row_at_the_same_position(spark: SparkSession, cuts: tuple[int, ...]) -> None:
    driver = driver_of(spark, history=True)
    log = [
        sent("c", {"id": 1}, {"name": "a", "n": 1}, lsn=10, at=1000),
        sent("d", {"id": 1}, lsn=10, at=2000),
        sent("c", {"id": 1}, {"name": "a", "n": 2}, lsn=10, at=3000),
        sent("d", {"id": 1}, lsn=10, at=4000),
    ]
    for record_count in cuts:
        driver.pipe(log[:record_count])
        del log[:record_count]

    (row,) = driver.rows("customers")
    assert (row["n"], row["is_current"], row["valid_from"], row["valid_to"]) == (
        *(2, False),
        *(datetime.fromtimestamp(seconds, UTC) for seconds in (3, 4)),
    )


def test_names_and_types_of_any_kind_are_kept(spark: SparkSession) -> None:
    odd = Source(
        topic="odd",
        schema="`a.b` STRING, `m``p` MAP<STRING, ARRAY<INT>>, `s'x` STRUCT<x: DECIMAL(4,1), `Y z`: DATE>, D DATE",
        key_schema="`K.1` STRING, `_k 2` DATE",
        envelope="debezium",
    )
    bare = Source(topic="bare", schema="id BIGINT", key_schema="id BIGINT", envelope="debezium")
    key = ["K.1", "_k 2"]
    operators = [
        cdc_table(odd, key=key, table="newest"),
        cdc_table(odd, key=key, table="past", history=True),
        cdc_table(bare, key="id", table="ids"),
        cdc_table(bare, key="id", table="past_ids", history=True),
    ]
    driver = TopologyDriver(Topology(name="test.odd", version="1", sources=[odd, bare], operators=operators), spark)
    at = {"K.1": "k", "_k 2": 20_513}
    full = {"a.b": "x", "m`p": {"y": [1, None]}, "s'x": {"x": "ew==", "Y z": 1}, "D": 2}
    unchanged = {"a.b": LEFT, "m`p": {LEFT: LEFT}, "s'x": None, "D": None}
    driver.pipe([sent("c", at, full, lsn=1, topic="odd"), sent("c", {"id": 1}, {}, lsn=1, topic="bare")])
    driver.pipe([sent("u", at, unchanged, lsn=3, topic="odd"), sent("d", {"id": 1}, lsn=2, topic="bare")])
    driver.pipe([sent("u", at, {**full, "m`p": None, "a.b": "late"}, lsn=2, topic="odd")])

    (row,) = driver.rows("newest")
    names = ("K.1", "_k 2", "a.b", "m`p", "s'x", "D")
    assert [row[name] for name in names] == ["k", date(2026, 3, 1), "late", None, None, None]
    past = sorted(driver.rows("past"), key=lambda row: str(row["_version"]))
    assert [(row["a.b"], row["m`p"], row["is_current"]) for row in past] == [
        ("x", [("y", [1, None])], False),
        ("late", None, False),
        ("late", None, True),
    ]
    assert past[0]["s'x"] == {"x": Decimal("12.3"), "Y z": date(1970, 1, 2)}
    assert driver.rows("ids") == []
    assert [(row["id"], row["is_current"]) for row in driver.rows("past_ids")] == [(1, False)]
    assert driver.dead_letters == []
