"""Which files of a Delta table are removed, and which never."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer
from support.table_changes import COLUMNS, changes, rows

from kappa.delta import queries, tables
from kappa.delta import vacuum as upkeep
from kappa.delta.damage import entry_of
from kappa.errors import ConflictError
from kappa.topology.ddl import columns_of


@pytest.fixture
def table(tmp_path: Path) -> str:
    tables.create(str(tmp_path / "table"), COLUMNS)
    return str(tmp_path / "table")


def vacuum(table: str, *versions: int, hours: float = 0.0) -> int:
    return upkeep.vacuum(table, lambda: versions, age=timedelta(hours=hours), check=lambda: None)


def test_unreferenced_files_are_removed_after_a_day(table: str) -> None:
    for seq in (1, 2, 3):
        tables.merge(table, changes(seq, ("a", f"{seq}.00")), ["id"], COLUMNS, seq)
    written = set(Path(table).glob("*.parquet"))
    yesterday = time.time() - 25 * 3600
    abandoned, recent = Path(table, "abandoned.parquet"), Path(table, "recent.parquet")
    for file in (abandoned, recent):
        file.touch()
    for file in (abandoned, *written):  # those that are held or served are as old
        os.utime(file, (yesterday, yesterday))
    assert vacuum(table, 2) == 2
    held = {Path(table, name) for at in (2, 3) for name in DeltaTable(table, version=at).file_uris()}
    assert set(Path(table).glob("*.parquet")) == {*held, recent}
    assert queries.query(table, 2).to_pylist() == [{"id": "a", "total": Decimal("2.00")}]
    assert (vacuum(table, 2), tables.version(table)) == (0, 3)  # it costs no commit


def test_a_held_file_is_removed_after_the_log_forgot_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forgetful = {"delta.checkpointInterval": "4", "delta.deletedFileRetentionDuration": "interval 0 seconds"}
    monkeypatch.setattr(tables, "CONFIGURATION", forgetful)
    table = str(tmp_path / "forgetful")
    tables.create(table, COLUMNS)
    for seq in range(1, 6):
        tables.merge(table, changes(seq, ("a", f"{seq}.00")), ["id"], COLUMNS, seq)
    vacuum(table)
    assert len(list(Path(table).glob("*.parquet"))) > 1  # the checkpoint names none that were removed
    yesterday = time.time() - 25 * 3600
    for file in Path(table).glob("*.parquet"):
        os.utime(file, (yesterday, yesterday))
    assert vacuum(table) > 0
    assert len(list(Path(table).glob("*.parquet"))) == 1
    assert rows(table) == [{"id": "a", "total": Decimal("5.00")}]


def test_old_log_entries_are_removed_unless_a_kept_version_needs_them(table: str) -> None:
    log = Path(table, "_delta_log")

    def grow(first: int, last: int, days: int) -> None:
        for seq in range(first, last):
            tables.merge(table, changes(seq, ("a", f"{seq}.00")), ["id"], COLUMNS, seq)
        for entry in log.iterdir():
            at = min(entry.stat().st_mtime, time.time() - days * 86_400)
            os.utime(entry, (at, at))

    grow(1, 60, days=3)
    grow(60, 121, days=0)
    vacuum(table, 30, 118)  # somebody gave it a name, forty days ago
    assert queries.query(table, 30).to_pylist() == [{"id": "a", "total": Decimal("30.00")}]
    assert Path(log, f"{0:020}.json").is_file()
    vacuum(table, 118)
    assert not Path(log, f"{30:020}.json").is_file()
    assert queries.query(table, 118).to_pylist() == [{"id": "a", "total": Decimal("118.00")}]
    assert rows(table) == [{"id": "a", "total": Decimal("120.00")}]
    assert tables.merged(table)[1] == 120


def test_files_younger_than_the_stated_age_stay(table: str) -> None:
    for seq in (1, 2, 3):
        tables.merge(table, changes(seq, ("a", f"{seq}.00")), ["id"], COLUMNS, seq)
    (old,) = (Path(table, name) for name in DeltaTable(table, version=1).file_uris())
    hours_ago = time.time() - 3 * 3600
    os.utime(old, (hours_ago, hours_ago))
    assert vacuum(table, hours=4) == 0
    assert vacuum(table, hours=2) == 1
    assert not old.exists()
    assert queries.query(table, 2).to_pylist() == [{"id": "a", "total": Decimal("2.00")}]


def test_a_version_written_after_the_lookup_of_kept_ones_stays_readable(table: str) -> None:
    """The process is frozen between the two, and its successor continues to write."""
    for seq in (1, 2):
        tables.merge(table, changes(seq, ("a", f"{seq}.00")), ["id"], COLUMNS, seq)

    def kept_versions() -> tuple[int, ...]:
        for seq in (3, 4):
            tables.merge(table, changes(seq, ("a", f"{seq}.00")), ["id"], COLUMNS, seq)
        return ()

    assert upkeep.vacuum(table, kept_versions, age=timedelta(0), check=lambda: None) == 1
    for version in (2, 3, 4):
        assert queries.query(table, version).to_pylist() == [{"id": "a", "total": Decimal(f"{version}.00")}]


def test_nothing_is_removed_once_the_check_raises(table: str) -> None:
    for seq in (1, 2, 3):
        tables.merge(table, changes(seq, ("a", f"{seq}.00")), ["id"], COLUMNS, seq)
    checks = [None, None]

    def check() -> None:
        checks.pop()

    with pytest.raises(IndexError):  # once for the log, once before a file, and then no more
        upkeep.vacuum(table, tuple, age=timedelta(0), check=check)
    assert len(list(Path(table).glob("*.parquet"))) == 2


def test_files_that_spark_wrote_for_letters_of_other_languages_are_not_merged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(upkeep, "COMPACT_AFTER", 1)
    table = str(tmp_path / "table")
    tables.create(table, (tables.SEQ, *columns_of("city STRING", "test")), partition_by=["city"])
    for seq in (1, 2, 3):
        tables.append(table, pa.table({"_seq": [seq], "city": ["Zürich"]}), seq)
        entry = Path(entry_of(table, seq))
        entry.write_text(entry.read_text().replace("city=Z%25C3%25BCrich", "city=Zürich"))
    (tmp_path / "table" / "city=Z%C3%BCrich").rename(tmp_path / "table" / "city=Zürich")
    upkeep.compact(table)
    assert sorted(queries.query(table, None)["_seq"].to_pylist()) == [1, 2, 3]
    assert vacuum(table) == 0


def test_a_merge_of_files_that_wakes_up_after_another_one_is_refused(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a driver that was frozen in it, while its successor merged the same files."""
    monkeypatch.setattr(upkeep, "COMPACT_AFTER", 3)
    for seq in range(1, 6):
        tables.append(table, pa.table({"id": [f"k{seq}"], "total": [Decimal("1.00")]}), seq)
    merge = TableOptimizer.compact

    def late(self: TableOptimizer, **options: Any) -> Any:
        monkeypatch.setattr(TableOptimizer, "compact", merge)
        upkeep.compact(table)
        return merge(self, **options)

    monkeypatch.setattr(TableOptimizer, "compact", late)
    with pytest.raises(ConflictError):
        upkeep.compact(table)
    assert [row["id"] for row in rows(table)] == [f"k{seq}" for seq in range(1, 6)]
