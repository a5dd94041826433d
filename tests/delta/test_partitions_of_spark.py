"""Files that Spark wrote into partitions, and that ``deltalake`` removes: no reader has them any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kappa.delta import tables, vacuum
from kappa.topology.ddl import columns_of

CITIES = ["Zürich", "名前", "a b", "100%", "x=y/z", None]
Rows = list[tuple[int, str | None]]
ALL: Rows = [(seq, city) for seq in (1, 2) for city in CITIES]


def replaced(table: str) -> Rows:
    rows = pa.table({"_seq": pa.array([3], pa.int64()), "city": ["Zürich"]})
    tables.replace_where(table, rows.to_reader(), "city = 'Zürich'", 3, "plan")
    return [*((seq, city) for seq, city in ALL if city != "Zürich"), (3, "Zürich")]


def put_back(table: str) -> Rows:
    version = tables.version(table)
    replaced(table)
    tables.put_back(table, version, 3, "plan")
    return ALL


def sealed(table: str) -> Rows:
    tables.seal(table, 2)
    return [(1, city) for city in CITIES]


def merged(table: str) -> Rows:
    version = tables.version(table)
    vacuum.compact(table)
    assert tables.version(table) > version
    return ALL


@pytest.mark.spark
@pytest.mark.parametrize("act", [sealed, replaced, put_back, merged])
def test_what_is_removed_of_partitions_that_spark_wrote_is_gone_for_every_reader(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[str], Rows]
) -> None:
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 1)
    table = str(tmp_path / "table")
    tables.create(table, (tables.SEQ, *columns_of("city STRING", "test")), partition_by=["city"])
    for seq in (1, 2):
        rows = [(seq, city) for city in CITIES]
        tables.append_frame(table, spark.createDataFrame(rows, "_seq BIGINT, city STRING"), seq)
    expected = sorted(act(table), key=repr)
    by_spark = [tuple(row) for row in spark.read.format("delta").load(table).select("_seq", "city").collect()]
    by_deltalake = [(row["_seq"], row["city"]) for row in DeltaTable(table).to_pyarrow_table().to_pylist()]
    assert (sorted(by_spark, key=repr), sorted(by_deltalake, key=repr)) == (expected, expected)
