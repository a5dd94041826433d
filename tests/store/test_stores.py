"""What both kinds of store offer, asked of a disk and of S3 alike; where they differ, a test says so."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.s3_proxy import Proxy

from kappa import clock
from kappa.store.local import LocalStore
from kappa.store.remote import ObjectStore
from kappa.store.store import Store
from kappa.store.stores import PIECE_BYTES, pieces, store_of

SECOND = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder, which is there and empty, and its store."""

    folder: str
    store: Store

    def file(self, name: str) -> str:
        """A path in it."""
        return f"{self.folder}/{name}"

    def names(self, folder: str = "") -> list[str]:
        """Files below it, or below a folder of it, by their places in it."""
        files = self.store.files(f"{self.folder}/{folder}".rstrip("/"))
        return sorted(file.path.removeprefix(f"{self.folder}/") for file in files)


@pytest.fixture(
    params=[pytest.param("lake", id="disk"), pytest.param("my läke #1? 100%", id="odd name"), pytest.param("", id="s3")]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder on a disk, one with blanks and letters of other languages in its name, and one on S3."""
    folder = request.getfixturevalue("s3_lake") if not request.param else str(tmp_path / request.param)
    store = store_of(folder)
    store.make_folder(folder)
    return Place(folder=folder, store=store)


@pytest.fixture
def local(tmp_path: Path) -> Place:
    return Place(folder=str(tmp_path), store=LocalStore())


@pytest.fixture
def remote(proxied_lake: str) -> Place:
    return Place(folder=proxied_lake, store=ObjectStore())


def put(place: Place, *names: str) -> None:
    """Write files, with their folders."""
    for name in names:
        path = place.file(name)
        place.store.make_folder(path.rpartition("/")[0])
        place.store.put(path, name.encode())


def test_a_path_has_the_store_of_its_address(place: Place) -> None:
    assert isinstance(place.store, ObjectStore if place.folder.startswith("s3://") else LocalStore)


# One file


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_file_is_replaced_by_the_next_one(place: Place, is_durable: bool) -> None:
    path = place.file("file")
    for content in (b"one", b"", b"another"):
        place.store.put(path, content, is_durable=is_durable)
        assert place.store.get(path) == content
    assert place.names() == ["file"]


def test_a_file_of_any_size_arrives_in_pieces(place: Place) -> None:
    path = place.file("new/folder/file")
    for content in (b"", b"small", bytes(number % 251 for number in range(20 << 20))):
        place.store.receive(path, (content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)), 1)
        assert b"".join(pieces(path)) == content
        place.store.receive(path, iter([content]), len(content))
        assert place.store.get(path) == content
    assert place.names() == ["new/folder/file"]


def test_a_file_that_does_not_arrive_whole_leaves_the_old_one(place: Place) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a" * PIECE_BYTES
        yield b"a" * PIECE_BYTES
        raise ZeroDivisionError

    put(place, "file")
    # A server may refuse to end an upload whose parts still arrive; that is then the error.
    with pytest.raises(Exception, match=r"ZeroDivisionError|^$|does not answer"):
        place.store.receive(place.file("file"), broken(), 3 * PIECE_BYTES)
    assert (place.store.get(place.file("file")), place.names()) == (b"file", ["file"])


def test_a_file_of_one_place_is_received_by_another_of_the_same_kind(place: Place) -> None:
    content = bytes(number % 251 for number in range(20 << 20))
    place.store.receive(place.file("a"), iter([content]), len(content))
    place.store.receive(place.file("b"), pieces(place.file("a")), len(content))
    assert place.store.get(place.file("b")) == content


def test_a_file_has_a_size_and_the_time_of_its_last_writing(place: Place) -> None:
    path = place.file("file")
    begin = clock.now() - SECOND  # S3 says whole seconds
    place.store.put(path, b"four")
    head = place.store.head(path)
    assert head is not None
    assert (head.path, head.name, head.size, head.modified.tzinfo) == (path, "file", 4, UTC)
    assert begin <= head.modified <= clock.now()


def test_what_is_missing_is_nothing(place: Place) -> None:
    path = place.file("missing")
    assert (place.store.get(path), place.store.head(path)) == (None, None)
    assert (place.names("missing"), place.store.folders(path)) == ([], [])
    with pytest.raises(FileNotFoundError) as error:
        place.store.open(path)
    assert error.value.filename == path
    place.store.delete(path)
    place.store.delete_folder(path)
    assert place.store.discard(path, clock.now())


def test_nothing_is_below_a_file(place: Place) -> None:
    put(place, "file")
    path = place.file("file/below")
    assert (place.store.get(path), place.store.head(path)) == (None, None)
    assert (place.names("file/below"), place.store.folders(place.file("file"))) == ([], [])


# A file in pieces


@pytest.fixture
def numbers(place: Place) -> Iterator[tuple[bytes, io.BufferedReader]]:
    """Some readings of bytes, all of them different from their neighbours, and a file of them."""
    content = bytes(number % 251 for number in range(300_000))
    place.store.put(place.file("numbers"), content)
    with place.store.open(place.file("numbers")) as file:
        assert isinstance(file, io.BufferedReader)
        yield content, file


def test_a_file_is_read_in_pieces_to_its_end(numbers: tuple[bytes, io.BufferedReader]) -> None:
    content, file = numbers
    pieces = list(iter(lambda: file.read(77_777), b""))
    assert b"".join(pieces) == content
    assert (file.read(), file.read(1)) == (b"", b"")


@pytest.mark.parametrize(
    ("offset", "whence", "start"),
    [
        (0, os.SEEK_SET, 0),
        (65_535, os.SEEK_SET, 65_535),
        (65_536, os.SEEK_SET, 65_536),
        (-1, os.SEEK_END, 299_999),
        (-300_000, os.SEEK_END, 0),
        (100, os.SEEK_CUR, 110),
        (-10, os.SEEK_CUR, 0),
        (0, os.SEEK_END, 300_000),
        (300_001, os.SEEK_SET, 300_001),
    ],
)
def test_a_reading_begins_where_the_file_was_sought(
    numbers: tuple[bytes, io.BufferedReader], offset: int, whence: int, start: int
) -> None:
    content, file = numbers
    assert file.read(10) == content[:10]
    assert file.seek(offset, whence) == file.tell() == start
    assert file.read(70_000) == content[start : start + 70_000]


def test_an_empty_file_is_at_its_end(place: Place) -> None:
    place.store.put(place.file("empty"), b"")
    with place.store.open(place.file("empty")) as file:
        assert (file.read(), file.seek(0, os.SEEK_END)) == (b"", 0)


def test_the_schema_and_one_column_of_a_parquet_file_are_read_without_the_rest(place: Place) -> None:
    rows = pa.table({"n": range(1000), "word": [str(n) for n in range(1000)]})
    written = io.BytesIO()
    pq.write_table(rows, written)
    place.store.put(place.file("rows.parquet"), written.getvalue())
    with place.store.open(place.file("rows.parquet")) as file:
        parquet = pq.ParquetFile(file)
        assert parquet.metadata.num_rows == 1000
        assert parquet.read(["n"]) == rows.select(["n"])


def test_the_footer_of_a_parquet_file_on_s3_takes_one_look_and_one_range(remote: Place, proxy: Proxy) -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array([n * n for n in range(100_000)])}), written, compression="none")
    remote.store.put(remote.file("rows.parquet"), written.getvalue())
    before = len(proxy.requests)
    with remote.store.open(remote.file("rows.parquet")) as file:
        assert pq.ParquetFile(file).metadata.num_rows == 100_000
    assert proxy.counts(before) == {"HEAD": 1, "GET": 1}


def test_small_readings_beside_each_other_are_one_range(remote: Place, proxy: Proxy) -> None:
    remote.store.put(remote.file("file"), bytes(100_000))
    before = len(proxy.requests)
    with remote.store.open(remote.file("file")) as file:
        for _ in range(64):
            assert file.read(1 << 10) == bytes(1 << 10)
        assert proxy.counts(before) == {"HEAD": 1, "GET": 1}
        file.read(1)
    assert proxy.counts(before) == {"HEAD": 1, "GET": 2}


# A file that must not be there


@pytest.mark.parametrize("size", [3, 6 << 20], ids=["small", "large"])
def test_a_file_is_created_once(place: Place, size: int) -> None:
    path, content, other = place.file("file"), bytes(size), b"1" * size
    assert place.store.create(path, content)
    assert place.store.create(path, content), "it holds this content"
    assert not place.store.create(path, other)
    assert not place.store.create(path, b"")
    assert place.store.get(path) == content
    assert place.names() == ["file"]


def test_a_file_that_was_removed_may_be_created_again(place: Place) -> None:
    path = place.file("file")
    place.store.create(path, b"one")
    place.store.delete(path)
    assert place.store.create(path, b"other")
    assert place.store.get(path) == b"other"


@pytest.mark.parametrize("is_alike", [False, True], ids=["different contents", "one content"])
def test_eight_threads_create_one_file(place: Place, is_alike: bool) -> None:
    path, start = place.file("file"), threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait(30)
        return place.store.create(path, b"same" if is_alike else b"%d" % number)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(create, range(8)))
    content = place.store.get(path)
    assert content == (b"same" if is_alike else b"%d" % outcomes.index(True))
    assert sum(outcomes) == (8 if is_alike else 1)
    assert place.names() == ["file"]


# Folders


def test_all_files_below_a_folder_are_listed_and_none_beside_it(place: Place) -> None:
    put(place, "a/1", "a/b/2", "a/b/c/3", "a-b/4", "ab/5", "a.json")
    assert place.names("a") == ["a/1", "a/b/2", "a/b/c/3"]
    assert place.names("a/b/c") == ["a/b/c/3"]
    (file,) = place.store.files(place.file("ab"))
    assert (file.path, file.name, file.size) == (place.file("ab/5"), "5", 4)
    assert abs(file.modified - clock.now()) < timedelta(minutes=1)


def test_folders_of_a_folder_are_named_in_order(place: Place) -> None:
    put(place, "c/1", "a/b/2", "a/3", "b/d/e/4", "file")
    assert place.store.folders(place.folder) == ["a", "b", "c"]
    assert place.store.folders(place.file("a")) == ["b"]
    assert place.store.folders(place.file("c")) == []


def test_more_files_than_a_listing_has_at_once_are_listed_and_removed(remote: Place, proxy: Proxy) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: remote.store.put(remote.file(f"many/{n}"), b"1"), range(1001)))
    before = len(proxy.requests)
    assert len(remote.names("many")) == 1001
    assert proxy.counts(before) == {"LIST": 2}
    remote.store.delete_folder(remote.file("many"))
    assert remote.names() == []


def test_a_removed_file_is_gone_and_its_neighbours_are_not(place: Place) -> None:
    put(place, "file", "file.json", "file-2")
    place.store.delete(place.file("file"))
    assert place.names() == ["file-2", "file.json"]


def test_a_removed_folder_is_gone_and_its_neighbours_are_not(place: Place) -> None:
    put(place, "a/1", "a/b/2", "a/_delta_log/0.json", "a-b/3", "ab/4")
    assert place.store.delete_folder(place.file("a"))
    assert place.names() == ["a-b/3", "ab/4"]
    assert place.store.folders(place.folder) == ["a-b", "ab"]


def test_the_log_of_a_table_on_s3_goes_last(remote: Place, proxy: Proxy) -> None:
    log = ["t/_delta_log/0.json", "t/_delta_log/1.json"]
    put(remote, *log, "t/part.parquet", "z/part.parquet", "t/_change_data/part.parquet")
    fault = proxy.refuse("", "DELETE", status=403, nth=2, times=1)
    with pytest.raises(Exception, match="refuses"):
        remote.store.delete_folder(remote.file("t"))
    assert len(fault.requests) == 1
    assert remote.names("t") == log
    remote.store.delete_folder(remote.file("t"))
    assert remote.names() == ["z/part.parquet"]


# Ages


def test_what_was_written_before_a_time_is_discarded(place: Place) -> None:
    path = place.file("file")
    place.store.put(path, b"one")
    head = place.store.head(path)
    assert head is not None
    for before in (head.modified - SECOND, head.modified):
        assert not place.store.discard(path, before)
        assert place.store.get(path) == b"one"
        assert place.names() == ["file"]
    assert place.store.discard(path, head.modified + SECOND)
    assert place.names() == []


def test_a_refreshed_file_has_its_content_and_is_not_old(place: Place) -> None:
    path, present = place.file("file"), clock.now()
    for _ in range(2):
        place.store.refresh(path, b"one")
        assert place.store.get(path) == b"one"
        assert not place.store.discard(path, present - SECOND)
        assert place.names() == ["file"]
        if place.folder.startswith("/"):  # the clock of S3 has no hands
            os.utime(path, (0, 0))


def test_a_file_on_s3_is_refreshed_by_one_request(remote: Place, proxy: Proxy) -> None:
    remote.store.put(remote.file("file"), b"one")
    before = len(proxy.requests)
    remote.store.refresh(remote.file("file"), b"one")
    assert proxy.counts(before) == {"PUT": 1}


def test_the_present_of_a_store_is_that_of_the_files_that_are_written_at_it(place: Place) -> None:
    before = place.store.now(place.folder)
    place.store.put(place.file("file"), b"one")
    after = place.store.now(place.folder)
    head = place.store.head(place.file("file"))
    assert head is not None
    assert (before.tzinfo, after.tzinfo) == (UTC, UTC)
    assert before - SECOND <= head.modified <= after + SECOND, "S3 says whole seconds"


def test_the_present_goes_on_where_nothing_is_written(place: Place) -> None:
    put(place, "file")
    head = place.store.head(place.file("file"))
    assert head is not None
    end = time.monotonic() + 30
    while (now := place.store.now(place.folder)) <= head.modified + SECOND:
        assert time.monotonic() < end, now
    assert place.names() == ["file"]


def test_the_present_of_who_may_not_write_is_the_age_of_the_newest_file(remote: Place, proxy: Proxy) -> None:
    put(remote, "file")
    head = remote.store.head(remote.file("file"))
    proxy.refuse("", "PUT", status=403)
    assert head is not None and remote.store.now(remote.folder) == head.modified
    proxy.clear()
    proxy.refuse("", "DELETE", status=403)
    assert remote.store.now(remote.folder) >= head.modified


# What differs


def test_a_file_of_a_removed_folder_is_not_written_on_a_disk(local: Place) -> None:
    path = local.file("gone/file")
    with pytest.raises(FileNotFoundError):
        local.store.put(path, b"late")
    with pytest.raises(FileNotFoundError):
        local.store.create(path, b"late")
    assert local.names() == []


def test_a_file_on_s3_needs_no_folder(remote: Place) -> None:
    remote.store.make_folder(remote.file("empty"))
    assert remote.store.folders(remote.folder) == []
    remote.store.put(remote.file("new/file"), b"one")
    assert remote.store.create(remote.file("new/other"), b"one")
    assert remote.store.folders(remote.folder) == ["new"]


def test_an_empty_folder_is_there_on_a_disk(local: Place) -> None:
    local.store.make_folder(local.file("a/b"))
    local.store.make_folder(local.file("a/b"))
    assert local.store.folders(local.file("a")) == ["b"]
    assert local.names() == []


#: Writes in each way that is to outlive a power loss.
DURABLE = """
import sys
from kappa.record.ledger import Ledger
from kappa.store.local import LocalStore
lake, store = sys.argv[1], LocalStore()
store.receive(f"{lake}/_kappa/received", iter([b"1"]), 1)
store.put(f"{lake}/_kappa/put", b"1", is_durable=True)
assert store.create(f"{lake}/_kappa/created", b"1")
Ledger(f"{lake}/_kappa/epochs").create()
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_a_folder_above_a_lake_need_not_be_readable(tmp_path: Path) -> None:
    above = tmp_path / "home"
    above.mkdir()
    above.chmod(0o311)
    # Without the right to pass over the modes of files root is a user like others.
    as_user = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*as_user, sys.executable, "-c", DURABLE, str(above / "lake")]
    written = subprocess.run(command, capture_output=True, text=True, check=False)
    above.chmod(0o755)
    assert written.returncode == 0, written.stderr
    assert {file.name for file in (above / "lake/_kappa").iterdir()} == {"received", "put", "created", "epochs"}


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_file_that_cannot_be_replaced_on_a_disk_leaves_nothing_behind(local: Place, is_durable: bool) -> None:
    local.store.make_folder(local.file("file"))
    with pytest.raises(IsADirectoryError):
        local.store.put(local.file("file"), b"one", is_durable=is_durable)
    assert [entry.name for entry in Path(local.folder).iterdir()] == ["file"]


