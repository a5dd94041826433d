"""A table before the next slice, as a plan holds it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.plans import analyzed_plan, executed_plan

from kappa import Table
from kappa.delta import queries, tables
from kappa.record.merge_on_read import Contents
from kappa.slices import state as slices_state
from kappa.slices.rows.effects import collect
from kappa.slices.state import SMALL_BYTES, TableState, newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TABLE = Table(name="rewards", key=["id"], schema="id STRING NOT NULL, points BIGINT NOT NULL")
#: A table that is given to Spark with each slice, and one that Spark keeps; both are small enough to be broadcast.
SMALL, LARGE = 20_000, 150_000

EVERY_TYPE = Table(
    name="every_type",
    key=["id", "day"],
    schema="""id STRING NOT NULL, day DATE NOT NULL, flag BOOLEAN NOT NULL, tiny TINYINT, small SMALLINT, n INT,
        big BIGINT NOT NULL, f FLOAT, d DOUBLE, amount DECIMAL(18,4) NOT NULL, raw BINARY NOT NULL,
        at TIMESTAMP NOT NULL, tags MAP<STRING, ARRAY<INT>> NOT NULL,
        place STRUCT<since: TIMESTAMP, items: ARRAY<STRUCT<sku: STRING NOT NULL>>> NOT NULL""",
)


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def contents(tmp_path: Path, request: pytest.FixtureRequest) -> Contents:
    path = str(tmp_path / "rewards")
    rows = {"id": [f"customer-{number}" for number in range(request.param)], "points": list(range(request.param))}
    written = pa.table(rows)
    assert (written.nbytes <= SMALL_BYTES) == (request.param == SMALL)
    write_deltalake(path, written)
    return contents_at(path)


def contents_at(path: str, version: int = 0) -> Contents:
    """All of a table, merged up to slice 3."""
    return Contents(path=path, version=version, merged=3, seq=3, changes=f"{path}-changes", changes_version=0)


def changes_of(ids: list[str], points: int | None, *, deleted: bool = False) -> pa.Table:
    kind = {"id": pa.string(), "points": pa.int64(), "_deleted": pa.bool_()}
    return pa.table(
        {"id": ids, "points": [points] * len(ids), "_deleted": [deleted] * len(ids)}, schema=pa.schema(kind)
    )


def every_type(spark: SparkSession, *rows: tuple[str, int], deleted: bool = False) -> DataFrame:
    """A row of each type for each id and number; of a row that removes its key only the key is there."""
    values = """n % 2 = 0 AS flag, CAST(n AS TINYINT) AS tiny, CAST(-n AS SMALLINT) AS small, CAST(n AS INT) AS n,
        CAST(n AS BIGINT) AS big, CAST(n / 3 AS FLOAT) AS f, CAST(n / 3 AS DOUBLE) AS d,
        CAST(n / 3 AS DECIMAL(18,4)) AS amount, CAST(REPEAT(id, n) AS BINARY) AS raw, TIMESTAMP_MILLIS(n * 1001) AS at,
        MAP(id, ARRAY(CAST(n AS INT), NULL)) AS tags,
        STRUCT(TIMESTAMP_MILLIS(n) AS since, ARRAY(STRUCT(id AS sku), NULL) AS items) AS place"""
    listed = ", ".join(f"('{id}', {n})" for id, n in rows)
    frame = spark.sql(
        f"SELECT id, DATE'2026-01-01' AS day, {values}, {deleted} AS _deleted FROM VALUES {listed} AS t(id, n)"
    )
    names = [column.name for column in EVERY_TYPE.columns if column.name not in EVERY_TYPE.key]
    return frame.selectExpr("id", "day", *(f"IF(_deleted, NULL, {name}) AS {name}" for name in names), "_deleted")


def test_rows_after_a_slice_are_the_rows_before_it_with_its_changes(spark: SparkSession, contents: Contents) -> None:
    state, at = TableState(spark, TABLE), contents
    expected = {f"customer-{n}": n for n in range(state.frame(at).count())}
    for seq, changes in enumerate(
        [
            changes_of(["customer-0", "customer-new"], 1_000),
            changes_of(["customer-0", "customer-1", "customer-none"], None, deleted=True),
            changes_of(["customer-1", "customer-new"], 2_000),
            changes_of([], 0),
        ],
        start=4,
    ):
        for row in changes.to_pylist():
            if row["_deleted"]:
                expected.pop(row["id"], None)
            else:
                expected[row["id"]] = row["points"]
        later = replace(contents, seq=seq)
        state.advance(changes, at, later)
        at = later
        rows = state.frame(at).toArrow()
        assert dict(zip(rows["id"].to_pylist(), rows["points"].to_pylist(), strict=True)) == expected
        assert rows.num_rows == len(expected)


@pytest.mark.parametrize("in_one_job", [True, False])
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_slice_without_nulls_comes_before_and_after_nulls(
    spark: SparkSession, tmp_path: Path, in_one_job: bool, size: int
) -> None:
    table = Table(name="notes", key=["id"], schema="id STRING NOT NULL, note STRING, s STRUCT<n: INT>")
    path = str(tmp_path / "notes")
    kinds = pa.schema({"id": pa.string(), "note": pa.string(), "s": pa.struct({"n": pa.int32()})})
    ids = [f"customer-{number}" for number in range(size)]
    write_deltalake(path, pa.table({"id": ids, "note": [None] * size, "s": [None] * size}, schema=kinds))
    state, at = TableState(spark, table), contents_at(path)
    state.frame(at)
    for seq, (note, value) in enumerate([("'x'", "x"), ("CAST(NULL AS STRING)", None), ("'y'", "y")], start=4):
        changed = f"SELECT 'customer-7' AS id, {note} AS note, NAMED_STRUCT('n', 7) AS s, FALSE AS _deleted"
        effects = {"notes": spark.sql(changed), **({"other": spark.range(1)} if in_one_job else {})}
        changes = collect(effects, in_one_job=in_one_job)["notes"]
        merged = state.after(at, changes)
        assert merged is not None
        assert merged.num_rows == size
        state.advance(changes, at, replace(at, seq=seq))
        at = replace(at, seq=seq)
        rows = state.frame(at).where("id IN ('customer-7', 'customer-8')").toArrow().sort_by("id").to_pylist()
        assert [(row["note"], row["s"]) for row in rows] == [(value, {"n": 7}), (None, None)]


def test_rows_written_by_a_merge_are_not_read_again(
    spark: SparkSession, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, at = TableState(spark, TABLE), contents
    many = changes_of([f"new-{number}" for number in range(30_000)], 7)  # a base is made anew after this many
    removed = changes_of(["customer-0", "customer-1", "customer-none"], None, deleted=True)
    assert state.after(at, many) is None, "nothing is read for a merge"
    expected = {row.id: row.points for row in state.frame(at).collect()}
    monkeypatch.setattr(queries, "query", None)
    for seq, changes in enumerate((removed, many, removed), start=4):
        for id, points in zip(changes["id"].to_pylist(), changes["points"].to_pylist(), strict=True):
            expected[id] = points
        expected = {id: points for id, points in expected.items() if points is not None}
        rows = state.after(at, changes)
        version = tables.overwrite(at.path, rows, seq)
        assert version == at.version + 1
        state.written(rows, version)
        later = replace(at, version=version, merged=seq, seq=seq)
        state.advance(changes, at, later)
        assert state.after(at, changes) is None, "it stands at another commit"
        frame = state.frame(later).toArrow()
        assert dict(zip(frame["id"].to_pylist(), frame["points"].to_pylist(), strict=True)) == expected
        at = later


@pytest.mark.parametrize("contents", [LARGE], indirect=True)
def test_the_driver_keeps_no_rows_of_a_large_table(
    spark: SparkSession, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices_state, "KEPT_BYTES", 100)
    state = TableState(spark, TABLE)
    state.frame(contents)
    assert state.after(contents, changes_of(["customer-0"], 1)) is None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("BOOLEAN", [True, False]),
        ("INT", [-1, 0, 2**31 - 1]),
        ("BIGINT", [-(2**63), 0]),
        ("DOUBLE", [0.0, -1.5, float("inf"), float("nan")]),
        ("DECIMAL(38,10)", [Decimal("0.1"), Decimal(-1)]),
        ("STRING", ["", "a", "A", "\u00e9", "e\u0301"]),
        ("BINARY", [b"", b"\x00", b"\xff"]),
        ("DATE", [date(1, 1, 1), date(2026, 1, 1)]),
        ("TIMESTAMP", [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, microsecond=1, tzinfo=UTC)]),
    ],
)
def test_a_key_of_any_type_is_found_again(spark: SparkSession, kind: str, values: list[Any]) -> None:
    schema = f"id {kind} NOT NULL, n INT NOT NULL, tags MAP<STRING, INT>"
    rows, later = (
        spark.createDataFrame([(value, n, {"of": n}) for value in values[first:]], schema).toArrow()
        for n, first in ((1, 0), (2, 1))
    )
    both = newest(rows, later, ["id"])
    assert sorted(both["n"].to_pylist()) == [1] + [2] * (len(values) - 1)
    assert newest(rows, later, ["n", "id"]).num_rows == rows.num_rows + later.num_rows, "two columns"


def test_a_key_that_looks_like_the_path_of_another_column_is_found_again() -> None:
    rows, later = (
        pa.table({".id": ids, "id": ["x", "x"], "n": [n, n]}) for n, ids in enumerate((["a", "b"], ["b", "c"]))
    )
    assert newest(rows, later, [".id"]).to_pydict() == {".id": ["a", "b", "c"], "id": ["x"] * 3, "n": [0, 1, 1]}


def test_a_growing_table_is_kept_by_spark_beyond_some_size(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "rewards")
    more = changes_of([f"customer-{n}" for n in range(LARGE)], 7)
    write_deltalake(path, pa.table({"id": ["customer-0"], "points": [0]}))
    before = contents_at(path)
    state = TableState(spark, TABLE)
    assert state.frame(before).count() == 1
    write_deltalake(path, more.select(["id", "points"]), mode="overwrite")
    after = replace(before, version=1, merged=4, seq=4)
    state.advance(more, before, after)
    assert state.frame(after).where("points = 7").count() == LARGE
    assert "InMemoryTableScan" in executed_plan(state.frame(after)), "kept from its second slice on"


@pytest.mark.parametrize("contents", [LARGE], indirect=True)
@pytest.mark.parametrize("limit", ["ARROW_ROWS", "ARROW_BYTES"])
def test_a_table_too_large_for_the_driver_is_read_by_spark(
    spark: SparkSession, contents: Contents, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = TableState(spark, TABLE)
    assert "FileScan" not in executed_plan(state.frame(contents))
    state.forget()
    monkeypatch.setattr(slices_state, limit, 100)
    assert "FileScan" in executed_plan(state.frame(contents))
    later = replace(contents, seq=4)
    state.advance(changes_of(["customer-0", "customer-new"], 1_000), contents, later)
    points = {row.id: row.points for row in state.frame(later).where("points IN (1, 2, 1000)").collect()}
    assert points == {f"customer-{n}": n for n in (1, 2, 1_000)} | {"customer-0": 1_000, "customer-new": 1_000}


@pytest.mark.parametrize("in_one_job", [True, False])
def test_values_of_every_type_survive_changes(spark: SparkSession, tmp_path: Path, in_one_job: bool) -> None:
    path = str(tmp_path / "every_type")
    tables.create(path, EVERY_TYPE.columns)
    written = every_type(spark, ("a", 1), ("b", 2), ("c", 3), ("d", 4)).drop("_deleted")
    tables.overwrite(path, collect({"written": written})["written"], 3)
    at = contents_at(path, version=1)
    state = TableState(spark, EVERY_TYPE)
    for step, changes in enumerate(
        [every_type(spark, ("b", 5), ("e", 6)), every_type(spark, ("a", 0), ("e", 0), deleted=True)], start=4
    ):
        state.frame(at)
        later = replace(at, seq=step)
        effects = collect({"changes": changes, "other": spark.range(1).toDF("other")}, in_one_job=in_one_job)
        state.advance(effects["changes"], at, later)
        at = later
    expected = every_type(spark, ("b", 5), ("c", 3), ("d", 4)).drop("_deleted")
    assert state.frame(at).orderBy("id").collect() == expected.orderBy("id").collect()


def test_a_query_plan_does_not_contain_the_rows_of_a_table(spark: SparkSession, contents: Contents) -> None:
    analyzed = analyzed_plan(TableState(spark, TABLE).frame(contents))
    assert "LogicalRDD" in analyzed
    assert "LocalRelation" not in analyzed


def test_a_slice_is_joined_with_a_table_without_a_sort(spark: SparkSession, contents: Contents) -> None:
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


@pytest.mark.parametrize("contents", [LARGE], indirect=True)
@pytest.mark.parametrize(("most", "join"), [(1 << 30, "ShuffledHashJoin"), (100, "SortMergeJoin")])
def test_a_table_too_large_to_broadcast_is_hashed_by_partition(
    spark: SparkSession, contents: Contents, monkeypatch: pytest.MonkeyPatch, most: int, join: str
) -> None:
    monkeypatch.setattr(slices_state, "HASHED_BYTES", most)
    monkeypatch.setattr(slices_state, "broadcast_bytes", lambda _: 100)
    slice = spark.range(5).selectExpr("CONCAT('customer-', id) AS id", "id AS n")
    joined = slice.hint("merge").join(TableState(spark, TABLE).frame(contents), on=["id"], how="left")
    assert "SortMergeJoin" in executed_plan(joined), "a hint of the step counts"
    joined = slice.join(TableState(spark, TABLE).frame(contents), on=["id"], how="left")
    assert join in executed_plan(joined)
    assert {row.id: row.points for row in joined.collect()} == {f"customer-{n}": n for n in range(5)}


def test_a_session_that_disables_broadcasts_is_respected(spark: SparkSession, contents: Contents) -> None:
    name = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(name)
    spark.conf.set(name, "-1")
    try:
        slice = spark.range(5).selectExpr("CONCAT('customer-', id) AS id")
        executed = executed_plan(slice.join(TableState(spark, TABLE).frame(contents), on=["id"], how="left"))
    finally:
        spark.conf.set(name, before)
    assert "Broadcast" not in executed
