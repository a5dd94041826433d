"""Names with dots, blanks, quotes, backticks and a leading ``_`` give what plain ones give, on every path."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import awkward_names as names
from support.held_slices import HeldSlices

from kappa.testing import TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.topology import Topology

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
