"""Tables with files that are missing or torn: an error that names the table, the file and the way back."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from support.damages import drain, halve, lose
from support.s3_proxy import Proxy
from support.slices import Epoch

from kappa.delta import queries, tables
from kappa.delta.access import open_table
from kappa.delta.append_log import AppendLog
from kappa.delta.log_entries import actions_of, entry_of
from kappa.errors import ConflictError, DamagedTableError, LedgerError
from kappa.names import ArchivePaths, EpochPaths, epochs_log
from kappa.store.address import is_remote
from kappa.store.stores import store_of

PATHS = EpochPaths(lake="LAKE", topology="shop.sums", epoch=1)
ARCHIVE = ArchivePaths(lake="LAKE", topic="pos")
REPLAY, REBUILD = "kappa replay shop.sums --execute", "kappa rebuild <topology> --from-changelog --execute"
#: Each kind of table, and how what it holds is made again.
PLACES = {
    epochs_log("LAKE"): REBUILD,
    PATHS.ledger: REBUILD,
    PATHS.table("sums"): REPLAY,
    PATHS.changes("sums"): REPLAY,
    PATHS.output("sums"): REPLAY,
    PATHS.dead_letters: REPLAY,
    PATHS.published("sums"): "kappa start shop.sums --execute",
    ARCHIVE.records: "kappa archive status",
    ARCHIVE.ledger: "kappa archive status",
}


def grown(path: str, commits: int = 6) -> str:
    """A table with some commits."""
    log = AppendLog(path, pa.schema({"n": pa.int64()}))
    log.create()
    for _ in range(commits):
        log.refresh()
        log.append([{}])
    return path


def remove(path: str, version: int) -> str:
    return f"_delta_log/{lose(entry_of(path, version))}"


def tear(path: str, version: int) -> str:
    return f"_delta_log/{halve(entry_of(path, version))}"


def empty(path: str, version: int) -> str:
    """An entry as a disk may have it after a power cut; ``deltalake`` opens a table with one."""
    return f"_delta_log/{drain(entry_of(path, version))}"


def empty_newest(path: str, _: int) -> str:
    return empty(path, open_table(path).version())


def lose_checkpoint(path: str, version: int) -> str:
    open_table(path).create_checkpoint()
    (file,) = [one.path for one in store_of(path).files(f"{path}/_delta_log") if "checkpoint.parquet" in one.path]
    return lose(file)


def tear_checkpoint(path: str, version: int) -> str:
    open_table(path).create_checkpoint()
    (file,) = [one.path for one in store_of(path).files(f"{path}/_delta_log") if "checkpoint.parquet" in one.path]
    store_of(path).put(file, b"PAR1")
    return f"{Path(file).name} is torn"


DAMAGES: list[Callable[[str, int], str]] = [remove, tear, empty_newest, lose_checkpoint, tear_checkpoint]


def check(path: str, why: str, remedy: str) -> None:
    """Open a table in each way, and look at the error."""
    for look in (lambda: open_table(path), lambda: tables.version(path), lambda: queries.query(path, None)):
        with pytest.raises(DamagedTableError) as error:
            look()
        text = str(error.value)
        assert text.startswith(f"The Delta table {path} is damaged: ") and why in text and text.endswith(remedy)
        assert error.value.exit_code == 1 and "\n" not in text
    with pytest.raises(DamagedTableError, match=re.escape(why)):
        AppendLog(path, pa.schema({"n": pa.int64()})).refresh()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", PLACES)
def test_a_table_with_a_missing_or_torn_file_is_refused_by_name(
    tmp_path: Path, place: str, damage: Callable[[str, int], str]
) -> None:
    path = grown(place.replace("LAKE", str(tmp_path / "lake")))
    check(path, damage(path, 3), PLACES[place])


@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if damage is not empty_newest])
def test_so_is_one_on_an_object_store(s3_lake: str, damage: Callable[[str, int], str]) -> None:
    path = grown(f"{s3_lake}/{damage.__name__}/shop.sums/e0001/ledger")
    assert is_remote(path)
    check(path, damage(path, 3), REBUILD)


def test_the_first_entry_and_several_are_named(tmp_path: Path) -> None:
    path = grown(str(tmp_path / "log"))
    with pytest.raises(DamagedTableError, match=re.escape(remove(path, 0))):
        open_table(path)
    for version in (1, 2, 3, 4):
        remove(path, version)
    with pytest.raises(DamagedTableError, match=r"0{19}2\.json is missing, and 2 more files"):
        open_table(path)


@pytest.mark.parametrize("damage", [remove, tear, empty])
def test_a_reader_that_had_opened_the_table_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[str, int], str]
) -> None:
    monkeypatch.setattr("kappa.delta.log_tables.NEXT_ENTRY_SECONDS", -1.0)
    path = grown(str(tmp_path / "log"), 2)
    reader = AppendLog(path, pa.schema({"n": pa.int64()}))
    reader.refresh()
    grown(path, 3)
    why = damage(path, 4)
    with pytest.raises(DamagedTableError, match=re.escape(why)):
        reader.refresh()


@pytest.mark.parametrize(("root", "version"), [("disk", 3), ("disk", 4), ("disk", 5), ("s3", 3), ("s3", 4)])
def test_a_log_with_an_empty_entry_is_not_appended_to_until_the_entry_is_back(
    tmp_path: Path, s3_lake: str, root: str, version: int
) -> None:
    """In the middle and at the end; of a process that had the log open, and of a new one.

    A store has an object as a whole or not at all, so that nobody asks it for the size of the newest entry.
    """
    path = grown(f"{tmp_path if root == 'disk' else s3_lake}/log", 2)
    reader, late = (AppendLog(path, pa.schema({"n": pa.int64()})) for _ in range(2))
    reader.refresh()
    grown(path, 3)
    content = store_of(path).get(entry_of(path, version)) or b""
    why = empty(path, version)
    for log in (reader, late, reader):
        with pytest.raises(DamagedTableError, match=re.escape(why)):
            log.refresh()
        with pytest.raises((ConflictError, LedgerError)):
            log.append([{}])
    store_of(path).put(entry_of(path, version), content)
    assert [[row["n"] for row in log.refresh()] for log in (reader, late)] == [[3, 4, 5], [1, 2, 3, 4, 5]]
    assert [row["n"] for row in reader.append([{}])] == [6]


@pytest.mark.parametrize("damage", [tear, empty])
def test_a_torn_entry_that_is_read_by_its_name_is_refused(tmp_path: Path, damage: Callable[[str, int], str]) -> None:
    path = grown(str(tmp_path / "log"))
    why = damage(path, 2)
    with pytest.raises(DamagedTableError, match=re.escape(why)):
        actions_of(path, 2)
    assert actions_of(path, 1) and actions_of(path, 9) is None


def shorten(file: Path) -> str:
    file.write_bytes(file.read_bytes()[:-1])
    return f"{file.name} is torn"


def spoil(file: Path) -> str:
    """Other bytes at its end, and as many."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    return f"{file.name} is torn"


