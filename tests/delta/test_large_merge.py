"""A table of twenty million rows takes changes, and what the driver has in memory does not grow with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.memory import growth
from support.slices import Epoch

from kappa.delta import table_files, tables
from kappa.record import merge_on_read
from kappa.record.merge_on_read import MERGED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1400)]

ROWS, CHANGES = 20_000_000, 100_000
#: What the driver's Python process may take more than before, at any moment. The memory of its JVM has a limit of its
#: own.
MOST_MB = 300
#: Names that no encoding makes much smaller.
ID = "substring(md5(cast({n} AS STRING)), 1, 16)"


def test_changes_of_many_keys_reach_a_table_beyond_the_drivers_memory(tmp_path: Path, spark: SparkSession) -> None:
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    epoch.run.engines = replace(epoch.run.engines, session=spark)
    path = epoch.paths.table("sums")
    names = [f"{ID.format(n='id')} AS id", "0 AS `select`", "id AS total"]
    tables.overwrite_frame(path, spark.range(0, ROWS, 1, 16).selectExpr(*names), 0)
    assert table_files.size_bytes(path, tables.version(path)) > epoch.run.engines.merge_bytes
    every = ROWS // CHANGES
    numbers = spark.range(CHANGES).selectExpr(f"id * {every} AS n").selectExpr("n", f"{ID.format(n='n')} AS id")
    ids = {row.n: row.id for row in numbers.collect()}
    gone = {n for n in ids if n % (10 * every) == 0}
    changes = [
        {"id": id, "select": 0, "_deleted": n in gone, "total": None if n in gone else -n} for n, id in ids.items()
    ]
    peak = growth()
    commit = epoch.put(*changes, {"id": "new", "select": 0, "total": 1})
    assert peak() < MOST_MB
    assert MERGED not in commit.detail
    version = commit.delta_versions["tables/sums"]
    assert table_files.count(path, version) == ROWS - len(gone) + 1
    for n, expected in ((every, [-every]), (10 * every, []), (1, [1])):
        key = f"\"select\" = 0 AND id = '{ids.get(n) or spark.sql(f'SELECT {ID.format(n=n)} AS id').first().id}'"
        assert merge_on_read.row_of(epoch.at(commit), key)["total"].to_pylist() == expected
