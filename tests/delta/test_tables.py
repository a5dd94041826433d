"""Delta tables of an epoch: each slice's rows once, whoever writes them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from support.table_changes import COLUMNS, changes, rows

from kappa.delta import queries, table_files, tables, vacuum
from kappa.delta.damage import entry_of
from kappa.errors import ConflictError, DisagreementError, MiscountedError
from kappa.slices.state import newest
from kappa.topology.ddl import columns_of
from kappa.topology.times.dates import FIRST_DAY, LAST_DAY


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str]:
    loose = columns_of("id STRING NOT NULL, total DECIMAL(12,2)", "test")
    tables.create(str(tmp_path / "changes"), (tables.SEQ, tables.DELETED, *loose))
    tables.create(str(tmp_path / "table"), COLUMNS)
    return str(tmp_path / "changes"), str(tmp_path / "table")


def test_a_second_write_of_a_slice_changes_nothing(paths: tuple[str, str]) -> None:
    log, table = paths
    for _ in range(2):
        tables.append(log, changes(1, ("a", "1.10"), ("b", "2.00")), 1)
        tables.merge(table, changes(1, ("a", "1.10"), ("b", "2.00")), ["id"], COLUMNS, 1)
    assert (tables.version(log), tables.version(table)) == (1, 1)
    assert rows(table) == [{"id": "a", "total": Decimal("1.10")}, {"id": "b", "total": Decimal("2.00")}]
    assert table_files.count(table, 1) == 2


@pytest.mark.parametrize("kind", ["DECIMAL(38,0)", "DECIMAL(38,18)", "DECIMAL(17,16)"])
def test_a_key_with_too_many_digits_for_log_statistics_is_found(tmp_path: Path, kind: str) -> None:
    key = {"DECIMAL(38,0)": 10**37 + 1, "DECIMAL(38,18)": "12345678901234567890.123456789012345678"}
    value = Decimal(key.get(kind, "1.0000000000000001"))
    columns = columns_of(
        f"k {kind} NOT NULL, `a b.c` STRING, n DECIMAL(12,2), s STRUCT<d: DECIMAL(38,0)>, b BOOLEAN", "t"
    )
    path = str(tmp_path / "table")
    tables.create(path, (tables.SEQ, *columns))
    row = {"_seq": 1, "k": value, "a b.c": "x", "n": Decimal("1.10"), "s": {"d": 10**37 + 1}, "b": True}
    tables.append(path, pa.Table.from_pylist([row], schema=tables.schema_of(path)), 1)
    assert queries.query(path, 1, where=f"k = CAST('{value:f}' AS {kind})").num_rows == 1
    (entry,) = [line for line in Path(entry_of(path, 1)).read_text().splitlines() if '"add"' in line]
    assert set(json.loads(json.loads(entry)["add"]["stats"])["minValues"]) == {"_seq", "a b.c", "n"}


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "STRUCT<x: DOUBLE>"])
def test_nan_is_found_in_files_that_were_merged_or_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, number = str(tmp_path / "table"), "v['x']" if kind.startswith("STRUCT") else "v"
    tables.create(path, (tables.SEQ, *columns_of(f"`a.b` STRING, v {kind}", "t")))
    values = [float("nan"), 1.0]

    def rows_of(seq: int) -> pa.Table:
        rows = [{"_seq": seq, "a.b": "x", "v": {"x": v} if number != "v" else v} for v in values]
        return pa.Table.from_pylist(rows, schema=tables.schema_of(path))

    def slices_of_nan() -> list[int]:
        return queries.query(path, None, where=f"{number} > 5 AND \"a.b\" = 'x'")["_seq"].to_pylist()

    tables.append(path, rows_of(1), 1)
    tables.append(path, rows_of(2), 2)
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 1)
    vacuum.compact(path)
    assert sorted(slices_of_nan()) == [1, 2] and table_files.count(path, tables.version(path)) == 4
    tables.replace_where(path, rows_of(3).to_reader(), "_seq < 4", 3, "plan")
    assert slices_of_nan() == [3]
    assert table_files.files_of(DeltaTable(path))["max._seq"].to_pylist() == [3], "which whole numbers still have"


@pytest.mark.parametrize("kind", ["DATE", "ARRAY<DATE>", "MAP<DATE, DATE>"])
def test_the_first_and_the_last_date_of_a_column_are_written_and_the_next_are_not(tmp_path: Path, kind: str) -> None:
    def append(day: int, seq: int) -> None:
        date = pa.scalar(day, pa.int32()).cast(pa.date32())
        value = {"DATE": [date], "ARRAY<DATE>": [[date]], "MAP<DATE, DATE>": [[(date, date)]]}[kind]
        schema = tables.schema_of(path)
        columns = [pa.array([seq], pa.int64()), pa.array(value, schema.field("d").type)]
        tables.append(path, pa.Table.from_arrays(columns, schema=schema), seq)

    path = str(tmp_path / "table")
    tables.create(path, (tables.SEQ, *columns_of(f"d {kind}", "test")))
    append(FIRST_DAY, 1)
    append(LAST_DAY, 2)
    assert tables.version(path) == 2
    for day in (FIRST_DAY - 1, LAST_DAY + 1):
        with pytest.raises(DeltaError, match="overflowed"):
            append(day, 3)


def test_the_newest_version_is_found_from_any_older_one(paths: tuple[str, str]) -> None:
    log, _ = paths
    for seq in range(1, 8):
        tables.append(log, changes(seq, ("a", "1.00")), seq)
    assert [tables.version_after(log, number) for number in range(8)] == [7] * 8
    entries = Path(log, "_delta_log")
    DeltaTable(log).create_checkpoint()
    for version in range(5):
        (entries / f"{version:020}.json").unlink()
    assert [tables.version_after(log, number) for number in range(8)] == [7] * 8


def test_a_merge_updates_deletes_and_ignores_deletes_of_missing_keys(paths: tuple[str, str]) -> None:
    _, table = paths
    tables.merge(table, changes(1, ("a", "1.00"), ("b", "2.00")), ["id"], COLUMNS, 1)
    tables.merge(table, changes(2, ("a", None), ("b", "3.00"), ("c", None)), ["id"], COLUMNS, 2)
    assert rows(table) == [{"id": "b", "total": Decimal("3.00")}]
    assert queries.query(table, 1).num_rows == 2, "the version before is still there"


def test_a_sealed_slice_has_no_rows_and_cannot_be_written(paths: tuple[str, str]) -> None:
    log, _ = paths
    tables.append(log, changes(1, ("a", "1.00")), 1)
    tables.append(log, changes(2, ("b", "1.00")), 2)
    tables.seal(log, 2)
    tables.seal(log, 3)
    tables.append(log, changes(3, ("c", "1.00")), 3)
    assert [row["id"] for row in rows(log)] == ["a"]
    tables.append(log, changes(4, ("d", "1.00")), 4)
    assert [row["id"] for row in rows(log)] == ["a", "d"]


def test_a_writer_that_wakes_up_late_adds_no_rows_to_an_empty_slice(paths: tuple[str, str]) -> None:
    log, _ = paths
    assert tables.append(log, changes(1), 1)
    written = tables.version(log)
    assert not tables.append(log, changes(1, ("zombie", "1.00")), 1)
    assert (rows(log), tables.version(log)) == ([], written)
    assert tables.append(log, changes(2, ("a", "1.00")), 2)
    assert [row["id"] for row in rows(log)] == ["a"]


def test_two_concurrent_writers_of_a_slice_write_it_once(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = paths

    def is_overtaken(*arguments: Any, **how: Any) -> None:
        monkeypatch.undo()
        tables.append(log, changes(1, ("a", "1.00")), 1)
        deltalake.write_deltalake(*arguments, **how)

    monkeypatch.setattr(deltalake, "write_deltalake", is_overtaken)
    with pytest.raises(ConflictError):
        tables.append(log, changes(1, ("a", "1.00")), 1)
    assert len(rows(log)) == 1


def test_rows_of_a_slice_are_read_in_portions_and_in_order(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    tables.create(path, (tables.SEQ, *columns_of("n BIGINT, m BIGINT", "test")))
    for seq, first in ((1, 0), (2, 100)):
        rows = pa.table({"n": [first + (7 * i) % 50 for i in range(50)], "m": [1] * 50})
        tables.append(path, rows.append_column("_seq", pa.array([seq] * 50, pa.int64())), seq)
    parts = list(queries.rows_in_order(path, tables.version(path), 2, ("n",), rows=8))
    assert max(part.num_rows for part in parts) <= 8
    assert [n for part in parts for n in part["n"].to_pylist()] == list(range(100, 150))
    loose = queries.rows_in_order(path, tables.version(path), 2, ("absent",))
    assert sorted(n for part in loose for n in part["n"].to_pylist()) == list(range(100, 150))


def test_rows_of_one_place_are_in_one_portion(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    tables.create(path, (tables.SEQ, *columns_of("n BIGINT", "test")))
    places = [0, *[1] * 12, 2, 3, *[4] * 9, None, None]
    tables.append(path, pa.table({"n": pa.array(places, pa.int64()), "_seq": pa.array([1] * 26, pa.int64())}), 1)

    parts = [part["n"].to_pylist() for part in queries.rows_in_order(path, tables.version(path), 1, ("n",), rows=4)]

    assert [n for part in parts for n in part] == places
    assert all(sum(n in part for part in parts) == 1 for n in range(5))


def test_the_later_of_two_rows_with_the_same_key_stays() -> None:
    both = newest(changes(1, ("a", "1.00"), ("b", "2.00")), changes(2, ("b", None), ("c", "3.00")), ["id"])
    assert {row["id"]: row["total"] for row in both.to_pylist()} == {
        "a": Decimal("1.00"),
        "b": None,
        "c": Decimal("3.00"),
    }
    assert newest(None, changes(1, ("a", "1.00")), ["id"]).num_rows == 1


def test_commits_of_a_table_are_attributed_by_their_metadata(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    tables.create(path, [tables.SEQ])
    schema = pa.schema([pa.field("_seq", pa.int64(), nullable=False)])
    rows = pa.table({"_seq": [1]}, schema=schema)
    properties = CommitProperties(custom_metadata={"userMetadata": "me/1"})
    write_deltalake(path, rows, mode="append", commit_properties=properties)
    assert tables.has_commit_of(path, "me/1")
    assert not tables.has_commit_of(path, "me/2")


def test_the_size_of_a_version_is_the_size_of_its_own_files(paths: tuple[str, str], tmp_path: Path) -> None:
    log, _ = paths
    tables.append(log, changes(1, ("a", "1.10")), 1)
    one = sum(file.stat().st_size for file in Path(log).glob("*.parquet"))
    tables.append(log, changes(2, ("b", "2.00")), 2)
    both = sum(file.stat().st_size for file in Path(log).glob("*.parquet"))
    assert (table_files.size_bytes(log, 0), table_files.size_bytes(log, 1), table_files.size_bytes(log, 2)) == (
        0,
        one,
        both,
    )
    assert 0 < one < both
    assert table_files.size_bytes(str(tmp_path / "none"), 0) == 0


def test_files_are_listed_only_where_they_are_the_whole_table(paths: tuple[str, str], tmp_path: Path) -> None:
    log, _ = paths
    tables.append(log, changes(1, ("a", "1.00")), 1)
    tables.append(log, changes(2, ("b", "1.00")), 2)
    named = queries.files(log)
    assert named is not None
    assert all((Path(log) / name).is_file() for name in named["path"].to_pylist())
    assert sorted(named["min._seq"].to_pylist()) == [1, 2]
    odd = str(tmp_path / "a[b]")
    tables.create(odd, COLUMNS)
    assert queries.files(odd) is None, "Spark would take the path for a pattern"
    vectors = str(tmp_path / "vectors")
    tables.create(vectors, COLUMNS, configuration={"delta.enableDeletionVectors": "true"})
    assert queries.files(vectors) is None, "rows of its files may be deleted"


def test_rows_of_another_plan_for_the_same_slice_are_refused(paths: tuple[str, str]) -> None:
    log, _ = paths
    assert tables.append(log, changes(11, ("a", "1.00")), 11, "one")
    assert not tables.append(log, changes(11, ("a", "1.00")), 11, "one"), "the same again, after a crash"
    for again in ("other", ""):
        with pytest.raises(DisagreementError, match=r"ledger is older than its tables: .*changes holds slice 11"):
            tables.append(log, changes(11, ("b", "9.00")), 11, again)
        with pytest.raises(DisagreementError, match="kappa rebuild"):
            tables.seal(log, 11, again)
    with pytest.raises(DisagreementError, match="not by plan one of slice 10"):
        tables.append(log, changes(10, ("b", "9.00")), 10, "one")
    assert [row["id"] for row in rows(log)] == ["a"]
    tables.seal(log, 11, "one")
    tables.seal(log, 11, "one")
    assert rows(log) == []
    tables.seal(log, 12, "one")
    with pytest.raises(DisagreementError):
        tables.append(log, changes(12, ("b", "9.00")), 12, "two")


def test_rows_of_a_slice_that_were_computed_from_other_records_are_refused(paths: tuple[str, str]) -> None:
    log, _ = paths
    assert tables.append(log, changes(11, ("a", "1.00")), 11, "one", "read=2 dead=0")
    assert not tables.append(log, changes(11, ("a", "1.00")), 11, "one", "read=2 dead=0")
    with pytest.raises(MiscountedError, match=r"computed from read=2 dead=0, .* have read=1 dead=0 now") as caught:
        tables.append(log, changes(11, ("b", "9.00")), 11, "one", "read=1 dead=0")
    assert (caught.value.data["before"], caught.value.data["now"]) == ("read=2 dead=0", "read=1 dead=0")
    with pytest.raises(DisagreementError):
        tables.append(log, changes(11, ("b", "9.00")), 11, "other", "read=2 dead=0")
    tables.seal(log, 11, "one")
    assert rows(log) == []
    tables.seal(log, 12, "one")
    assert not tables.append(log, changes(12, ("b", "9.00")), 12, "one", "read=1 dead=0"), "it was given up"


def test_a_commit_without_a_plan_matches_no_plan(paths: tuple[str, str]) -> None:
    log, _ = paths
    tables.append(log, changes(1, ("a", "1.00")), 1)
    with pytest.raises(DisagreementError):
        tables.append(log, changes(1, ("a", "1.00")), 1, "one")


def test_the_plan_of_a_slice_is_found_despite_later_commits_without_one(paths: tuple[str, str]) -> None:
    log, _ = paths
    tables.append(log, changes(1, ("a", "1.00")), 1, "one")
    for n in range(20):
        write_deltalake(log, changes(1, (f"x{n}", "1.00")), mode="append")
    assert not tables.append(log, changes(1, ("a", "1.00")), 1, "one")
