"""Values at the ends of their types: each writer of a table writes them, and each reader finds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kappa import Table
from kappa.delta import queries, tables
from kappa.delta.spark_merge import merge_frame
from kappa.record.merge_on_read import read_files, read_table
from kappa.spark.session import frame_of
from kappa.spark.tuning import merging_session
from kappa.topology.ddl import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

#: The first and the last microsecond of the years 1 to 9999, and the ends of what nanoseconds can tell.
TIMES = [
    -62_135_596_800_000_000,
    -9_223_372_036_854_776,
    -9_223_372_036_854_775,
    -12_219_292_800_000_001,  # of the Julian calendar, for who rebases
    9_223_372_036_854_775,
    9_223_372_036_854_776,
    253_402_300_799_999_999,
]
DAYS = [-719_162, -141_428, 0, 2_932_896]
TABLE = Table(
    name="far",
    key=["id"],
    schema="id INT NOT NULL, at TIMESTAMP, day DATE, big BIGINT, wide DECIMAL(38,18), s STRUCT<at: TIMESTAMP>, "
    "l ARRAY<TIMESTAMP>, m MAP<STRING, TIMESTAMP>, x DOUBLE, f STRUCT<x: FLOAT>",
)
NAMES = [column.name for column in TABLE.columns]


def far_rows(path: str) -> pa.Table:
    """Rows of the table with such values, and one with nulls."""
    micros = pa.array([*TIMES, None], pa.timestamp("us", "UTC"))
    count = len(micros)
    days = pa.array([*DAYS, *[None] * (count - len(DAYS))], pa.int32()).cast(pa.date32())
    bigs = pa.array([-(2**63), 2**63 - 1, *[None] * (count - 2)], pa.int64())
    wides = pa.array([-(10**38) + 1, 10**38 - 1, *[None] * (count - 2)], pa.decimal128(38, 0))
    wide = pa.Array.from_buffers(pa.decimal128(38, 18), count, wides.buffers())
    offsets = pa.array(range(count + 1), pa.int32())
    names = pa.array([str(n) for n in range(count)])
    columns = [
        pa.array(range(count), pa.int32()),
        micros,
        days,
        bigs,
        wide,
        pa.StructArray.from_arrays([micros], ["at"]),
        pa.ListArray.from_arrays(offsets, micros),
        pa.MapArray.from_arrays(offsets, names, micros),
        pa.array([float("nan"), *[1.0] * (count - 1)]),
        pa.StructArray.from_arrays([pa.array([float("nan"), *[1.0] * (count - 1)], pa.float32())], ["x"]),
    ]
    return pa.table(columns, names=NAMES).cast(tables.schema_of(path))


def plain(rows: pa.Table) -> list[tuple[object, ...]]:
    """The rows by id, with times as numbers: Python's own end with year 9999."""
    ordered = rows.sort_by("id")
    at = ordered["s"].combine_chunks().field("at")
    lists = ordered["l"].combine_chunks().flatten()
    maps = ordered["m"].combine_chunks()
    times = [ordered["at"], at, lists, pa.concat_arrays([chunk.items for chunk in [maps]])]
    rest = [ordered["id"], ordered["day"].cast(pa.int32()), ordered["big"], ordered["wide"]]
    columns = [*(c.cast(pa.timestamp("us", "UTC")).cast(pa.int64()) for c in times), *rest]
    return list(zip(*(c.to_pylist() for c in columns), strict=True))


def changes(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", "FALSE AS _deleted")


WRITERS: dict[str, Callable[[SparkSession, str, DataFrame, pa.Table], object]] = {
    "append": lambda _, path, __, rows: tables.append(path, rows, 1),
    "overwrite": lambda _, path, __, rows: tables.overwrite(path, rows, 1),
    "merge": lambda _, path, __, rows: tables.merge(
        path, rows.append_column("_deleted", pa.array([False] * rows.num_rows)), TABLE.key, TABLE.columns, 1
    ),
    "append by Spark": lambda _, path, frame, __: tables.append_frame(path, frame, 1),
    "overwrite by Spark": lambda _, path, frame, __: tables.overwrite_frame(path, frame, 1),
    "merge by Spark": lambda session, path, frame, __: merge_frame(
        merging_session(session, 1), path, changes(frame), TABLE.key, TABLE.columns, 1
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_each_reader_finds_what_each_writer_wrote(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    path = str(tmp_path / "far")
    tables.create(path, TABLE.columns)
    rows = far_rows(path)
    WRITERS[writer](spark, path, frame_of(spark, rows, ddl_of(TABLE.columns)), rows)
    version = tables.version(path)
    assert plain(queries.query(path, version)) == plain(rows)
    assert plain(next(queries.chunks(path, version, NAMES, 99))) == plain(rows)
    assert plain(queries.batches(path, version).read_all()) == plain(rows)
    assert plain(read_files(spark, path, version).toArrow()) == plain(rows)
    assert plain(read_table(spark, path, version).toArrow()) == plain(rows)
    for field in ("x", "f['x']"):  # NaN is greater than all numbers, to both engines
        assert queries.query(path, version, where=f"{field} > 5")["id"].to_pylist() == [0]
        assert [row.id for row in read_files(spark, path, version).where(f"{field} > 5").select("id").collect()] == [0]


def test_times_that_another_program_wrote_as_int96_are_read_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "far")
    tables.create(path, TABLE.columns)
    rows = far_rows(path)
    other = spark.newSession()
    other.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    tables.overwrite_frame(path, frame_of(other, rows, ddl_of(TABLE.columns)), 1)
    assert plain(queries.query(path, None)) == plain(rows)
    assert plain(read_table(spark, path, 1).toArrow()) == plain(rows)
