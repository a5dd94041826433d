"""The append-only log on S3: a commit is a condition of the store, whose answer may be lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from support.s3_options import HASTE, lake_on, write_options
from support.s3_proxy import CUT, Proxy
from support.s3_server import S3Server

from kappa.delta.access import open_table
from kappa.delta.append_log import AppendLog
from kappa.delta.damage import entry_of
from kappa.delta.tail_table import TailTable
from kappa.errors import ConflictError, DamagedTableError, LakeUnreachableError, LedgerError
from kappa.store.retries import Retries
from kappa.store.stores import store_of

SCHEMA = pa.schema({"n": pa.int64(), "word": pa.string()})
#: The log entry of the first append: that of the creation is 0.
FIRST = r"log/_delta_log/0{19}1\.json$"
LOST = [pytest.param(500, id="status 500"), pytest.param(CUT, id="cut")]


def words(path: str) -> list[str]:
    """All rows, read by an object of its own."""
    return [row["word"] for row in AppendLog(path, SCHEMA).refresh()]


def content(path: str) -> list[str]:
    """Paths of all files of the log."""
    return sorted(file.path for file in store_of(path).files(path))


def opened(path: str) -> AppendLog:
    log = AppendLog(path, SCHEMA)
    log.refresh()
    return log


@pytest.fixture
def path(proxied_lake: str) -> str:
    """An empty log, reached through the proxy; each request is sent once."""
    AppendLog(f"{proxied_lake}/log", SCHEMA).create()
    return f"{proxied_lake}/log"


@pytest.fixture(params=[pytest.param(HASTE, id="sent once"), pytest.param(Retries(), id="sent again")])
def either_path(request: pytest.FixtureRequest, proxy: Proxy, tmp_path: Path) -> Iterator[str]:
    """The same, and one whose requests are sent again: to these the store answers that the entry is there."""
    with lake_on(proxy.server, tmp_path, retries=request.param) as lake:
        AppendLog(f"{lake}/log", SCHEMA).create()
        yield f"{lake}/log"


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """A thread for a writer that has to wait."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_rows_are_numbered_from_one_and_returned_once(path: str) -> None:
    log = opened(path)
    log.append([{"word": "a"}, {"word": "b"}])
    assert log.refresh() == [{"n": 1, "word": "a", "format": 1}, {"n": 2, "word": "b", "format": 1}]
    log.append([{"word": "c"}])
    assert [row["n"] for row in log.refresh()] == [3]
    assert log.refresh() == []
    assert [row["n"] for row in log.rows()] == [1, 2, 3]
    assert [row["n"] for row in log.newest_first()] == [3, 2, 1]
    first = log.first("word", "b")
    assert first is not None and first["n"] == 2


def test_an_append_based_on_an_outdated_state_writes_nothing(path: str) -> None:
    one, other = opened(path), opened(path)
    one.append([{"word": "first"}])
    with pytest.raises(ConflictError):
        other.append([{"word": "second"}])
    assert [row["word"] for row in other.refresh()] == ["first"]
    other.append([{"word": "second"}])
    assert words(path) == ["first", "second"]


def test_eight_writers_append_one_row(path: str) -> None:
    logs = [opened(path) for _ in range(8)]

    def is_winner(number: int) -> bool:
        try:
            logs[number].append([{"word": str(number)}])
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        winners = [str(number) for number, won in enumerate(pool.map(is_winner, range(8))) if won]
    assert len(winners) == 1
    assert words(path) == winners


@pytest.mark.parametrize("status", LOST)
def test_an_append_whose_answer_is_lost_is_recognised_as_its_own(
    either_path: str, proxy: Proxy, status: int | None
) -> None:
    log = opened(either_path)
    lost = proxy.lose_answer(FIRST, status=status)
    (row,) = log.append([{"word": "a"}])
    assert lost.answers == [200]
    assert (row["n"], [row["n"] for row in log.refresh()], log.refresh()) == (1, [1], [])
    log.append([{"word": "b"}])
    assert words(either_path) == ["a", "b"]


@pytest.mark.parametrize("status", LOST)
def test_a_replacement_whose_answer_is_lost_is_recognised_as_its_own(
    either_path: str, proxy: Proxy, status: int | None
) -> None:
    log = opened(either_path)
    log.append([{"word": "a"}, {"word": "b"}])
    (_, last) = log.refresh()
    proxy.lose_answer(r"0{19}2\.json$", status=status)
    log.replace([last], [{"word": "c"}], 1)
    assert words(either_path) == ["b", "c"]


@pytest.mark.parametrize("status", LOST)
def test_an_append_that_never_reached_the_store_is_not_its_own(path: str, proxy: Proxy, status: int | None) -> None:
    log = opened(path)
    proxy.refuse(FIRST, "PUT", status=status)
    with pytest.raises(LakeUnreachableError):
        log.append([{"word": "a"}])
    proxy.clear()
    assert log.refresh() == []
    log.append([{"word": "b"}])
    assert words(path) == ["b"]


def test_a_held_append_is_refused_once_another_was_first(path: str, proxy: Proxy, thread: ThreadPoolExecutor) -> None:
    slow, other = opened(path), opened(path)
    held = proxy.hold(FIRST)
    appended = thread.submit(slow.append, [{"word": "slow"}])
    held.await_arrival()
    other.append([{"word": "other"}])
    held.release()
    assert isinstance(appended.exception(60), ConflictError)
    assert held.answers == [412]
    assert [row["word"] for row in slow.refresh()] == words(path) == ["other"]


