"""Records read back from an archive equal the parsed records, for any value and any type."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from support import hostile_json
from support.avro import record, wired
from support.changes import change
from support.ways import in_tasks

from kappa.archive.rows import COLUMNS, PARTITION, archived_rows, schema_name, source_rows
from kappa.delta import tables
from kappa.spark.tuning import tune
from kappa.topology import Source
from kappa.topology.schemas.wire_schemas import WriterSchema, WriterSchemas

if TYPE_CHECKING:
    from conftest_spark import Log

PLAIN = "id STRING, amount BIGINT"
TIMES = (
    "d DATE, t TIMESTAMP, f FLOAT, m MAP<STRING, INT>, b BINARY, s STRUCT<d: DATE, m: MAP<STRING, ARRAY<TIMESTAMP>>>"
)
TIMED = [
    b'{"d": "0001-01-01", "t": "0002-01-01T00:00:00Z", "s": {"d": "1582-10-10"}}',
    b'{"d": "1582-10-09", "t": "1899-12-31T23:59:59.999999Z", "f": -0.0}',
    b'{"d": "9999-12-31", "t": "9999-12-30T23:59:59.999999Z", "f": "NaN", "m": {"b": 1, "a": null}}',
    b'{"t": "1970-01-01T00:00:00.000001+05:30", "b": "AP8=", "m": {}, "s": {}}',
    b'{"s": {"m": {"k": ["2026-03-01T00:00:00Z", null]}}, "f": 1e39}',
    b'{"d": "2026-02-30"}',
    b'{"m": {"k": "x"}}',
    b"{}",
    b"[]",
    b"\xff",
    None,
]


def source(schema: str, **more: Any) -> Source:
    return Source(topic="pos", schema=schema, **more)


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
class TestArchivedRows:
    @pytest.mark.parametrize(
        ("schema", "is_small", "count"),
        [(hostile_json.SCHEMA, True, 500), (PLAIN, False, 500), (hostile_json.SCHEMA, False, 1500)],
        ids=["many types", "few", "many types at once"],
    )
    def test_hostile_values_are_read_back_as_parsed(
        self, spark: Any, log: Log, tmp_path: Path, schema: str, is_small: bool, count: int
    ) -> None:
        tune(spark, is_small=is_small)
        random = Random(7)
        values = [(n % 3, 10**12 + random.randrange(9) * 1000, hostile_json.value(random)) for n in range(count)]
        assert_read_as_parsed(
            spark, log(sorted(values, key=lambda v: v[0])), tmp_path, schema, {PLAIN, hostile_json.SCHEMA}
        )
        tune(spark, is_small=True)

    def test_times_maps_and_bytes_are_read_back_as_parsed(self, spark: Any, log: Log, tmp_path: Path) -> None:
        assert_read_as_parsed(spark, log([(0, n, value) for n, value in enumerate(TIMED)]), tmp_path, TIMES, {TIMES})

    def test_tombstones_and_keys_are_read_back_as_parsed(self, spark: Any, log: Log, tmp_path: Path) -> None:
        reader = source("n INT", key_schema="id BIGINT", key_format="long", tombstones=True)
        keys = [(5).to_bytes(8), b"5", None]
        raw = log([(0, n, value, key) for n, value in enumerate((b'{"n": 1}', None, b"{")) for key in keys])
        for is_parsed in (True, False):
            folder = tmp_path / str(is_parsed)
            assert_read_as_parsed(spark, raw, folder, reader, {reader} if is_parsed else set(), is_parsed=is_parsed)

    def test_changes_of_a_database_are_read_back_as_parsed(self, spark: Any, log: Log, tmp_path: Path) -> None:
        reader = source("n INT", key_schema="id BIGINT", envelope="debezium")
        values = [change("c", {"n": 1}, lsn=1), change("d", None, lsn=2), None, change("t", None, lsn=3), {"n": 1}]
        raw = log([(0, n, value, b'{"id": 1}') for n, value in enumerate(values)])
        assert_read_as_parsed(spark, raw, tmp_path, reader, set(), is_parsed=False)

    def test_values_kept_by_another_schema_are_read_back_as_parsed(self, spark: Any, log: Log, tmp_path: Path) -> None:
        raw = log([(0, 5, value) for value in TIMED])
        assert_read_as_parsed(spark, raw, tmp_path, "d STRING NOT NULL", {TIMES}, is_parsed=False)

    def test_avro_is_read_back_as_parsed(self, spark: Any, log: Log, tmp_path: Path) -> None:
        writer = record(("id", "string"), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
        good = [wired(1, writer, {"id": f"é{n}", "at": 10**12 + n}) for n in range(5)]
        odd = [None, b"", b"{}", b"\0\0\0\0\1", b"\0\0\0\0\2\0", b"\0\0\0\0\3\0"]
        raw = log([(n % 2, n, value) for n, value in enumerate([*good, *odd])]).sort("partition", "offset")
        schemas = {1: WriterSchema(text=json.dumps(writer)), 2: None}
        reader = source("id STRING NOT NULL, at TIMESTAMP", format="avro")
        assert schema_name(reader) is None
        assert_read_as_parsed(spark, raw, tmp_path, reader, set(), is_parsed=False, schemas=schemas)


def assert_read_as_parsed(
    spark: Any,
    raw: Any,
    folder: Path,
    schema: str | Source,
    archived: set[str] | set[Source],
    *,
    is_parsed: bool = True,
    schemas: WriterSchemas | None = None,
) -> None:
    """Archive records parsed by some schemas, read them back by one, and compare them with plain parsing."""
    reader = source(schema) if isinstance(schema, str) else schema
    sources = [source(one) if isinstance(one, str) else one for one in archived]
    names = {str(schema_name(one)): one for one in sources}
    path = str(folder / "records")
    tables.create(path, COLUMNS, partition_by=[PARTITION.name])
    records_with_headers = raw.selectExpr("*", "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers")
    rows = archived_rows(records_with_headers, names).selectExpr("*", "CAST(1 AS BIGINT) AS seq")
    tables.append_frame(path, rows, 1, mergeSchema="true")
    records = spark.read.format("delta").load(path)
    assert (schema_name(reader) in records.columns) is is_parsed
    back = source_rows(
        records.selectExpr("*", "timestamp_millis(running_max_ms) AS order_timestamp"),
        reader,
        is_parsed=is_parsed,
        schemas=schemas,
    )
    expected = in_tasks(raw, reader, schemas=schemas).collect()
    rows_from_archive = back.drop("_seq").collect()
    good = [repr(row) for row in expected if row["_dead"] is None]
    assert good
    assert sorted(repr(row) for row in rows_from_archive if row["_dead"] is None) == sorted(good)

    def letters(parsed: list[Any]) -> list[str]:
        names = ("_partition", "_offset", "_timestamp", "_order_timestamp", "_key", "_value", "_dead")
        return sorted(repr([row[name] for name in names]) for row in parsed if row["_dead"] is not None)

    assert letters(rows_from_archive) == letters(expected)
    assert letters(rows_from_archive)


class TestSchemaName:
    def test_a_schema_has_one_name_that_depends_on_everything_parsing_uses(self) -> None:
        name = schema_name(source("id STRING NOT NULL, amount BIGINT"))
        assert name == schema_name(source("id  string not null, amount bigint", headers=True, keyed=False))
        others = ["id STRING, amount BIGINT", "id STRING NOT NULL, amount INT", "ID STRING NOT NULL, amount BIGINT"]
        assert len({name, *(schema_name(source(other)) for other in others)}) == 4

    def test_unnameable_columns_and_unparsed_formats_are_kept_only_raw(self) -> None:
        assert schema_name(source("`a b` STRING")) is None
        assert schema_name(source("s STRUCT<`x,y`: INT>")) is None
        assert schema_name(Source(topic="pos", format="string")) is None
        assert schema_name(Source(topic="pos", format="bytes")) is None
