"""Rows that are copied into an epoch's tables before its first slice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.slices import Epoch

from kappa.control.plans.existing_tables import existing_table
from kappa.delta import queries
from kappa.errors import AdoptionError
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record.ledger import Ledger
from kappa.slices.rows.effects import conform
from kappa.slices.run import EpochRun, Scratch
from kappa.slices.seeding import SeedSource, seed
from kappa.topology import Append, Source, Table, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SUMS = Table(
    name="sums",
    key=["id"],
    schema="id STRING NOT NULL, a STRUCT<b: STRING NOT NULL, c: ARRAY<STRUCT<d: INT NOT NULL>>>",
)
#: A time before the first one that both writers of Delta keep.
EARLY = -62_135_596_800_000_001
PARTS = Append(
    name="parts", schema="id STRING, day STRING NOT NULL, at TIMESTAMP, n BIGINT, x DOUBLE", partition_by=["day", "at"]
)
NESTED = Topology(
    name="nested",
    version="1",
    sources=[Source(topic="pos", schema="id STRING NOT NULL")],
    tables=[SUMS],
    outputs=[PARTS],
    step=lambda _: {},
)
KIND = pa.struct([("b", pa.string()), ("c", pa.list_(pa.struct([("d", pa.int32())])))])
ROWS = [{"id": "x", "a": {"b": "q", "c": [{"d": 1}, None]}}, {"id": "y", "a": None}]


def second(first: Epoch, spark: SparkSession) -> EpochRun:
    """The next epoch of the topology, which has no commit."""
    paths = EpochPaths(lake=first.paths.lake, topology=first.paths.topology, epoch=2)
    ledger = Ledger(paths.ledger)
    ledger.create()
    ledger.claim("me", "code", ledger.state())
    engines = replace(first.run.engines, session=spark)
    return replace(first.run, paths=paths, ledger=ledger, engines=engines, scratch=Scratch())


def adopted(spark: SparkSession, folder: Path, place: str, rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an epoch that begins with a table of another job."""
    write_deltalake(f"{folder}/old", pa.table(rows))
    table = existing_table(str(folder), place, f"{folder}/old", None)
    run = second(Epoch(folder / "lake", NESTED), spark)
    seed(run, SeedSource(kind="from-tables", tables=(table,), is_first=True), Offsets({"pos": {0: 1}}))
    return sorted(queries.query(run.paths.place(place), None).to_pylist(), key=lambda row: str(row["id"]))


def refusal(spark: SparkSession, folder: Path, place: str, rows: dict[str, Any]) -> str:
    """Why an epoch does not begin with these rows."""
    with pytest.raises(AdoptionError) as error:
        adopted(spark, folder, place, rows)
    return str(error.value)


def test_a_savepoint_with_required_fields_seeds_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    first = Epoch(tmp_path / "lake", NESTED)
    commit = first.put(*ROWS)
    run = second(first, spark)
    seed(run, SeedSource(kind="from-savepoint", epoch=1, seq=commit.seq), Offsets({"pos": {0: 2}}))
    seeded = queries.query(run.paths.table("sums"), None).to_pylist()
    assert sorted(seeded, key=lambda row: str(row["id"])) == ROWS


def test_a_table_with_required_fields_is_adopted(spark: SparkSession, tmp_path: Path) -> None:
    rows = {"id": ["x", "y"], "a": pa.array([row["a"] for row in ROWS], KIND)}
    assert adopted(spark, tmp_path, "tables/sums", rows) == ROWS


def test_a_required_field_outlives_the_metadata_of_its_column(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    rows = spark.createDataFrame(pa.table({"a": pa.array([row["a"] for row in ROWS], KIND)}))
    marked = rows.select(F.col("a").alias("a", metadata={"kappa": 1}))
    frame = conform(marked, Append(name="rows", schema="a STRUCT<b: STRING NOT NULL, c: ARRAY<STRUCT<d: INT>>>"), "a.b")
    assert not frame.schema["a"].metadata
    assert frame.select("a.b").toArrow()["b"].to_pylist() == ["q", None]


def test_a_null_in_a_required_field_is_not_adopted(spark: SparkSession, tmp_path: Path) -> None:
    rows = {"id": ["x", "y"], "a": pa.array([{"b": "q", "c": [{"d": None}]}, None], KIND)}
    assert "1 rows have null in a.c[].d, which is NOT NULL" in refusal(spark, tmp_path, "tables/sums", rows)


def test_columns_are_copied_under_their_declared_names_whatever_their_case(spark: SparkSession, tmp_path: Path) -> None:
    rows = {"ID": ["x", "y"], "A": pa.array([row["a"] for row in ROWS], KIND)}
    assert adopted(spark, tmp_path, "tables/sums", rows) == ROWS


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"day": ["1", ""]}, "1 rows have no text in column 'day'"),
        ({"day": ["1", "x" * 300]}, "1 rows have a value in column 'day' that no partition can have"),
        ({"day": ["1", "2"], "at": pa.array([EARLY, 0], pa.timestamp("us", "UTC"))}, "'at' that no partition can have"),
        ({"day": ["1", "2"], "n": [1.5, 2.0]}, "1 rows have a value in column 'n' that does not fit BIGINT"),
        ({"day": ["1", "2"], "n": [2.0**63, 2.0]}, "1 rows have a value in column 'n' that does not fit BIGINT"),
        (
            {"day": ["1", "2"], "x": pa.array([2**63 - 1, 2**53], pa.int64())},
            "1 rows have a value in column 'x' that does not fit DOUBLE",
        ),
    ],
)
def test_a_value_that_the_output_cannot_hold_is_not_adopted(
    spark: SparkSession, tmp_path: Path, rows: dict[str, Any], message: str
) -> None:
    assert message in refusal(spark, tmp_path, "outputs/parts", {"id": ["x", "y"], **rows})


def test_partitions_of_an_adopted_output_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    seeded = adopted(spark, tmp_path, "outputs/parts", {"Id": ["x", "y"], "DAY": ["a b", "ü/1"], "n": [1, 2]})
    assert [(row["id"], row["day"], row["n"], row["_seq"]) for row in seeded] == [
        ("x", "a b", 1, 0),
        ("y", "ü/1", 2, 0),
    ]
