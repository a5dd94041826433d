"""Constraints on the rows of an effect, checked alike in the driver's memory and in Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.held_slices import HeldSlices

from kappa.errors import TopologyError
from kappa.operators import newest
from kappa.slices.rows.contract import check_rows
from kappa.slices.rows.effects import collect, conformed
from kappa.testing import Input, TopologyDriver
from kappa.topology import ORDER, Append, Source, Table, Topology
from kappa.topology.times.dates import LAST_DAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SOURCE = Source(topic="in", schema="id STRING")
PLACE = "'in' AS _topic, 2 AS _partition, n AS _offset, TIMESTAMP'2026-01-01' AS _order_timestamp"
BOTH = pytest.mark.parametrize("in_memory", [True, False], ids=["arrow", "spark"])


def refused(spark: SparkSession, member: Table | Append, sql: str, *, in_memory: bool) -> TopologyError:
    """The error of a step that returns these rows."""
    with pytest.raises(TopologyError) as refusal:
        take(spark, member, sql, in_memory=in_memory)
    return refusal.value


def take(spark: SparkSession, member: Table | Append, sql: str, *, in_memory: bool) -> Any:
    """The rows that a step's effect has, once they are checked."""
    is_table = isinstance(member, Table)
    topology = Topology(
        name="a.b",
        version="1",
        sources=[SOURCE],
        tables=[member] if is_table else [],
        outputs=[] if is_table else [member],
        step=lambda slice: {},
    )
    effects = {member.name: spark.sql(sql)}
    frames = conformed(topology, effects)
    rows = collect(frames)
    check_rows(topology, effects, frames, rows if in_memory else None)
    return rows[member.name]


STATE = Table(name="state", key=["id"], schema="id STRING NOT NULL, amount BIGINT NOT NULL")


@BOTH
def test_a_null_in_a_required_column_names_effect_column_count_and_record(spark: SparkSession, in_memory: bool) -> None:
    rows = f"SELECT id, amount, {PLACE} FROM VALUES ('a', 1L, 7L), ('b', NULL, 9L), ('c', NULL, 8L) AS t(id, amount, n)"
    error = refused(spark, STATE, rows, in_memory=in_memory)
    assert str(error).startswith(
        "Effect 'state' of 'a.b': 2 of 3 rows have null in column 'amount', which is NOT NULL. The first one comes "
        "from record in[2] at offset 8. "
    )
    assert error.data == {"effect": "state", "column": "amount", "rows": 2, "place": ("in", 2, 8)}


@BOTH
def test_a_row_that_removes_its_key_needs_only_the_key(spark: SparkSession, in_memory: bool) -> None:
    removal = "SELECT 'a' AS id, CAST(NULL AS BIGINT) AS amount, TRUE AS _deleted"
    assert take(spark, STATE, removal, in_memory=in_memory).num_rows == 1
    error = refused(spark, STATE, removal.replace("'a'", "CAST(NULL AS STRING)"), in_memory=in_memory)
    assert error.data["column"] == "id"


@BOTH
def test_an_error_about_two_rows_for_a_key_names_the_record_of_one(spark: SparkSession, in_memory: bool) -> None:
    rows = f"SELECT id, n AS amount, {PLACE} FROM VALUES ('a', 1L), ('b', 5L), ('b', 4L) AS t(id, n)"
    error = refused(spark, STATE, rows, in_memory=in_memory)
    assert "3 rows for 2 keys (id). The first one comes from record in[2] at offset 4." in str(error)


@BOTH
def test_a_key_that_looks_like_the_path_of_another_column_is_a_key(spark: SparkSession, in_memory: bool) -> None:
    state = Table(name="state", key=[".id"], schema="`.id` STRING NOT NULL, id STRING")
    rows = f"SELECT key AS `.id`, of AS id, {PLACE} FROM VALUES ('a', 'x', 1L), ('b', 'x', 2L) AS t(key, of, n)"
    assert take(spark, state, rows, in_memory=in_memory).num_rows == 2
    twice = rows.replace("('b', 'x', 2L)", "('a', 'y', 2L)")
    assert "2 rows for 1 keys (.id)" in str(refused(spark, state, twice, in_memory=in_memory))


@BOTH
def test_an_error_about_a_state_row_names_the_record_of_its_origin(spark: SparkSession, in_memory: bool) -> None:
    place = "STRUCT(TIMESTAMP'2026-01-01' AS _order_timestamp, 'in' AS _topic, 0 AS _partition, 3L AS _offset)"
    rows = f"SELECT 'a' AS id, CAST(NULL AS BIGINT) AS amount, {place} AS origin"
    assert refused(spark, STATE, rows, in_memory=in_memory).data["place"] == ("in", 0, 3)


