"""A snapshot in other engines: each of them has every row of the slice, in every type that a table may have."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from support import epoch_record
from support.slices import Epoch

from kappa import serving
from kappa.delta import queries
from kappa.errors import UnknownTableError, UsageError
from kappa.record import merge_on_read
from kappa.serving import Snapshot
from kappa.topology import Source, Table, Topology
from kappa.topology.ddl import _PRIMITIVES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
    id STRING NOT NULL, `größe` DECIMAL(38,18), `数量` BIGINT, `select` INT, short SMALLINT, tiny TINYINT, flag BOOLEAN,
    ratio DOUBLE, part FLOAT, raw BINARY, day DATE, at TIMESTAMP, items ARRAY<STRUCT<sku: STRING, price: DECIMAL(9,2)>>,
    tags MAP<STRING, ARRAY<INT>>, byday MAP<DATE, DECIMAL(5,1)>,
    place STRUCT<`straße`: STRING, at: STRUCT<since: TIMESTAMP>>"""
TYPED = Topology(
    name="stock.typed",
    version="1",
    sources=[Source(topic="pos", schema="id STRING NOT NULL")],
    tables=[Table(name="items", key=["id"], schema=SCHEMA)],
    step=lambda _: {},
)
AT = datetime(2026, 3, 1, 12, 30, 1, 123456, tzinfo=UTC)


def full(id: str, number: int) -> dict[str, Any]:
    """A row with a value in every column."""
    return {
        "id": id,
        "größe": Decimal(f"12345678901234567890.12345678901234567{number}"),
        "数量": 2**62 + number,
        "select": -number,
        "short": -(2**15),
        "tiny": 127,
        "flag": number % 2 == 0,
        "ratio": 0.1 * number,
        "part": 0.5,
        "raw": bytes([0, 255, number]),
        "day": date(1582, 10, number + 1),
        "at": AT.replace(year=2000 + number),
        "items": [{"sku": "ä'\"", "price": Decimal("1.50")}, None, {"sku": None, "price": None}],
        "tags": [("ö", [number, None]), ("", [])],
        "byday": [(date(2026, 3, number + 1), Decimal("-0.5"))],
        "place": {"straße": "Größe\n,", "at": {"since": AT}},
    }


def empty(id: str) -> dict[str, Any]:
    """A row in which all but the key is missing."""
    return {**dict.fromkeys(full(id, 0)), "id": id}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    """A half merged table: rows were kept, changed, emptied, removed or added since."""
    with pytest.MonkeyPatch.context() as patch:
        config = epoch_record.empty_lake(tmp_path_factory.mktemp("typed"), patch)
        epoch = Epoch(Path(config.lake), TYPED, merge_seconds=0.0)
        epoch.put(*(full(id, number) for number, id in enumerate(("kept", "changed", "emptied", "removed"))))
        epoch.merge_after(3600.0)
        epoch.put(full("changed", 7), full("new", 8), {"id": "removed", "_deleted": True})
        epoch.put(empty("emptied"), full("changed", 9), empty("ÿ"))
        epoch_record.tell(config, TYPED.name, 1, *epoch_record.FIRST, by_event={})
        snapshot = serving.snapshot(config, TYPED.name)
        assert not snapshot.tables["items"].is_merged, "changes wait beside the table"
        yield snapshot


EXPECTED = [full("changed", 9), empty("emptied"), full("kept", 0), full("new", 8), empty("ÿ")]


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: str(row["id"]))


def in_duckdb(snapshot: Snapshot) -> pa.Table:
    connection = duckdb.connect()
    table = snapshot.duckdb("items", connection, view="Ware").to_arrow_table()
    connection.close()
    return table


READERS: dict[str, Callable[[Snapshot], pa.Table]] = {
    "rows": lambda snapshot: snapshot.rows("items"),
    "arrow": lambda snapshot: snapshot.arrow("items"),
    "batches": lambda snapshot: pa.Table.from_batches(list(snapshot.batches("items"))),
    "polars": lambda snapshot: snapshot.polars("items").collect().to_arrow(),
    "duckdb": in_duckdb,
}


