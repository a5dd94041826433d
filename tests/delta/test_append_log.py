"""The append-only log: numbers without gaps, compare-and-set, cheap at both ends."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.table import TableOptimizer

from kappa.delta.access import open_table
from kappa.delta.append_log import AppendLog
from kappa.delta.log_tables import HandleTable
from kappa.errors import ConflictError, DamagedTableError, LedgerError
from kappa.store.local import LocalStore

SCHEMA = pa.schema({"n": pa.int64(), "word": pa.string()})


@pytest.fixture
def log(tmp_path: Path) -> AppendLog:
    empty = AppendLog(str(tmp_path / "log"), SCHEMA)
    empty.create()
    return empty


def test_rows_are_numbered_from_one_and_returned_once(log: AppendLog) -> None:
    assert log.refresh() == []
    log.append([{"word": "a"}, {"word": "b"}])
    assert log.refresh() == [{"n": 1, "word": "a", "format": 1}, {"n": 2, "word": "b", "format": 1}]
    log.append([{"word": "c"}])
    assert log.refresh() == [{"n": 3, "word": "c", "format": 1}]
    assert log.refresh() == []


def test_an_append_based_on_an_outdated_state_writes_nothing(log: AppendLog) -> None:
    other = AppendLog(log.path, SCHEMA)
    log.refresh()
    other.refresh()
    log.append([{"word": "first"}])
    with pytest.raises(ConflictError):
        other.append([{"word": "second"}])
    assert [row["word"] for row in other.refresh()] == ["first"]
    other.append([{"word": "second"}])
    assert [row["word"] for row in AppendLog(log.path, SCHEMA).refresh()] == ["first", "second"]


def test_merging_small_files_neither_repeats_nor_loses_a_row(log: AppendLog) -> None:
    reader = AppendLog(log.path, SCHEMA)
    rows = []
    for number in range(1, 151):
        log.refresh()
        log.append([{"word": str(number)}])
        if number % 7 == 0:
            rows += reader.refresh()
    rows += reader.refresh()
    assert [row["n"] for row in rows] == list(range(1, 151))
    assert len(list((Path(log.path)).glob("*.parquet"))) > 64
    assert [row["n"] for row in AppendLog(log.path, SCHEMA).refresh()] == list(range(1, 151))
    assert [row["n"] for row in log.newest_first()] == list(range(150, 0, -1))


def test_of_two_merges_of_the_same_files_the_earlier_one_is_refused(
    log: AppendLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process merges while one is about to."""
    monkeypatch.setattr("kappa.delta.append_log.COMPACT_AFTER", 5)
    other, merge, begun = AppendLog(log.path, SCHEMA), TableOptimizer.compact, list[TableOptimizer]()

    def late(self: TableOptimizer, **options: Any) -> Any:
        begun.append(self)
        if len(begun) == 1:
            other.refresh()
            other.append([{"word": "other"}])
        return merge(self, **options)

    monkeypatch.setattr(TableOptimizer, "compact", late)
    for number in range(7):
        log.refresh()
        log.append([{"word": str(number)}])
    assert len(begun) == 2
    for one in (log, other, AppendLog(log.path, SCHEMA)):
        one.refresh()
        assert [row["n"] for row in one.rows()] == list(range(1, 9))


def test_a_removed_log_is_never_written_again(log: AppendLog) -> None:
    log.refresh()
    log.append([{"word": "a"}])
    log.refresh()
    shutil.rmtree(log.path)
    with pytest.raises(LedgerError):
        log.append([{"word": "b"}])
    assert not Path(log.path).exists() or not list(Path(log.path).glob("*.parquet"))