def test_a_folder_on_a_disk_is_discarded_by_its_own_age(local: Place) -> None:
    put(local, "code/a/b", "code/c")
    assert not local.store.discard(local.file("code"), clock.now() - timedelta(hours=1))
    assert local.names() == ["code/a/b", "code/c"]
    os.utime(local.file("code"), (0, 0))
    assert local.store.discard(local.file("code"), clock.now() - timedelta(hours=1))
    assert list(Path(local.folder).iterdir()) == []


def test_a_folder_is_discarded_beside_what_a_killed_process_of_this_number_left(local: Place) -> None:
    """The processes of containers have the same few numbers."""
    left = f"code.{os.getpid()}.tmp/a"
    put(local, "code/a", left)
    os.utime(local.file("code"), (0, 0))
    assert local.store.discard(local.file("code"), clock.now() - timedelta(hours=1))
    assert local.names() == [left]


def test_a_file_that_is_refreshed_while_it_is_discarded_stays(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path, before = local.file("file"), clock.now() - SECOND
    local.store.put(path, b"one")
    os.utime(path, (0, 0))
    rename = Path.rename

    def refreshed_first(file: Path, target: Path) -> Path:
        monkeypatch.undo()
        local.store.refresh(path, b"one")
        return rename(file, target)

    monkeypatch.setattr(Path, "rename", refreshed_first)
    assert not local.store.discard(path, before)
    assert local.store.get(path) == b"one"


def test_a_file_that_is_gone_during_a_walk_of_a_disk_is_passed_over(local: Place) -> None:
    put(local, "a", "b")
    files = local.store.files(local.folder)
    first = next(files)
    for name in ("a", "b"):
        local.store.delete(local.file(name))
    assert first.name in ("a", "b")
    assert list(files) == []


def test_a_folder_of_a_disk_that_cannot_be_listed_is_not_an_empty_one(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    put(local, "a/1")
    monkeypatch.setattr(os, "scandir", fails)
    for call in (local.names, lambda: local.store.folders(local.folder)):
        with pytest.raises(OSError, match="Stale"):
            call()
