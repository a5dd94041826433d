"""Names with dots, blanks, quotes, backticks and a leading ``_`` give what plain ones give, on every path."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import awkward_names as names
from support.held_slices import HeldSlices

from kappa import Append, Effects, Slice, Source, Table, Topology
from kappa.errors import TopologyError
from kappa.operators import agg, aggregate, newest_by
from kappa.testing import Input, TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]


def results(topology: Topology, run: TopologyDriver | HeldSlices, shown: names.Names) -> dict[str, Any]:
    """Rows of every table and output, under plain names, in one order."""
    rows_by_name = {table.name: run.state(table.name) for table in topology.tables}
    rows_by_name |= {append.name: run.rows_in_order(append.name) for append in topology.appends}
    plain = {name: [names.renamed(row, shown) for row in rows] for name, rows in rows_by_name.items()}
    for row in plain["late_records"]:
        row["record"] = names.renamed(json.loads(row["record"]), shown)
    return {name: sorted(rows, key=lambda row: sorted(map(repr, row.items()))) for name, rows in plain.items()}


def in_memory(spark: SparkSession, parts: Any, shown: names.Names) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows of a test driver, and the records that it sent."""
    topology = names.topology(shown, parts)
    run = TopologyDriver(topology, spark)
    for part in names.slices(shown):
        run.pipe(part)
    sent = {
        topic.name: [(key, names.renamed(value and json.loads(value), shown)) for key, value in run.sent(topic.name)]
        for topic in topology.topics
    }
    return results(topology, run, shown), sent


@cache
def expected(spark: SparkSession, parts: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same under plain names."""
    kept_rows, sent = in_memory(spark, parts, names.PLAIN)
    empty = [name for name, rows in {**kept_rows, **sent}.items() if not rows]
    assert empty in ([], ["late_records"], ["waiting"]), "what has no rows shows nothing"
    return kept_rows, sent


def test_awkward_names_give_and_send_the_same_as_plain_names(spark: SparkSession) -> None:
    assert in_memory(spark, names.of_records, names.AWKWARD) == expected(spark, names.of_records)


@pytest.mark.parametrize(
    ("parts", "most"),
    [(names.of_records, 500_000), (names.of_records, 0), (names.of_time, 0)],
    ids=["records by arrow", "records by spark", "time by spark"],
)
def test_awkward_names_are_written_and_read_back(spark: SparkSession, tmp_path: Path, parts: Any, most: int) -> None:
    topology = names.topology(names.AWKWARD, parts)
    held = HeldSlices(topology, spark, tmp_path, partitions=1, small_slice=most, arrow_rows=most)
    for part in names.slices(names.AWKWARD):
        held.pipe(part)
    assert results(topology, held, names.AWKWARD) == expected(spark, parts)[0]


def test_the_platforms_columns_count_in_any_case(spark: SparkSession) -> None:
    source = Source(topic="in", schema="n BIGINT", key_schema="id STRING", tombstones=True)
    latest = newest_by(source, key="id", table="latest")
    state = Table(name="state", key="id", schema="id STRING NOT NULL, n BIGINT")
    place = ["_TOPIC", "_PARTITION", "_OFFSET", "_ORDER_TIMESTAMP"]

    def step(slice: Slice) -> Effects:
        rows = slice["in"]
        latest(slice, rows.selectExpr("id", "n", *place, "_TOMBSTONE"))
        return {"state": rows.selectExpr("id", "n", "n IS NULL AS _DELETED"), "rows": rows.selectExpr("n", *place)}

    driver = TopologyDriver(
        Topology(
            name="names.case",
            version="1",
            sources=[source],
            operators=[latest],
            tables=[state],
            outputs=[Append(name="rows", schema="n BIGINT")],
            step=step,
        ),
        spark,
    )
    for n in (1, None):
        driver.pipe([Input(topic="in", key="a", value=None if n is None else {"n": n})])
    assert driver.rows("latest") == driver.rows("state") == []
    assert [row["_offset"] for row in driver.rows_in_order("rows")] == [0, 1]


def test_deletions_in_any_case_are_not_rows_of_a_stream(spark: SparkSession) -> None:
    source = Source(topic="in", schema="n BIGINT", key_schema="id STRING", tombstones=True)
    counts = aggregate(source, key="id", aggregates={"n": agg.count()}, table="counts")
    rows = spark.sql("SELECT 'a' AS id, TRUE AS _TOMBSTONE")
    tables = {"counts": spark.sql("SELECT 'a' AS id, 1L AS n")}
    with pytest.raises(TopologyError, match="the rows have _tombstone"):
        counts(Slice(seq=1, records={"in": rows}, tables=tables), rows)
