"""Tables that Spark merges because they are too large for the driver: every reader finds what the driver writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.awkward_names import AWKWARD
from support.slices import SCHEMA, TABLE, TOPOLOGY, Epoch, as_rows

from kappa import Table
from kappa.delta import queries, tables
from kappa.delta.commits import commits_after
from kappa.delta.spark_merge import merge_frame
from kappa.errors import ConflictError
from kappa.record import merge_on_read
from kappa.record.merge_on_read import MERGED
from kappa.slices import state
from kappa.slices.merging import merge, merge_between, unmerged
from kappa.spark.tuning import MERGED_FILE_BYTES, merging_session
from kappa.topology.ddl import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.record.ledger_rows import LedgerRow

pytestmark = pytest.mark.spark

KINDS = {
    "flag": "BOOLEAN NOT NULL",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "n": "INT",
    "big": "BIGINT NOT NULL",
    "f": "FLOAT",
    "d": "DOUBLE",
    "amount": "DECIMAL(18,4) NOT NULL",
    "wide": "DECIMAL(38,2)",
    "raw": "BINARY NOT NULL",
    "at": "TIMESTAMP NOT NULL",
    "tags": "MAP<STRING, ARRAY<INT>> NOT NULL",
    "place": "STRUCT<since: TIMESTAMP, items: ARRAY<STRUCT<sku: STRING>>> NOT NULL",
}
NAMES = {**{name: name for name in KINDS}, "n": AWKWARD["n"], "raw": AWKWARD["region"], "at": AWKWARD["at"]}
KEY = {AWKWARD["key"]: "STRING NOT NULL", "day": "DATE NOT NULL", AWKWARD["more"]: "DECIMAL(20,0) NOT NULL"}
EVERY_TYPE = Table(
    name="every_type",
    key=list(KEY),
    schema=", ".join(
        f"{quote(name)} {kind}" for name, kind in {**KEY, **{NAMES[name]: kind for name, kind in KINDS.items()}}.items()
    ),
)


def row(n: int, value: int | None) -> dict[str, Any]:
    """A key with values of each type, or with none, which removes it."""
    day = date(2026, 1, 1) + timedelta(days=n % 3)
    key = dict(zip(KEY, (f"it's `{n}`", day, Decimal(10**17 + n)), strict=True))
    if value is None:
        return {**key, "_deleted": True}
    since = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
    values = {
        "flag": value % 2 == 0,
        "tiny": value % 100,
        "small": -value,
        "n": None if value % 3 == 0 else value,
        "big": 2**60 + value,
        "f": value / 4,
        "d": float("nan") if value % 5 == 0 else value / 3,
        "amount": Decimal(value) / 8,
        "wide": Decimal(10**30 + value),
        "raw": bytes([0, value % 256]),
        "at": since,
        "tags": [("a", [value, None]), ("b", None)],
        "place": {"since": since, "items": [{"sku": None}, {"sku": str(value)}, None]},
    }
    return {**key, **{NAMES[name]: item for name, item in values.items()}}


def slices() -> list[list[dict[str, Any]]]:
    """Changes of six slices: keys that are new, changed, removed, removed again, and there again."""
    every = [[row(n, n) for n in range(40)]]
    every += [[row(n, 10 * s + n if (n + s) % 4 else None) for n in range(5 * s, 5 * s + 12)] for s in range(1, 5)]
    return [*every, [row(n, None) for n in (3, 3_000)]]


def engines(path: str) -> set[tuple[str, str]]:
    """Operation and engine of the commits that changed a table."""
    return {(one.operation, one.engine.split("/")[0].split(":")[0]) for one in commits_after(path, 0)}


def spark_epoch(base: Path, spark: SparkSession, topology: Any = TOPOLOGY, **settings: Any) -> Epoch:
    """An epoch whose tables are all too large for the driver."""
    epoch = Epoch(base, topology, merge_bytes=0, **settings)
    epoch.run.engines = replace(epoch.run.engines, session=spark)
    return epoch


def rows_of(epoch: Epoch, commit: LedgerRow) -> list[str]:
    rows = merge_on_read.query(merge_on_read.contents_of(epoch.paths, commit, epoch.name))
    return sorted(repr(row) for row in rows.select([column.name for column in EVERY_TYPE.columns]).to_pylist())


def test_rows_of_every_type_under_awkward_names_are_those_that_the_driver_merges(
    tmp_path: Path, spark: SparkSession
) -> None:
    topology = replace(TOPOLOGY, name="every_type", tables=[EVERY_TYPE])
    by_driver, by_spark = Epoch(tmp_path / "driver", topology), spark_epoch(tmp_path / "spark", spark, topology)
    for number, changes in enumerate(slices()):
        for epoch in (by_driver, by_spark):
            epoch.merge_after(3600.0 if number in (2, 3) else 0.0)  # merged together with the one after them
        commit = by_spark.put(*changes)
        assert (MERGED in commit.detail) == (number in (2, 3))
        assert rows_of(by_spark, commit) == rows_of(by_driver, by_driver.put(*changes))
    assert engines(by_driver.paths.table("every_type")) == {("MERGE", "delta-rs")}
    path = by_spark.paths.table("every_type")
    assert engines(path) == {("MERGE", "Apache-Spark")}
    assert tables.merged(path)[1] == len(slices())
    assert "deletionVectors" not in str(DeltaTable(path).protocol()), "the driver's readers have none"


def test_a_table_in_partitions_stays_in_them(tmp_path: Path, spark: SparkSession) -> None:
    path = str(tmp_path / "sums")
    tables.create(path, TABLE.columns, partition_by=["select"])
    for seq, totals in enumerate([{("a", 0): 1, ("b", 1): 2}, {("a", 0): None, ("b", 1): 3, ("c", 0): 4}], start=1):
        merge_frame(merging_session(spark, 0), path, frame(spark, totals), TABLE.key, TABLE.columns, seq)
    assert as_rows(queries.query(path, None)) == {("b", 1): 3, ("c", 0): 4}
    assert sorted(DeltaTable(path).get_add_actions(flatten=True)["partition.select"].to_pylist()) == [0, 1]


def frame(spark: SparkSession, totals: dict[tuple[str, int], int | None]) -> Any:
    rows = [
        {"_deleted": total is None, "id": id, "select": select, "total": total}
        for (id, select), total in totals.items()
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema([SCHEMA.field(n) for n in SCHEMA.names[1:]])))


def test_a_merge_that_was_done_is_done_once(tmp_path: Path, spark: SparkSession) -> None:
    epoch = spark_epoch(tmp_path, spark, merge_seconds=3600.0)
    pending = unmerged(epoch.run, TABLE, epoch.slice({("a", 0): 1}))
    path = epoch.paths.table("sums")
    for _ in range(2):
        merge(epoch.run, TABLE, pending)
        assert tables.merged(path) == (1, 1)
    epoch.slice({("a", 0): 2, ("b", 0): 2})
    assert merge_between(epoch.run, is_asked=True)
    merge(epoch.run, TABLE, pending)
    assert tables.merged(path) == (2, 2), "a writer that wakes up late changes nothing"
    assert as_rows(queries.query(path, None)) == {("a", 0): 2, ("b", 0): 2}


def test_a_merge_that_changes_no_row_is_on_record(tmp_path: Path, spark: SparkSession) -> None:
    epoch = spark_epoch(tmp_path, spark, merge_seconds=0.0)
    assert MERGED not in epoch.slice({("a", 0): None}).detail
    assert tables.merged(epoch.paths.table("sums")) == (1, 1)


def test_a_merge_that_another_process_forestalls_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    path = str(tmp_path / "sums")
    tables.create(path, TABLE.columns)

    def forestalled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if tables.merged(path)[1] is None:
                tables.seal(path, 1)
            yield batch

    changes = frame(spark, {("a", 0): 1})
    late = changes.mapInArrow(forestalled, changes.schema)
    with pytest.raises(ConflictError, match="Another process wrote to"):
        merge_frame(merging_session(spark, 0), path, late, TABLE.key, TABLE.columns, 1)
    assert as_rows(queries.query(path, None)) == {}


def test_a_merge_leaves_the_session_of_the_slices_alone(spark: SparkSession, tmp_path: Path) -> None:
    before = {key: spark.conf.get(key) for key in ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled")}
    path = str(tmp_path / "sums")
    tables.create(path, TABLE.columns)
    beside = merging_session(spark, 1000 * MERGED_FILE_BYTES)
    merge_frame(beside, path, frame(spark, {("a", 0): 1}), TABLE.key, TABLE.columns, 1)
    assert beside.conf.get("spark.sql.adaptive.coalescePartitions.initialPartitionNum") == "4000"
    assert {key: spark.conf.get(key) for key in before} == before
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None
    assert len(DeltaTable(path).file_uris()) == 1, "parts without rows make no files"


def test_changes_beside_a_large_table_are_bounded() -> None:
    assert [state.most_changes(rows) for rows in (0, 1_000_000, 5_000_000, 10**9)] == [
        20_000,
        100_000,
        500_000,
        500_000,
    ]