def test_merged_files_are_removed_while_a_slow_reader_misses_nothing(
    log: AppendLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.delta.append_log.KEEP_HOURS", 0)
    monkeypatch.setattr("kappa.delta.append_log.COMPACT_AFTER", 4)
    slow = AppendLog(log.path, SCHEMA)
    log.refresh()
    rows = []
    for number in range(300):
        log.append([{"word": str(number)}])
        log.refresh()
        if number % 37 == 0:
            rows += slow.refresh()
    rows += slow.refresh()
    assert [row["word"] for row in rows] == [str(number) for number in range(300)]
    assert [row["n"] for row in log.newest_first()] == list(range(300, 0, -1))
    assert len(list(Path(log.path).glob("*.parquet"))) < 60


def test_a_merged_file_is_removed_after_the_log_forgot_it(log: AppendLog, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = {"delta.checkpointInterval": "3", "delta.deletedFileRetentionDuration": "interval 0 seconds"}
    monkeypatch.setattr("kappa.delta.append_log.COMPACT_AFTER", 4)
    monkeypatch.setattr("kappa.delta.append_log.VACUUM_AFTER", 2)
    again = AppendLog(f"{log.path}-again", SCHEMA)
    DeltaTable.create(again.path, again.schema, configuration=forgetful)
    again.refresh()
    for number in range(60):
        if number == 45:  # a day later
            monkeypatch.setattr("kappa.delta.append_log.ABANDONED_HOURS", 0)
        again.append([{"word": str(number)}])
        again.refresh()
    assert [row["word"] for row in AppendLog(again.path, SCHEMA).refresh()] == [str(number) for number in range(60)]
    assert len(list(Path(again.path).glob("*.parquet"))) < 20


def test_a_writer_frozen_before_removing_files_spares_those_of_its_successor(
    log: AppendLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, successor = AppendLog(log.path, SCHEMA), AppendLog(log.path, SCHEMA)
    frozen.refresh()
    frozen.append([{"word": "0"}])
    handle = open_table(log.path)
    for number in range(1, 6):
        successor.refresh()
        successor.append([{"word": str(number)}])
    for name in ("KEEP_HOURS", "ABANDONED_HOURS"):  # days later
        monkeypatch.setattr(f"kappa.delta.append_log.{name}", 0)
    frozen._vacuum(handle)
    assert [row["word"] for row in AppendLog(log.path, SCHEMA).refresh()] == [str(number) for number in range(6)]


def test_two_threads_that_share_a_log_get_each_row_once(log: AppendLog) -> None:
    """The thread of a stream and that of the driver share the record of epochs like this."""
    rows: list[dict[str, Any]] = []
    errors: list[BaseException] = []
    start, last = threading.Barrier(3), threading.Event()

    def look() -> None:
        try:
            start.wait()
            while not last.is_set():
                rows.extend(log.refresh())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    log.refresh()
    for thread in threads:
        thread.start()
    start.wait()
    other = AppendLog(log.path, SCHEMA)
    for number in range(1, 151):
        other.refresh()
        other.append([{"word": str(number)}])
    last.set()
    for thread in threads:
        thread.join()
    rows.extend(log.refresh())
    assert errors == []
    assert sorted(row["n"] for row in rows) == list(range(1, 151))
    assert log.last == 150


def test_a_refresh_during_another_threads_refresh_counts_no_row_twice(
    log: AppendLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that would number a record wrongly: both threads read the same new file before either counts it."""
    log.refresh()
    writer = AppendLog(log.path, SCHEMA)
    writer.refresh()
    writer.append([{"word": "a"}])
    second: list[dict[str, Any]] = []
    other = threading.Thread(target=lambda: second.extend(log.refresh()))
    waits: list[bool] = []

    def in_the_middle(path: str) -> pq.ParquetFile:
        if not waits:
            waits.append(False)
            other.start()
            other.join(0.3)
            waits.append(other.is_alive())
        return parquet_file(path)

    parquet_file = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", in_the_middle)
    first = log.refresh()
    other.join()
    assert waits == [False, True], "the other thread waits for the end of the refresh"
    assert [row["n"] for row in [*first, *second]] == [1]
    assert log.last == 1


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number per listing of Delta's log."""
    listings: list[int] = []
    real = DeltaTable.update_incremental

    def update(table: DeltaTable) -> None:
        listings.append(len(listings))
        real(table)

    monkeypatch.setattr(DeltaTable, "update_incremental", update)
    return listings


def test_refreshing_an_unchanged_log_lists_nothing(log: AppendLog, looks: list[int]) -> None:
    log.refresh()
    log.append([{"word": "a"}])
    assert len(log.refresh()) == 1
    before = len(looks)
    assert [log.refresh() for _ in range(20)] == [[]] * 20
    assert len(looks) == before


def test_the_next_refresh_returns_rows_of_another_process(log: AppendLog) -> None:
    reader = AppendLog(log.path, SCHEMA)
    assert reader.refresh() == []
    for number in range(1, 130):
        log.refresh()
        log.append([{"word": str(number)}])
        assert [row["n"] for row in reader.refresh()] == [number]
        assert reader.refresh() == []


def test_a_refresh_finds_rows_whose_log_entry_was_removed(log: AppendLog, looks: list[int]) -> None:
    reader = AppendLog(log.path, SCHEMA)
    reader.refresh()
    for number in range(1, 130):
        log.refresh()
        log.append([{"word": str(number)}])
    entries = sorted(Path(log.path, "_delta_log").glob("*.json"))
    checkpoint = max(int(file.name[:20]) for file in Path(log.path, "_delta_log").glob("*.checkpoint.parquet"))
    for entry in entries:
        if int(entry.name[:20]) < checkpoint:
            entry.unlink()
    assert [row["n"] for row in reader.refresh()] == list(range(1, 130))


def test_the_log_is_listed_now_and_then_in_any_case(
    log: AppendLog, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.refresh()
    monkeypatch.setattr("kappa.delta.log_tables.NEXT_ENTRY_SECONDS", -1.0)
    before = len(looks)
    log.refresh()
    assert len(looks) == before + 1


def test_the_log_is_listed_when_the_storage_does_not_answer(
    log: AppendLog, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    log.refresh()
    before = len(looks)
    with monkeypatch.context() as patched:
        patched.setattr(AppendLog, "exists", lambda _: True)
        patched.setattr(LocalStore, "head", fails)
        assert log.refresh() == []
    assert len(looks) == before + 1


def test_the_next_refresh_notices_a_removed_log(log: AppendLog) -> None:
    log.refresh()
    log.append([{"word": "a"}])
    log.refresh()
    assert log.refresh() == []
    shutil.rmtree(log.path)
    with pytest.raises(LedgerError, match="is gone"):
        log.refresh()


def test_a_log_goes_on_after_its_own_replacement(log: AppendLog) -> None:
    log.refresh()
    log.append([{"word": "a"}, {"word": "b"}])
    rows = log.refresh()
    log.replace([rows[1]], [{"word": "c"}], floor=1)
    assert [row["n"] for row in log.refresh()][-1] == 3
    log.append([{"word": "d"}])
    assert [(row["n"], row["word"]) for row in AppendLog(log.path, SCHEMA).refresh()] == [(2, "b"), (3, "c"), (4, "d")]


def test_rows_that_could_not_be_read_are_given_by_the_next_refresh(
    log: AppendLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = AppendLog(log.path, SCHEMA)
    reader.refresh()
    log.refresh()
    log.append([{"word": "a"}])
    with monkeypatch.context() as patched:
        patched.setattr(HandleTable, "content", lambda *_: None)
        with pytest.raises(DamagedTableError):
            reader.refresh()
    with pytest.raises(ConflictError):  # it has not taken in what it builds on
        reader.append([{"word": "b"}])
    assert [row["word"] for row in reader.refresh()] == ["a"]


@pytest.mark.parametrize("is_rewritten", [False, True], ids=["not all were seen", "all were seen"])
def test_rows_that_were_replaced_are_given_anew_also_after_a_look_that_failed(
    log: AppendLog, is_rewritten: bool
) -> None:
    reader = AppendLog(log.path, SCHEMA, is_rewritten=is_rewritten)
    log.refresh()
    log.append([{"word": "a"}])
    reader.refresh()
    log.refresh()
    log.append([{"word": "b"}])
    if is_rewritten:
        reader.refresh()
    log.refresh()
    log.replace([{"n": 2, "word": "b"}], [{"word": "c"}], floor=2)
    (file,) = {Path(log.path) / path for path in open_table(log.path).get_add_actions(flatten=True)["path"].to_pylist()}
    file.rename(file.with_suffix(".away"))
    with pytest.raises(DamagedTableError):
        reader.refresh()
    file.with_suffix(".away").rename(file)
    assert [row["word"] for row in reader.refresh()] == ["b", "c"] and reader.is_anew and reader.floor == 2
    assert reader.refresh() == [] and not reader.is_anew