@BOTH
def test_a_row_without_a_record_is_refused_without_a_place(spark: SparkSession, in_memory: bool) -> None:
    error = refused(spark, STATE, "SELECT 'a' AS id, CAST(NULL AS BIGINT) AS amount", in_memory=in_memory)
    assert error.data["place"] is None


@BOTH
def test_a_required_column_of_an_output_may_not_be_null(spark: SparkSession, in_memory: bool) -> None:
    output = Append(name="rows", schema="id STRING NOT NULL, `was_deleted` BIGINT NOT NULL")
    rows = f"SELECT IF(n = 1, NULL, 'a') AS id, n AS was_deleted, {PLACE} FROM VALUES (0L), (1L) AS t(n)"
    assert refused(spark, output, rows, in_memory=in_memory).data["place"] == ("in", 2, 1)


NESTED = "a STRUCT<b: STRING NOT NULL, c: ARRAY<STRUCT<`.d e`: INT NOT NULL>>>"
FIELDS = {
    "a.b": "NAMED_STRUCT('b', NULL, 'c', NULL)",
    "a.c[]..d e": "NAMED_STRUCT('b', 'x', 'c', ARRAY(NAMED_STRUCT('.d e', 1), NULL, NAMED_STRUCT('.d e', NULL)))",
}


@BOTH
@pytest.mark.parametrize("field", FIELDS)
def test_a_null_in_a_required_field_names_the_field(spark: SparkSession, field: str, in_memory: bool) -> None:
    output = Append(name="rows", schema=NESTED)
    kind = NESTED[2:].replace(" NOT NULL", "")
    none, other = (f"SELECT CAST({sql} AS {kind}) AS a" for sql in ("NULL", FIELDS[field]))
    assert take(spark, output, none, in_memory=in_memory).num_rows == 1
    error = refused(spark, output, f"{none} UNION ALL {other}", in_memory=in_memory)
    assert f"1 of 2 rows have null in {field}, which is NOT NULL" in str(error)


@BOTH
def test_a_null_in_a_required_field_of_a_map_is_found(spark: SparkSession, in_memory: bool) -> None:
    output = Append(name="rows", schema="m MAP<STRING, STRUCT<f: INT NOT NULL>>")
    maps = "MAP('k', NAMED_STRUCT('f', IF(n = 1, NULL, 1)), 'l', CAST(NULL AS STRUCT<f: INT>)) AS m"
    rows = f"SELECT {maps} FROM VALUES (0), (2) AS t(n)"
    assert take(spark, output, rows, in_memory=in_memory).num_rows == 2
    assert refused(spark, output, rows.replace("(2)", "(1)"), in_memory=in_memory).data["rows"] == 1


NEAR, FAR = (f"DATE_FROM_UNIX_DATE({day})" for day in (LAST_DAY, LAST_DAY + 1))
DATES = {
    "DATE": "{}",
    "STRUCT<`.b`: DATE, b: INT>": "NAMED_STRUCT('.b', {}, 'b', 1)",
    "ARRAY<DATE>": "ARRAY(NULL, {})",
    "ARRAY<STRUCT<`a b`: ARRAY<DATE>>>": "ARRAY(NULL, NAMED_STRUCT('a b', ARRAY({})))",
    "MAP<STRING, DATE>": "MAP('k', {})",
    "MAP<DATE, STRING>": "MAP({}, 'v')",
}


def refused_with_one(spark: SparkSession, output: Append, value: str, *, in_memory: bool) -> TopologyError:
    """Refuses rows for one value of ``x``, the one of ``n = 1``; others, and a null, are taken.

    Args:
        value: SQL of ``n``.
    """
    kind = output.columns[0].type
    values = f"SELECT {value} AS x, {PLACE} FROM VALUES (0L), (2L) AS t(n)"
    rows = f"{values} UNION ALL SELECT CAST(NULL AS {kind}), {PLACE} FROM VALUES (3L) AS t(n)"
    assert take(spark, output, rows, in_memory=in_memory).num_rows == 3
    return refused(spark, output, rows.replace("(2L)", "(1L)"), in_memory=in_memory)


@BOTH
@pytest.mark.parametrize("kind", DATES)
def test_a_computed_date_that_one_writer_lacks_is_refused_on_both(
    spark: SparkSession, kind: str, in_memory: bool
) -> None:
    output = Append(name="rows", schema=f"x {kind}")
    value = DATES[kind].format(f"IF(n = 1, {FAR}, {NEAR})")
    error = refused_with_one(spark, output, value, in_memory=in_memory)
    assert "1 of 3 rows have a date in column 'x' before year -262143 or after year 262142" in str(error)
    assert error.data["place"] == ("in", 2, 1)