def test_an_append_that_another_overtakes_while_its_answer_is_lost_is_its_own(
    path: str, proxy: Proxy, thread: ThreadPoolExecutor
) -> None:
    """The answer is held until another writer committed the next version."""
    slow, other = opened(path), opened(path)
    held = proxy.hold_answer(FIRST)
    appended = thread.submit(slow.append, [{"word": "slow"}])
    held.await_answer()
    other.refresh()
    other.append([{"word": "other"}])
    held.release()
    assert [row["n"] for row in appended.result(60)] == [1]
    assert words(path) == ["slow", "other"]


def test_merging_small_files_neither_repeats_nor_loses_a_row(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kappa.delta.append_log.COMPACT_AFTER", 3)
    monkeypatch.setattr("kappa.delta.append_log.VACUUM_AFTER", 1)
    monkeypatch.setattr("kappa.delta.append_log.KEEP_HOURS", 0)
    log, reader = opened(path), opened(path)
    rows = []
    for number in range(1, 13):
        log.append([{"word": str(number)}])
        log.refresh()
        if number % 5 == 0:
            rows += reader.refresh()
    rows += reader.refresh()
    assert [row["n"] for row in rows] == list(range(1, 13))
    assert words(path) == [str(number) for number in range(1, 13)]
    files = [file for file in store_of(path).files(path) if file.name.endswith(".parquet")]
    assert len(files) < 12


@pytest.mark.parametrize("status", [pytest.param(503, id="status 503"), pytest.param(CUT, id="cut")])
def test_rows_are_appended_though_nothing_answers_the_merge_after_them(
    path: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    monkeypatch.setattr("kappa.delta.append_log.COMPACT_AFTER", 1)
    log = opened(path)
    for word in ("a", "b"):
        log.append([{"word": word}])
        log.refresh()
    fault = proxy.refuse(r"0{19}5\.json$", "PUT", status=status)
    assert [row["n"] for row in log.append([{"word": "c"}])] == [3]
    assert len(fault.requests) == 1
    proxy.clear()
    assert [row["n"] for row in log.refresh()] == [3]
    log.append([{"word": "d"}])
    assert words(path) == ["a", "b", "c", "d"]


def test_an_open_log_logs_in_by_a_changed_file(s3: S3Server, proxy: Proxy, tmp_path: Path) -> None:
    """The keys of before are refused."""
    with lake_on(proxy.server, tmp_path) as lake:
        AppendLog(f"{lake}/log", SCHEMA).create()
        log, other = opened(f"{lake}/log"), opened(f"{lake}/log")
        log.append([{"word": "a"}])
        write_options(s3, tmp_path / "lake.properties")
        refused = proxy.refuse(status=403)
        for reader in (log, other):
            assert [row["word"] for row in reader.refresh()] == ["a"]
        log.append([{"word": "b"}])
        assert [row["word"] for row in other.refresh()] == ["b"]
        assert refused.requests == []


def test_a_removed_log_is_never_written_again(path: str) -> None:
    log = opened(path)
    log.append([{"word": "a"}])
    log.refresh()
    store_of(path).delete_folder(path)
    assert not log.exists()
    with pytest.raises(LedgerError, match="is gone"):
        log.append([{"word": "b"}])
    assert content(path) == []


def test_a_refresh_after_a_while_notices_a_removed_log(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(path)
    log.append([{"word": "a"}])
    log.refresh()
    store_of(path).delete_folder(path)
    monkeypatch.setattr("kappa.delta.tail_table.NEXT_ENTRY_SECONDS", -1.0)
    with pytest.raises(LedgerError, match="is gone"):
        log.refresh()


def test_a_writer_that_was_frozen_for_longer_than_entries_stay_writes_nothing(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its commit was used, and is free again."""
    frozen, other = opened(path), opened(path)
    for number in range(3):
        other.append([{"word": str(number)}])
        other.refresh()
    open_table(path).create_checkpoint()
    for version in range(3):
        store_of(path).delete(entry_of(path, version))
    with pytest.raises(ConflictError, match="long ago"):
        frozen.append([{"word": "late"}])
    assert words(path) == ["0", "1", "2"]
    monkeypatch.setattr("kappa.delta.tail_table.NEXT_ENTRY_SECONDS", -1.0)  # a minute passes
    assert [row["n"] for row in frozen.refresh()] == [1, 2, 3]
    frozen.append([{"word": "3"}])
    assert words(path) == ["0", "1", "2", "3"]


def test_a_log_in_place_of_a_removed_one_is_another(path: str) -> None:
    before = AppendLog(path, SCHEMA).table_id()
    store_of(path).delete_folder(path)
    assert AppendLog(path, SCHEMA).table_id() == ""
    again = AppendLog(path, SCHEMA)
    again.create()
    assert again.table_id() not in ("", before)
    again.create()
    assert again.refresh() == []


def test_a_log_goes_on_after_its_own_replacement(path: str) -> None:
    log = opened(path)
    log.append([{"word": "a"}, {"word": "b"}])
    rows = log.refresh()
    log.replace([rows[1]], [{"word": "c"}], floor=1)
    assert [row["n"] for row in log.refresh()][-1] == 3
    log.append([{"word": "d"}])
    assert [(row["n"], row["word"]) for row in AppendLog(path, SCHEMA).refresh()] == [(2, "b"), (3, "c"), (4, "d")]


def test_a_row_that_could_not_be_read_bars_the_next_append(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = opened(path), opened(path)
    other.append([{"word": "claim"}])
    with monkeypatch.context() as patched:
        patched.setattr(TailTable, "content", lambda *_: None)
        with pytest.raises(DamagedTableError):
            log.refresh()
    with pytest.raises(ConflictError, match="not read yet"):
        log.append([{"word": "late"}])
    assert [row["word"] for row in log.refresh()] == ["claim"]