def test_the_table_of_these_tests_has_every_type() -> None:
    kinds = {str(column.delta).partition("(")[0] for column in TYPED.tables[0].columns if isinstance(column.delta, str)}
    nested = {column.delta["type"] for column in TYPED.tables[0].columns if isinstance(column.delta, dict)}
    assert (kinds, nested) == ({*_PRIMITIVES.values(), "decimal"}, {"array", "map", "struct"})


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_has_every_row_of_the_slice_in_every_type(lake: Snapshot, reader: str) -> None:
    table = READERS[reader](lake)
    assert table.schema.names == list(full("", 0))
    assert by_id(table) == EXPECTED


def test_arrow_has_the_declared_types(lake: Snapshot) -> None:
    path, version = lake.place("items")
    declared = pa.schema(DeltaTable(path, version=version).schema().to_arrow())
    assert lake.arrow("items").schema == lake.batches("items").schema == declared


def test_a_lazy_reader_answers_filtered_and_limited_queries(lake: Snapshot) -> None:
    frame = lake.polars("items")
    assert frame.select(pl.len()).collect().item() == 5
    assert frame.filter(pl.col("数量").is_null()).select("id").collect()["id"].sort().to_list() == ["emptied", "ÿ"]
    assert frame.head(2).collect().height == 2
    for engine in ("in-memory", "streaming"):
        numbers = frame.with_row_index().select("index").collect(engine=engine)
        assert numbers.to_dict(as_series=False) == {"index": [0, 1, 2, 3, 4]}, "no column is needed"
        few = frame.filter(pl.col("id") < "l").select(pl.int_range(pl.len())).collect(engine=engine)
        assert few.to_series().to_list() == [0, 1, 2]
    assert frame.filter(pl.col("id") == "new").collect().to_dicts()[0]["größe"] == full("", 8)["größe"]


def test_a_view_in_duckdb_can_be_queried_repeatedly(lake: Snapshot) -> None:
    connection = duckdb.connect()
    lake.duckdb("items", connection)
    for _ in range(2):
        rows = connection.sql('SELECT COUNT(*), MAX("größe") FROM items').fetchall()
        assert rows == [(5, full("", 9)["größe"])]
    joined = "SELECT COUNT(*) FROM items a JOIN items b USING (id) WHERE a.place.at.since = b.place.at.since"
    assert connection.sql(joined).fetchall() == [(3,)]
    connection.close()


def test_an_object_that_is_not_a_connection_is_refused(lake: Snapshot) -> None:
    with pytest.raises(UsageError, match=r"str is not one. Make one: duckdb.connect\(\)"):
        lake.duckdb("items", "items")  # type: ignore[arg-type]


@pytest.mark.parametrize("reader", ["arrow", "batches", "polars"])
def test_an_unknown_table_is_named_by_every_reader(lake: Snapshot, reader: str) -> None:
    with pytest.raises(UnknownTableError, match="has no table or output 'item'"):
        getattr(lake, reader)("item")


@pytest.mark.parametrize("package", ["polars", "duckdb"])
def test_a_missing_package_is_named_with_its_install_command(
    lake: Snapshot, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, connection = builtins.__import__, duckdb.connect()

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=rf"python -m pip install {package}$"):
        lake.polars("items") if package == "polars" else lake.duckdb("items", connection)


@pytest.mark.parametrize(
    ("condition", "expected"), [("DATA_SOURCE_NOT_FOUND", UsageError), ("TABLE_OR_VIEW_NOT_FOUND", PySparkException)]
)
def test_a_session_without_delta_is_refused_with_the_package_to_add(
    lake: Snapshot, condition: str, expected: type[Exception]
) -> None:
    class Session:
        @property
        def read(self) -> Any:
            raise PySparkException("of Spark", errorClass=condition, messageParameters={})

    with pytest.raises(expected) as error:
        lake.spark("items", Session())  # type: ignore[arg-type]
    assert ("--packages io.delta:" in str(error.value)) == (expected is UsageError)