GOOD, BROKEN = "X'636166C3A9'", "X'636166E9'"


@BOTH
@pytest.mark.parametrize("of_date", DATES)
def test_a_text_that_is_not_utf8_is_refused_at_every_depth(spark: SparkSession, of_date: str, in_memory: bool) -> None:
    kind = of_date.replace("DATE", "STRING")
    output = Append(name="rows", schema=f"x {kind}")
    value = DATES[of_date].format(f"CAST(IF(n = 1, {BROKEN}, {GOOD}) AS STRING)")
    error = refused_with_one(spark, output, value, in_memory=in_memory)
    assert "1 of 3 rows have text in column 'x' that is not UTF-8." in str(error)
    assert error.data["place"] == ("in", 2, 1)


@BOTH
@pytest.mark.parametrize("deleted", [True, False])
def test_a_key_that_is_not_utf8_is_refused_also_where_it_is_removed(
    spark: SparkSession, deleted: bool, in_memory: bool
) -> None:
    rows = f"SELECT CAST({BROKEN} AS STRING) AS id, 1L AS amount, {deleted} AS _deleted, 5L AS n"
    error = refused(spark, STATE, f"SELECT *, {PLACE} FROM ({rows})", in_memory=in_memory)
    assert (error.data["column"], error.data["place"]) == ("id", ("in", 2, 5))


@BOTH
def test_a_partition_that_is_not_utf8_is_refused(spark: SparkSession, in_memory: bool) -> None:
    error = refused(
        spark,
        PARTS,
        f"SELECT 'a' AS id, CAST({BROKEN} AS STRING) AS region, TIMESTAMP'2026-01-01' AS at",
        in_memory=in_memory,
    )
    assert "text in column 'region' that is not UTF-8" in str(error)


@BOTH
@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_a_partition_has_the_years_that_readers_open(spark: SparkSession, kind: str, in_memory: bool) -> None:
    output = Append(name="rows", schema=f"id STRING, x {kind}", partition_by=["x"])
    text = f"'a' AS id, CAST(DATE_FROM_UNIX_DATE({{}}) AS {kind}) AS x"
    first, last = -719_162, 2_932_896
    rows = f"SELECT {text.format(first)} UNION ALL SELECT {text.format(last)} UNION ALL SELECT 'a', NULL"
    assert take(spark, output, rows, in_memory=in_memory).num_rows == 3
    for day in (first - 1, last + 1):
        error = refused(spark, output, f"SELECT {text.format(day)}", in_memory=in_memory)
        assert f"no partition can have: a {'date' if kind == 'DATE' else 'time'} before year 1 or" in str(error)


PARTS = Append(name="rows", schema="id STRING, region STRING, at TIMESTAMP", partition_by=["region", "at"])


@BOTH
def test_an_empty_text_in_a_partition_column_is_a_null_as_in_delta(spark: SparkSession, in_memory: bool) -> None:
    texts = "VALUES (''), (' '), ('__HIVE_DEFAULT_PARTITION__') AS t(region)"
    rows = f"SELECT 'a' AS id, region, TIMESTAMP'2026-01-01' AS at FROM {texts}"
    assert sorted(take(spark, PARTS, rows, in_memory=in_memory)["region"].to_pylist(), key=str) == [" ", None, None]


@BOTH
@pytest.mark.parametrize(
    "region", ["''", "CONCAT('a', CHAR(0))", "REPEAT('x', 250)", "REPEAT('ü', 50)", "NULL"], ids=str
)
def test_a_value_unsuitable_for_a_partition_is_refused(spark: SparkSession, region: str, in_memory: bool) -> None:
    output = Append(name="rows", schema="id STRING, region STRING NOT NULL", partition_by=["region"])
    rows = f"SELECT 'a' AS id, IF(n = 1, {region}, 'x') AS region, {PLACE} FROM VALUES (0L), (1L) AS t(n)"
    error = refused(spark, output, rows, in_memory=in_memory)
    assert (error.data["column"], error.data["place"]) == ("region", ("in", 2, 1))


@BOTH
def test_a_long_text_that_fits_the_name_of_a_folder_is_accepted(spark: SparkSession, in_memory: bool) -> None:
    texts = "VALUES (REPEAT('x', 248)), (REPEAT('ü', 41)) AS t(region)"
    rows = f"SELECT 'a' AS id, region, TIMESTAMP'0001-01-01' AS at FROM {texts}"
    assert take(spark, PARTS, rows, in_memory=in_memory).num_rows == 2
    early = rows.replace("TIMESTAMP'0001-01-01'", "TIMESTAMP_MICROS(-62135596800000001)")
    assert refused(spark, PARTS, early, in_memory=in_memory).data["column"] == "at"


