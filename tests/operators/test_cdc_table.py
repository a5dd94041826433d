"""A table of a database by the records of its changes: the newest row of each key, in any cut and in any arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.changes import sent

from kappa import Source, Topology
from kappa.operators import cdc_table
from kappa.testing import Input, TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

CHANGES = Source(
    topic="changes", schema="id BIGINT, name STRING NOT NULL, note STRING, n INT", key_schema="id BIGINT", envelope="debezium"
)
LEFT = "__debezium_unavailable_value"


def driver(spark: SparkSession) -> TopologyDriver:
    customers = cdc_table(CHANGES, key="id", table="customers")
    return TopologyDriver(
        Topology(name="test.cdc", version="1", sources=[CHANGES], operators=[customers]), spark, partitions={"changes": 2}
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
