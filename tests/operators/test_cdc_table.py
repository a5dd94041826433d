"""A table of a database by the records of its changes: the newest row of each key, in any cut and in any arrival."""

from __future__ import annotations

import random
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


def driver(spark: SparkSession, *, history: bool = False) -> TopologyDriver:
    customers = cdc_table(CHANGES, key="id", table="customers", history=history)
    return TopologyDriver(
        Topology(name="test.cdc", version="1", sources=[CHANGES], operators=[customers]),
        spark,
        partitions={"changes": 2},
    )


def table(found: TopologyDriver) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["name"], row["note"], row["n"]) for row in found.rows("customers"))


def test_the_newest_row_by_position_stays(spark: SparkSession) -> None:
    found = driver(spark)
    found.pipe(
        [
            sent("r", {"id": 1}, {"name": "a", "note": "long", "n": 1}, lsn=10),
            sent("c", {"id": 2}, {"name": "b", "note": None, "n": 2}, lsn=11),
            sent("u", {"id": 1}, {"name": "a2", "note": LEFT, "n": 5}, lsn=12),
        ]
    )
    assert table(found) == [(1, "a2", "long", 5), (2, "b", None, 2)]
    found.pipe([sent("u", {"id": 1}, {"name": "old", "note": "older", "n": 0}, lsn=9)])
    assert table(found) == [(1, "a2", "long", 5), (2, "b", None, 2)]
    found.pipe([sent("u", {"id": 1}, {"name": "old", "note": "newer", "n": 0}, lsn=11), sent("d", {"id": 2}, lsn=20)])
    assert table(found) == [(1, "a2", "newer", 5)]
    found.pipe([sent("c", {"id": 2}, {"name": "b", "n": 1}, lsn=19), sent("t", None, lsn=21, partition=1)])
    assert table(found) == []
    found.pipe([sent("c", {"id": 2}, {"name": "b", "n": 1}, lsn=20), sent("c", {"id": 3}, {"name": "x"}, lsn=30)])
    assert table(found) == [(3, "x", None, None)]
    assert found.dead_letters == []


@pytest.mark.parametrize("seed", [1, 2])
def test_what_stays_is_what_the_records_say_in_the_order_of_their_positions(spark: SparkSession, seed: int) -> None:
    log, rows = drawn_changes(seed, keys=25, length=240, partitions=2)
    cut, whole = driver(spark), driver(spark)
    ends = sorted(random.Random(seed).sample(range(1, len(log)), 4))

    def expected(records: list[Input]) -> list[tuple[Any, ...]]:
        return sorted((at, row["name"], row["note"], row["n"]) for at, row in folded(records, "id").items())

    for begin, end in pairwise([0, *ends, len(log)]):
        cut.pipe(log[begin:end])
        assert table(cut) == expected(log[:end])
    whole.pipe(log)

    assert folded(log, "id") == {at: {"id": at, **row} for at, row in rows.items()}
    for name in ("customers", "customers_deleted", "customers_truncated"):
        assert by_key(cut.rows(name)) == by_key(whole.rows(name))


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str((row.get("id"), row.get("_version"))))


def test_a_history_has_the_rows_of_all_times(spark: SparkSession) -> None:
    log, rows = drawn_changes(3, keys=12, length=120, partitions=2)
    cut, whole = driver(spark, history=True), driver(spark, history=True)
    ends = sorted(random.Random(3).sample(range(1, len(log)), 4))
    columns = ("id", "name", "note", "n", "valid_from", "valid_to", "is_current")

    def held(found: TopologyDriver) -> list[tuple[Any, ...]]:
        return sorted((tuple(row[name] for name in columns) for row in found.rows("customers")), key=str)

    for begin, end in pairwise([0, *ends, len(log)]):
        cut.pipe(log[begin:end])
        assert held(cut) == sorted(histories(log[:end], "id"), key=str)
    whole.pipe(log)

    assert {row[0]: row[1] for row in held(whole) if row[-1]} == {at: row["name"] for at, row in rows.items()}
    for name in ("customers", "customers_deleted", "customers_truncated"):
        assert by_key(cut.rows(name)) == by_key(whole.rows(name))
