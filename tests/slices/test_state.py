"""A table before the next slice, as a plan holds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.plans import analyzed_plan, executed_plan

from kappa import Table
from kappa.lake.merge_on_read import Contents
from kappa.slices.state import TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLE = Table(name="rewards", key=["id"], schema="id STRING NOT NULL, points BIGINT NOT NULL")
#: Above a megabyte, below ten.
ROWS = 60_000


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    path = str(tmp_path / "rewards")
    rows = {"id": [f"customer-{number}" for number in range(ROWS)], "points": list(range(ROWS))}
    write_deltalake(path, pa.table(rows))
    return Contents(path=path, version=0, merged=3, seq=3, changes=f"{path}-changes", changes_version=0)


def changes_of(ids: list[str], points: int) -> pa.Table:
    return pa.table({"id": ids, "points": [points] * len(ids), "_deleted": [False] * len(ids)})


def test_a_plan_does_not_hold_the_rows_of_a_table(spark: SparkSession, contents: Contents) -> None:
    analyzed = analyzed_plan(TableState(spark, TABLE).frame(contents))
    assert "LogicalRDD" in analyzed
    assert "LocalRelation" not in analyzed


def test_a_slice_is_joined_with_a_table_without_sorting_either(spark: SparkSession, contents: Contents) -> None:
    state = TableState(spark, TABLE)
    slice = spark.range(5).selectExpr("CONCAT('customer-', id) AS id", "id AS n")
    later = replace(contents, seq=4)
    for at, step, points in [(contents, "read", 0), (contents, "kept", 0), (later, "with changes beside it", 1_000)]:
        if at is later:
            state.advance(changes_of(["customer-0", "customer-new"], 1_000), contents, later)
        joined = slice.join(state.frame(at), on=["id"], how="left")
        executed = executed_plan(joined)
        assert "BroadcastHashJoin" in executed, step
        assert "SortMergeJoin" not in executed, step
        assert {row.id: row.points for row in joined.collect()} == {f"customer-{n}": n or points for n in range(5)}, (
            step
        )


def test_a_session_that_broadcasts_nothing_is_obeyed(spark: SparkSession, contents: Contents) -> None:
    name = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(name)
    spark.conf.set(name, "-1")
    try:
        slice = spark.range(5).selectExpr("CONCAT('customer-', id) AS id")
        executed = executed_plan(slice.join(TableState(spark, TABLE).frame(contents), on=["id"], how="left"))
    finally:
        spark.conf.set(name, before)
    assert "Broadcast" not in executed