@pytest.mark.parametrize("damage", [lose, halve, drain, shorten, spoil])
def test_a_data_file_that_is_gone_or_torn_is_named_by_a_log_and_by_a_query(
    tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    path = grown(str(tmp_path / "log"))
    why = damage(next(Path(path).glob("*.parquet")))
    for look in (
        lambda: AppendLog(path, pa.schema({"n": pa.int64()})).refresh(),
        lambda: list(AppendLog(path, pa.schema({"n": pa.int64()})).newest_first()),
        lambda: queries.query(path, None),
        lambda: list(queries.chunks(path, None, ["n"], 10)),
    ):
        with pytest.raises(DamagedTableError, match=why):
            look()


def test_data_files_on_an_object_store_are_looked_for_in_one_listing(proxied_lake: str, proxy: Proxy) -> None:
    path = grown(f"{proxied_lake}/log")
    name = open_table(path).file_uris()[2].rpartition("/")[2]
    store_of(path).delete(f"{path}/{name}")
    before = len(proxy.requests)
    with pytest.raises(DamagedTableError, match=f"{name} is missing"):
        queries.query(path, None)
    assert [one for one in proxy.requests[before:] if one.kind == "HEAD" and one.key.endswith(".parquet")] == []


def test_a_table_that_is_gone_is_not_a_damaged_one(tmp_path: Path) -> None:
    log = AppendLog(grown(str(tmp_path / "log")), pa.schema({"n": pa.int64()}))
    log.refresh()
    for entry in Path(log.path).rglob("*.json"):
        entry.unlink()
    with pytest.raises(LedgerError, match="is gone"):
        log.refresh()


def test_an_error_of_a_sound_table_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(DeltaError):
        open_table(grown(str(tmp_path / "log")), version=99)


def test_tables_of_a_slice_are_read_again_once_the_file_is_back(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path)
    epoch.slice({("a", 0): 3})
    epoch.slice({("b", 0): 4})
    place = Path(entry_of(epoch.paths.ledger, 3))
    content = place.read_bytes()
    place.unlink()
    with pytest.raises(DamagedTableError, match=place.name):
        open_table(epoch.paths.ledger)
    place.write_bytes(content)
    assert open_table(epoch.paths.ledger).version() > 3
