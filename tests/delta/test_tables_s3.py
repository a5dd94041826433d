"""What :mod:`kappa.delta` does with tables is the same on S3 as on a disk: each act once, by the calls of a driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from support.s3_options import HASTE, lake_on
from support.s3_proxy import CUT, Fault, Proxy
from support.table_changes import COLUMNS, changes, rows

from kappa.delta import commits, queries, table_files, tables, vacuum
from kappa.delta.access import storage_options
from kappa.delta.row_counts import rows_of_slice
from kappa.errors import ConflictError, DisagreementError, ForeignCommitError, Transient
from kappa.store.outages import is_outage
from kappa.store.retries import Retries
from kappa.store.stores import store_of
from kappa.topology.ddl import columns_of


@pytest.fixture(params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty lake. That on S3 is answered for by a thread of this process, which no call may stop."""
    address: str = request.getfixturevalue("proxied_lake") if request.param == "s3" else str(tmp_path / "lake")
    return address


def changelog(lake: str) -> str:
    """An empty table of changes."""
    path = f"{lake}/changes"
    loose = columns_of("id STRING NOT NULL, total DECIMAL(12,2)", "test")
    tables.create(path, (tables.SEQ, tables.DELETED, *loose))
    return path


@pytest.fixture
def log(lake: str) -> str:
    return changelog(lake)


@pytest.fixture
def table(lake: str) -> str:
    """An empty table of current rows."""
    tables.create(f"{lake}/table", COLUMNS)
    return f"{lake}/table"


def ids(path: str) -> list[str]:
    return [row["id"] for row in rows(path)]


def data_files(path: str) -> list[str]:
    return sorted(file.path for file in store_of(path).files(path) if file.name.endswith(".parquet"))


def cleaned(path: str, version: int, hours: float = 0.0) -> int:
    """Number of files that a vacuum removes."""
    return vacuum.vacuum(path, lambda: (version,), age=timedelta(hours=hours), check=lambda: None)


def write_elsewhere(path: str, row: str) -> None:
    """Commit a row as another program does."""
    table = DeltaTable(path, storage_options=storage_options(path))
    write_deltalake(table, changes(9, (row, "9.00")), mode="append")


def write_slice_elsewhere(path: str, seq: int) -> None:
    """Commit a slice as another driver of the epoch does, of whose commits this process has not heard."""
    table = DeltaTable(path, storage_options=storage_options(path))
    properties = CommitProperties(
        app_transactions=[Transaction(tables.APP, seq)], custom_metadata={"userMetadata": f"slice={seq} plan=plan"}
    )
    write_deltalake(table, changes(seq, ("twin", "1.00")), mode="append", commit_properties=properties)


def test_a_table_is_there_once_it_was_created(lake: str) -> None:
    assert not tables.exists(f"{lake}/changes")
    for _ in range(2):
        changelog(lake)
    assert tables.exists(f"{lake}/changes")
    assert tables.version(f"{lake}/changes") == 0
    assert table_files.size_bytes(f"{lake}/none", 0) == 0


def test_a_slice_is_appended_once_by_one_plan(log: str) -> None:
    assert tables.append(log, changes(1, ("a", "1.10"), ("b", "2.00")), 1, "plan")
    assert not tables.append(log, changes(1, ("a", "1.10"), ("b", "2.00")), 1, "plan")
    with pytest.raises(DisagreementError, match=f"tables: {log} holds slice 1, and not by plan other"):
        tables.append(log, changes(1, ("c", "1.00")), 1, "other")
    assert (ids(log), tables.version(log)) == (["a", "b"], 1)
    assert (tables.is_written(log, 1), tables.is_written(log, 2)) == (True, False)
    assert tables.has_commit_of(log, "slice=1 plan=plan")
    assert tables.merged(log) == (1, 1)