def entries(value: Any, key: bytes = b"k") -> Input:
    return Input(topic="in", value=value, key=key, timestamp_ms=1_767_225_600_000)


def poison(slice: Any) -> Any:
    """The step of README's topology on a record without a value: the row lacks it too."""
    rows = slice["in"].selectExpr("id", "n AS amount", "COALESCE(region, '') AS region", *ORDER)
    return {"state": newest(rows.where("id IS NOT NULL"), key="id"), "rows": rows}


POISON = Topology(
    name="a.poison",
    version="1",
    sources=[Source(topic="in", schema="id STRING, n BIGINT, region STRING")],
    tables=[STATE],
    outputs=[Append(name="rows", schema="id STRING, region STRING NOT NULL", partition_by=["region"])],
    step=poison,
)
WAYS = {"driver": None, "arrow": 500_000, "spark": 0}


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_slice_writes_nothing_and_the_next_one_passes(spark: SparkSession, tmp_path: Path, way: str) -> None:
    most = WAYS[way]
    run: TopologyDriver | HeldSlices = (
        TopologyDriver(POISON, spark)
        if most is None
        else HeldSlices(POISON, spark, tmp_path, partitions=1, small_slice=50_000, arrow_rows=most)
    )
    run.pipe([entries({"id": "a", "n": 1, "region": "x"}), entries(b"no JSON")])
    for value, message in {
        '{"id":"b","region":"x"}': "1 of 1 rows have null in column 'amount'",
        '{"id":"b","n":1,"region":""}': "1 of 1 rows have no text in column 'region'",
    }.items():
        before = snapshot(tmp_path)
        with pytest.raises(TopologyError, match=message) as refusal:
            run.pipe([entries(b"no JSON"), entries(value)])
        assert refusal.value.data["place"] is not None
        assert snapshot(tmp_path) == before, "neither rows nor dead letters"
        if isinstance(run, HeldSlices):
            run.abandon()
    run.pipe([entries({"id": "b", "n": 2, "region": "y"})])
    assert [row["amount"] for row in sorted(run.state("state"), key=lambda row: row["id"])] == [1, 2]


@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_is_not_utf8_is_refused_and_the_next_slice_is_read(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    def decoded(slice: Any) -> Any:
        return {"rows": slice["in"].selectExpr("CAST(value AS STRING) AS text", *ORDER)}

    topology = replace(
        POISON,
        sources=[Source(topic="in", format="bytes")],
        tables=[],
        outputs=[Append(name="rows", schema="text STRING")],
        step=decoded,
    )
    most = WAYS[way]
    run: TopologyDriver | HeldSlices = (
        TopologyDriver(topology, spark)
        if most is None
        else HeldSlices(topology, spark, tmp_path, partitions=1, small_slice=50_000, arrow_rows=most)
    )
    run.pipe([entries(b"caf\xc3\xa9")])
    before = snapshot(tmp_path)
    with pytest.raises(TopologyError, match="1 of 2 rows have text in column 'text' that is not UTF-8") as refusal:
        run.pipe([entries(b"fine"), entries(b"caf\xe9")])
    assert refusal.value.data["place"] == ("in", 0, 2)
    assert snapshot(tmp_path) == before
    if isinstance(run, HeldSlices):
        run.abandon()
    run.pipe([entries(b"later")])
    rows = run.rows("rows") if isinstance(run, TopologyDriver) else run.rows_in_order("rows")
    assert sorted(row["text"] for row in rows) == ["café", "later"]


def snapshot(lake: Path) -> list[str]:
    """The Delta commits of existing effects."""
    return sorted(str(file) for file in lake.rglob("_delta_log/*.json") if "ledger" not in str(file))


@pytest.mark.parametrize("most", [500_000, 0], ids=["arrow", "spark"])
def test_an_empty_text_in_a_partition_column_is_read_back_as_null(
    spark: SparkSession, tmp_path: Path, most: int
) -> None:
    parted = Append(name="rows", schema="id STRING, region STRING", partition_by=["region"])
    topology = replace(POISON, tables=[], outputs=[parted], step=lambda slice: {"rows": slice["in"]})
    run = HeldSlices(topology, spark, tmp_path, partitions=1, small_slice=50_000, arrow_rows=most)
    regions = ["", None, " ", "a/b=c", "ä %20", "__HIVE_DEFAULT_PARTITION__"]
    run.pipe([entries({"id": str(n), "region": region}) for n, region in enumerate(regions)])
    rows = sorted(run.rows_in_order("rows"), key=lambda row: row["id"])
    assert [row["region"] for row in rows] == [None, None, " ", "a/b=c", "ä %20", None]
