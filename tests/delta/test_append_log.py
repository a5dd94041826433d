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

from kappa.delta.append_log import AppendLog
from kappa.errors import ConflictError, LedgerError

SCHEMA = pa.schema({"n": pa.int64(), "word": pa.string()})


@pytest.fixture
def log(tmp_path: Path) -> AppendLog:
    made = AppendLog(str(tmp_path / "log"), SCHEMA)
    made.create()
    return made


def test_rows_are_numbered_from_one_and_given_once(log: AppendLog) -> None:
    assert log.refresh() == []
    log.append([{"word": "a"}, {"word": "b"}])
    assert log.refresh() == [{"n": 1, "word": "a", "format": 1}, {"n": 2, "word": "b", "format": 1}]
    log.append([{"word": "c"}])
    assert log.refresh() == [{"n": 3, "word": "c", "format": 1}]
    assert log.refresh() == []


def test_an_append_that_rests_on_an_older_past_is_refused_and_writes_nothing(log: AppendLog) -> None:
    other = AppendLog(log.path, SCHEMA)
    log.refresh()
    other.refresh()
    log.append([{"word": "first"}])
    with pytest.raises(ConflictError):
        other.append([{"word": "second"}])
    assert [row["word"] for row in other.refresh()] == ["first"]
    other.append([{"word": "second"}])
    assert [row["word"] for row in AppendLog(log.path, SCHEMA).refresh()] == ["first", "second"]


def test_merging_small_files_repeats_and_loses_no_row(log: AppendLog) -> None:
    reader = AppendLog(log.path, SCHEMA)
    seen = []
    for number in range(1, 151):
        log.refresh()
        log.append([{"word": str(number)}])
        if number % 7 == 0:
            seen += reader.refresh()
    seen += reader.refresh()
    assert [row["n"] for row in seen] == list(range(1, 151))
    assert len(list((Path(log.path)).glob("*.parquet"))) > 64
    assert [row["n"] for row in AppendLog(log.path, SCHEMA).refresh()] == list(range(1, 151))
    assert [row["n"] for row in log.newest_first()] == list(range(150, 0, -1))


def test_a_log_that_was_removed_is_never_written_again(log: AppendLog) -> None:
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
    seen = []
    for number in range(300):
        log.append([{"word": str(number)}])
        log.refresh()
        if number % 37 == 0:
            seen += slow.refresh()
    seen += slow.refresh()
    assert [row["word"] for row in seen] == [str(number) for number in range(300)]
    assert [row["n"] for row in log.newest_first()] == list(range(300, 0, -1))
    assert len(list(Path(log.path).glob("*.parquet"))) < 60


def test_a_merged_file_goes_though_the_log_no_longer_names_it(log: AppendLog, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_writer_frozen_before_it_removes_files_removes_none_of_its_successors(
    log: AppendLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, successor = AppendLog(log.path, SCHEMA), AppendLog(log.path, SCHEMA)
    frozen.refresh()
    frozen.append([{"word": "0"}])
    for number in range(1, 6):
        successor.refresh()
        successor.append([{"word": str(number)}])
    for name in ("KEEP_HOURS", "ABANDONED_HOURS"):  # days later
        monkeypatch.setattr(f"kappa.delta.append_log.{name}", 0)
    assert frozen._table is not None
    frozen._vacuum(frozen._table)
    assert [row["word"] for row in AppendLog(log.path, SCHEMA).refresh()] == [str(number) for number in range(6)]


def test_two_threads_share_one_log_and_each_row_is_given_once(log: AppendLog) -> None:
    """As the thread of a stream and the driver's own share the record of epochs."""
    given: list[dict[str, Any]] = []
    errors: list[BaseException] = []
    start, last = threading.Barrier(3), threading.Event()

    def look() -> None:
        try:
            start.wait()
            while not last.is_set():
                given.extend(log.refresh())
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
    given.extend(log.refresh())
    assert errors == []
    assert sorted(row["n"] for row in given) == list(range(1, 151))
    assert log.last == 150


def test_a_look_by_another_thread_in_the_middle_of_a_refresh_counts_no_row_twice(
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
    """A number for each time that Delta's log was listed."""
    made: list[int] = []
    real = DeltaTable.update_incremental

    def update(table: DeltaTable) -> None:
        made.append(len(made))
        real(table)

    monkeypatch.setattr(DeltaTable, "update_incremental", update)
    return made


def test_a_look_at_a_log_to_which_nothing_came_lists_nothing(log: AppendLog, looks: list[int]) -> None:
    log.refresh()
    log.append([{"word": "a"}])
    assert len(log.refresh()) == 1
    before = len(looks)
    assert [log.refresh() for _ in range(20)] == [[]] * 20
    assert len(looks) == before


def test_rows_of_another_process_are_there_at_the_next_look(log: AppendLog) -> None:
    reader = AppendLog(log.path, SCHEMA)
    assert reader.refresh() == []
    for number in range(1, 130):
        log.refresh()
        log.append([{"word": str(number)}])
        assert [row["n"] for row in reader.refresh()] == [number]
        assert reader.refresh() == []


def test_a_look_finds_rows_though_the_entry_that_brought_them_is_gone(log: AppendLog, looks: list[int]) -> None:
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


def test_from_time_to_time_the_log_is_listed_whatever_is_there(
    log: AppendLog, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.refresh()
    monkeypatch.setattr("kappa.delta.append_log.NEXT_ENTRY_SECONDS", -1.0)
    before = len(looks)
    log.refresh()
    assert len(looks) == before + 1


def test_where_the_storage_does_not_answer_the_log_is_listed(
    log: AppendLog, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    log.refresh()
    before = len(looks)
    with monkeypatch.context() as patched:
        patched.setattr(AppendLog, "exists", lambda _: True)
        patched.setattr(Path, "exists", fails)
        assert log.refresh() == []
    assert len(looks) == before + 1


def test_a_log_that_is_gone_is_noticed_by_the_next_look(log: AppendLog) -> None:
    log.refresh()
    log.append([{"word": "a"}])
    log.refresh()
    assert log.refresh() == []
    shutil.rmtree(log.path)
    with pytest.raises(LedgerError, match="is gone"):
        log.refresh()