@pytest.mark.parametrize("kind", ["disk", "s3"])
def test_rows_of_an_interval_are_replaced_and_put_back(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """On S3 without the thread: ``deltalake`` stops all others while it restores a version."""
    log = changelog(request.getfixturevalue("s3_lake") if kind == "s3" else str(tmp_path / "lake"))
    tables.append(log, changes(1, ("a", "1.00"), ("b", "1.00")), 1)
    new = changes(2, ("b", "2.00"), ("b", "3.00")).select(tables.schema_of(log).names)
    for _ in range(2):
        tables.replace_where(log, new.to_reader(), "id = 'b'", 2, "plan")
    assert (ids(log), tables.version(log)) == (["a", "b", "b"], 2)
    for _ in range(2):
        tables.put_back(log, 1, 2, "plan")
    assert [(row["id"], row["total"]) for row in rows(log)] == [("a", Decimal("1.00")), ("b", Decimal("1.00"))]


def test_a_replacement_that_was_put_back_in_advance_changes_nothing(log: str) -> None:
    tables.append(log, changes(1, ("a", "1.00")), 1)
    tables.put_back(log, 1, 2, "plan")
    late = changes(2, ("a", "2.00")).select(tables.schema_of(log).names)
    tables.replace_where(log, late.to_reader(), "id = 'a'", 2, "plan")
    assert [row["total"] for row in rows(log)] == [Decimal("1.00")]


def test_a_sealed_slice_has_no_rows_and_cannot_be_written(log: str) -> None:
    tables.append(log, changes(1, ("a", "1.00")), 1)
    tables.append(log, changes(2, ("b", "1.00")), 2)
    tables.seal(log, 2)
    tables.seal(log, 3)
    assert not tables.append(log, changes(3, ("c", "1.00")), 3)
    assert ids(log) == ["a"]


def test_changes_are_merged_once_and_replaced_as_a_whole(table: str) -> None:
    tables.merge(table, changes(1, ("a", "1.00"), ("b", "2.00")), ["id"], COLUMNS, 1)
    for _ in range(2):
        tables.merge(table, changes(2, ("a", None), ("b", "3.00"), ("c", None)), ["id"], COLUMNS, 2)
    assert rows(table) == [{"id": "b", "total": Decimal("3.00")}]
    assert queries.query(table, 1).num_rows == 2, "the version before is still there"
    assert tables.overwrite(table, changes(3, ("z", "1.00")).select(["id", "total"]), 3) == 3
    assert tables.overwrite(table, changes(3, ("y", "1.00")).select(["id", "total"]), 3) is None
    assert ids(table) == ["z"]


def test_foreign_commits_are_undone_and_kappas_own_stay(log: str) -> None:
    tables.append(log, changes(1, ("a", "1.00")), 1)
    write_elsewhere(log, "x")
    tables.append(log, changes(2, ("b", "1.00")), 2)
    later = list(commits.commits_after(log, 0))
    assert [(commit.version, commit.is_own) for commit in later] == [(1, True), (2, False), (3, True)]
    assert [commit.version for commit in commits.foreign(later)] == [2]
    assert commits.undo(log, 0, later) == 4
    assert ids(log) == ["a", "b"]
    assert commits.foreign(list(commits.commits_after(log, 0))) == []
    assert commits.undo(log, 0, list(commits.commits_after(log, 0))) is None


def test_rows_that_a_foreign_commit_removed_are_put_back(log: str) -> None:
    tables.append(log, changes(1, ("a", "1.00"), ("b", "1.00")), 1)
    DeltaTable(log, storage_options=storage_options(log)).delete("id = 'a'")
    assert ids(log) == ["b"]
    assert commits.undo(log, 0, list(commits.commits_after(log, 0))) == 3
    assert ids(log) == ["a", "b"]
    assert rows_of_slice(log, 1, 1) == 2


def test_files_that_no_kept_version_needs_are_removed(table: str) -> None:
    for seq in (1, 2, 3, 4):
        tables.merge(table, changes(seq, ("a", f"{seq}.00")), ["id"], COLUMNS, seq)
    assert cleaned(table, 2, hours=1) == 0
    assert cleaned(table, 2) == 2
    assert len(data_files(table)) == 2
    for version in (2, 4):
        assert queries.query(table, version).to_pylist() == [{"id": "a", "total": Decimal(f"{version}.00")}]
    assert (cleaned(table, 2), tables.version(table)) == (0, 4), "there is no commit for it"


def test_small_files_are_merged_and_rows_of_earlier_slices_removed(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 2)
    for seq in (1, 2):
        tables.append(log, changes(seq, ("a", f"{seq}.00")), seq)
    vacuum.compact(log)
    assert tables.version(log) == 2, "there are not many yet"
    tables.append(log, changes(3, ("a", "3.00")), 3)
    vacuum.compact(log)
    assert table_files.files_of(tables.open_table(log)).num_rows == 1
    tables.append(log, changes(4, ("a", "4.00")), 4)
    vacuum.forget_before(log, 4)
    assert [row["total"] for row in rows(log)] == [Decimal("4.00")]
    assert commits.foreign(list(commits.commits_after(log, 0))) == []


def test_rows_and_bytes_are_counted_by_the_log(log: str) -> None:
    written = {seq: (tables.append(log, changes(seq, *rows), seq), tables.version(log)) for seq, rows in SLICES.items()}
    assert [rows_of_slice(log, version, seq) for seq, (_, version) in written.items()] == [3, 0, 1]
    assert rows_of_slice(log, 3, 1) == 3, "its commit is two further back"
    assert (table_files.count(log, 1), table_files.count(log, 3)) == (3, 4)
    sizes = {file.path: file.size for file in store_of(log).files(log) if file.name.endswith(".parquet")}
    assert table_files.rows_and_bytes(log, 3) == (4, sum(sizes.values()))
    assert [tables.version_after(log, number) for number in range(4)] == [3, 3, 3, 3]


SLICES = {1: [("a", "1.00"), ("b", "1.00"), ("c", "1.00")], 2: [], 3: [("d", "1.00")]}


def test_rows_are_read_in_order_and_with_changes_over_them(lake: str, log: str, table: str) -> None:
    tables.merge(table, changes(1, ("a", "1.00"), ("b", "1.00")), ["id"], COLUMNS, 1)
    tables.append(log, changes(1, ("b", "1.00"), ("a", "1.00")), 1)
    tables.append(log, changes(2, ("a", None), ("c", "2.00")), 2)
    over = queries.Changes(path=log, delta_version=2, after=1, upto=2, key=("id",))
    assert queries.query(table, 1, order_by="id", over=over).to_pylist() == [
        {"id": "b", "total": Decimal("1.00")},
        {"id": "c", "total": Decimal("2.00")},
    ]
    parts = queries.rows_in_order(log, 1, 1, ("id",), rows=1)
    assert [part["id"].to_pylist() for part in parts] == [["a"], ["b"]]
    assert queries.batches(table, 1).read_all().num_rows == 2
    files = queries.files(log)
    assert files is not None
    assert sorted(f"{log}/{name}" for name in files["path"].to_pylist()) == data_files(log)
    assert pa.schema(tables.schema_of(table)).names == ["id", "total"]
    assert store_of(lake).folders(lake) == ["changes", "table"]


@pytest.mark.parametrize("status", [pytest.param(500, id="status 500"), pytest.param(CUT, id="cut")])
@pytest.mark.parametrize("retries", [pytest.param(HASTE, id="sent once"), pytest.param(Retries(), id="sent again")])
def test_a_slice_whose_answer_is_lost_is_written_once(
    proxy: Proxy, tmp_path: Path, status: int | None, retries: Retries
) -> None:
    with lake_on(proxy.server, tmp_path, retries=retries) as lake:
        log = changelog(lake)
        lost = proxy.lose_answer(r"0{19}1\.json$", status=status)
        assert tables.append(log, changes(1, ("a", "1.00")), 1, "plan")
        assert lost.answers == [200]
        assert not tables.append(log, changes(1, ("a", "1.00")), 1, "plan"), "as after a crash"
        assert (ids(log), tables.version(log)) == (["a"], 1)


def filled(lake: str) -> tuple[str, str]:
    """Changes of two slices, and a table of the first."""
    log = changelog(lake)
    tables.append(log, changes(1, ("a", "1.00"), ("b", "1.00")), 1)
    tables.append(log, changes(2, ("b", "2.00")), 2)
    tables.create(f"{lake}/table", COLUMNS)
    tables.merge(f"{lake}/table", changes(1, ("a", "1.00"), ("b", "1.00")), ["id"], COLUMNS, 1)
    return log, f"{lake}/table"


def replace_where(log: str) -> None:
    new = changes(3, ("b", "3.00")).select(tables.schema_of(log).names)
    tables.replace_where(log, new.to_reader(), "id = 'b'", 3, "plan")


COMMITS: Mapping[str, Callable[[str, str], object]] = {
    "replaced rows": lambda log, _: replace_where(log),
    "sealed rows": lambda log, _: tables.seal(log, 2),
    "a sealed number": lambda log, _: tables.seal(log, 3),
    "merge": lambda _, table: tables.merge(table, changes(2, ("a", None), ("c", "2.00")), ["id"], COLUMNS, 2),
    "overwrite": lambda _, table: tables.overwrite(table, changes(2, ("z", "1.00")).select(["id", "total"]), 2),
    "early rows removed": lambda log, _: vacuum.forget_before(log, 2),
}
ENTRY = r"_delta_log/\d{20}\.json$"
FAULTS: Mapping[str, Callable[[Proxy], Fault]] = {
    "lost answer, status 500": lambda proxy: proxy.lose_answer(ENTRY, status=500),
    "lost answer, cut": lambda proxy: proxy.lose_answer(ENTRY, status=CUT),
    "refused, status 409": lambda proxy: proxy.refuse(ENTRY, "PUT", status=409, times=1),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMITS)
def test_a_commit_that_a_store_does_not_confirm_is_waited_for_and_made_once(
    proxy: Proxy, tmp_path: Path, name: str, fault: str
) -> None:
    commit, plain = COMMITS[name], filled(str(tmp_path / "plain"))
    commit(*plain)
    with lake_on(proxy.server, tmp_path, retries=Retries()) as lake:
        log, table = filled(lake)
        injected = FAULTS[fault](proxy)
        try:
            commit(log, table)
        except Transient:  # what a driver waits for, however often it comes
            commit(log, table)
        assert injected.requests
        for path, without_fault in zip((log, table), plain, strict=True):
            assert rows(path) == rows(without_fault)
            assert tables.version(path) == tables.version(without_fault)


def test_a_slice_that_another_process_overtakes_writes_nothing(proxied_lake: str, proxy: Proxy) -> None:
    log = changelog(proxied_lake)
    first, second = (proxy.hold(rf"0{{19}}{version}\.json$") for version in (1, 2))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(tables.append, log, changes(1, ("slow", "1.00")), 1, "plan")
        for held, row in ((first, "a"), (second, "b")):  # it looks once what is in its way
            held.await_arrival()
            write_elsewhere(log, row)
            held.release()
        assert isinstance(slow.exception(60), ConflictError)
    assert (ids(log), first.answers, second.answers) == (["a", "b"], [412], [412])


def test_a_slice_that_a_twin_writes_first_is_not_written_again(proxied_lake: str, proxy: Proxy) -> None:
    log = changelog(proxied_lake)
    tables.append(log, changes(1, ("a", "1.00")), 1, "plan")
    write_slice_elsewhere(log, 2)
    before = len(proxy.requests)
    assert tables.append(log, changes(2, ("b", "2.00")), 2, "plan") is None
    assert proxy.counts(before)["GET"] > 0, "it was in the way"
    assert (ids(log), tables.version(log)) == (["a", "twin"], 2)


def test_a_query_without_an_answer_is_an_outage(proxied_lake: str, proxy: Proxy) -> None:
    log = changelog(proxied_lake)
    tables.append(log, changes(1, ("a", "1.00")), 1)
    proxy.refuse(r"\.parquet$")
    with pytest.raises(Exception, match="503 Service Unavailable") as error:
        rows(log)
    assert is_outage(error.value)


@pytest.mark.parametrize("mode", ["merge", "overwrite"])
def test_rows_are_not_written_into_columns_that_another_program_has_just_changed(
    log: str, table: str, mode: Literal["merge", "overwrite"]
) -> None:
    tables.append(log, changes(1, ("a", "1.10")), 1)
    tables.overwrite(table, changes(1, ("a", "1.10")).select(["id", "total"]), 1)
    for path in (log, table):
        options, other = storage_options(path), pa.table({"id": ["b"], "extra": [2]})
        if mode == "merge":
            DeltaTable(path, storage_options=options).alter.add_columns([Field("extra", "long")])
        else:
            write_deltalake(path, other, mode=mode, schema_mode=mode, storage_options=options)
    message = "either the table or its new rows lack .*extra.* kappa restore"
    with pytest.raises(ForeignCommitError, match=f"changes: {message}"):
        tables.append(log, changes(2, ("c", "1.10")), 2)
    with pytest.raises(ForeignCommitError, match=f"table: {message}"):
        tables.overwrite(table, changes(2, ("c", "1.10")).select(["id", "total"]), 2)
    assert ids(log) == ids(table) == ["a" if mode == "merge" else "b"]