def test_a_snapshot_stays_at_its_slice_while_the_stream_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = epoch_record.empty_lake(tmp_path, monkeypatch)
    epoch = Epoch(Path(config.lake), TYPED, merge_seconds=3600.0)
    epoch.put(full("a", 1))
    epoch_record.tell(config, TYPED.name, 1, *epoch_record.FIRST, by_event={})
    connection, snapshot = duckdb.connect(), serving.snapshot(config, TYPED.name)
    frame, view = snapshot.polars("items"), snapshot.duckdb("items", connection)
    stream = snapshot.batches("items")
    epoch.put_without_commit(
        full("a", 2), full("b", 2)
    )  # a slice in the middle: its changes are written, nothing is committed
    now = serving.snapshot(config, TYPED.name)
    assert now.seq == snapshot.seq == 1
    for table in (snapshot.arrow("items"), now.arrow("items"), frame.collect().to_arrow(), view.to_arrow_table()):
        assert by_id(table) == [full("a", 1)]
    assert by_id(stream.read_all()) == [full("a", 1)]
    connection.close()


def test_a_reader_with_missing_files_gets_an_error_instead_of_fewer_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = epoch_record.empty_lake(tmp_path, monkeypatch)
    epoch = Epoch(Path(config.lake), TYPED, merge_seconds=0.0)
    epoch.put(full("a", 1))
    epoch.merge_after(3600.0)
    epoch.put(full("b", 1))
    epoch_record.tell(config, TYPED.name, 1, *epoch_record.FIRST, by_event={})
    connection, snapshot = duckdb.connect(), serving.snapshot(config, TYPED.name)
    frame, view = snapshot.polars("items"), snapshot.duckdb("items", connection)
    for file in Path(epoch.paths.table("items")).glob("*.parquet"):
        file.unlink()
    readings: list[Callable[[], Any]] = [
        lambda: snapshot.arrow("items"),
        lambda: snapshot.batches("items").read_all(),  # the first batch may be one of changes, whose files are there
        frame.collect,
        view.fetchall,
        lambda: serving.sql(config, "SELECT * FROM stock.typed.items"),
    ]
    for read in readings:
        with pytest.raises(Exception, match=r"[Nn]ot found|No such file|is missing"):
            read()
    connection.close()


@pytest.mark.spark
def test_spark_has_every_row_of_the_slice_in_every_type(lake: Snapshot, spark: SparkSession) -> None:
    frame = lake.spark("items", spark)
    assert by_id(frame.toArrow()) == EXPECTED
    assert frame.where("`数量` IS NULL").count() == 2


@pytest.mark.spark
@pytest.mark.parametrize("small_rows", [queries.SMALL_ROWS, 4, 0])
def test_a_table_in_memory_equals_the_table_of_its_files(
    lake: Snapshot, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, small_rows: int
) -> None:
    """Both from memory; the table from memory and its changes, of more rows, from files; both from files."""
    monkeypatch.setattr(queries, "SMALL_ROWS", small_rows)
    contents = lake.contents("items")
    ours = merge_on_read.frame(spark, contents)
    files = merge_on_read.frame(spark, contents, merge_on_read.read_files)
    assert ours.schema == files.schema
    assert by_id(ours.toArrow()) == by_id(files.toArrow()) == EXPECTED
    plan = ours._jdf.queryExecution().toString()
    assert ("parquet" in plan.lower()) == (small_rows < 5), plan


@pytest.mark.spark
def test_an_empty_table_has_its_columns(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    config = epoch_record.empty_lake(tmp_path, monkeypatch)
    epoch = Epoch(Path(config.lake), TYPED)
    path = epoch.paths.table("items")
    ours, files = merge_on_read.read_table(spark, path, 0), merge_on_read.read_files(spark, path, 0)
    assert ours.schema == files.schema
    assert ours.count() == files.count() == 0


@pytest.mark.spark
def test_times_outside_of_pythons_range_are_the_same_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    micros = [-(2**55), -62_135_596_800_000_001, 0, 253_402_300_800_000_000, 2**55, None]
    rows = pa.table({"n": pa.array(range(6), pa.int32()), "at": pa.array(micros, pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path / "far", rows)
    for read in (merge_on_read.read_table, merge_on_read.read_files):
        far = read(spark, str(tmp_path / "far"), 0).selectExpr("n", "unix_micros(at) AS at").toArrow()
        assert [row["at"] for row in sorted(far.to_pylist(), key=lambda row: row["n"])] == micros, read
