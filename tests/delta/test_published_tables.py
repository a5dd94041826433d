"""Published tables: what each commit shows, who may write, and what stays of files and log."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.published_lake import RETENTION, SCHEMA, Lake

from kappa import clock
from kappa.delta import tables, vacuum
from kappa.delta.log_state import state_of
from kappa.delta.publication import EPOCH, VERSION
from kappa.delta.published import LOG_ENTRIES, PublishedTable
from kappa.errors import ConflictError, PublicationError


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create(1)
    return lake


def kinds(actions: list[dict[str, Any]]) -> list[str]:
    return [next(iter(action)) for action in actions]


# What each commit shows


def test_the_first_publication_shows_the_declared_columns_of_all_rows(lake: Lake) -> None:
    lake.append(1, 1, "a", "b")
    assert lake.publish(1) == 1
    table = DeltaTable(lake.path)
    assert (table.version(), [field.name for field in table.schema().fields]) == (0, ["id", "amount"])
    assert lake.ids() == ["a", "b"] and lake.publish(1) == 0
    shown = lake.published.shown()
    assert shown is not None
    assert (shown.epoch, shown.seq, shown.offsets) == (1, 1, {"sales": {"0": 1}})


def test_slices_since_the_last_publication_are_one_commit_that_only_adds(lake: Lake) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    for seq in range(2, 6):
        lake.append(1, seq, f"b{seq}")
    lake.append(1, 6)
    assert lake.publish(1) == 1
    actions = lake.entry()
    assert kinds(actions) == ["commitInfo", "txn", "txn", "txn", *["add"] * 4]
    assert all(action["add"]["dataChange"] for action in actions if "add" in action)
    assert lake.ids(0) == ["a"] and lake.ids() == ["a", "b2", "b3", "b4", "b5"]
    assert json.loads(actions[0]["commitInfo"]["userMetadata"])["seq"] == 6


def test_merged_files_are_a_commit_without_a_change_of_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 2)
    lake.append(1, 1, "a")
    lake.publish(1)
    lake.append(1, 2, "b"), lake.append(1, 3, "c")
    vacuum.compact(lake.source(1))
    lake.append(1, 4, "d")
    assert lake.publish(1) == 3
    changes = [
        {a[kind]["dataChange"] for a in lake.entry(v) for kind in ("add", "remove") if kind in a} for v in (1, 2, 3)
    ]
    assert changes == [{True}, {False}, {True}]
    assert [lake.ids(v) for v in range(4)] == [["a"], ["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c", "d"]]


def test_a_slice_that_was_given_up_is_never_shown(lake: Lake) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    lake.append(1, 2, "wrong")
    tables.seal(lake.source(1), 2, "plan")
    lake.append(1, 3, "b")
    assert lake.publish(1) == 1 and lake.ids() == ["a", "b"]
    assert "remove" not in kinds(lake.entry())


def test_replaced_rows_are_one_commit(lake: Lake) -> None:
    lake.append(1, 1, "a"), lake.append(1, 2, "b")
    lake.publish(1)
    schema = pa.schema(DeltaTable(lake.source(1)).schema().to_arrow())
    rows = pa.Table.from_pylist([{"_seq": 3, "id": "x", "amount": 1}], schema)
    tables.replace_where(lake.source(1), rows.to_reader(), "amount = 1", 3, "plan")
    assert lake.publish(1) == 1 and lake.ids() == ["b", "x"] and lake.ids(0) == ["a", "b"]


def test_another_epoch_is_one_commit_with_its_schema_under_the_same_id(lake: Lake) -> None:
    lake.append(1, 1, "a", "b")
    lake.publish(1)
    lake.create(2, f"{SCHEMA}, currency STRING", partition_by=("currency",))
    lake.append(2, 1, "A", currency="a b/ü=%"), lake.append(2, 2, "B", currency=None)
    before = DeltaTable(lake.path).metadata().id
    assert lake.publish(2) == 1
    assert lake.ids(0) == ["a", "b"] and lake.ids() == ["A", "B"]
    table = DeltaTable(lake.path)
    assert table.metadata().id == before and table.metadata().partition_columns == ["currency"]
    assert table.to_pyarrow_table().sort_by("id")["currency"].to_pylist() == ["a b/ü=%", None]
    lake.append(1, 2, "c")
    assert lake.publish(1) == 1 and lake.ids() == ["a", "b", "c"] and lake.ids(1) == ["A", "B"]


def test_a_new_process_shows_the_same_from_a_checkpoint_as_from_the_entries(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.delta.published.CHECKPOINT_EVERY", 4)
    for seq in range(1, 11):
        lake.append(1, seq, f"r{seq}")
        lake.publish(1)
    assert Path(lake.path, "_delta_log", f"{8:020}.checkpoint.parquet").exists()
    from_checkpoint = state_of(lake.path)
    for file in Path(lake.path, "_delta_log").glob("*checkpoint*"):
        file.unlink()
    from_entries = state_of(lake.path)
    assert from_checkpoint is not None and from_entries is not None
    assert from_checkpoint.files.keys() == from_entries.files.keys()
    stats = [{path: add["stats"] for path, add in state.files.items()} for state in (from_checkpoint, from_entries)]
    assert stats[0] == stats[1] and from_checkpoint.transactions == from_entries.transactions
    lake.published = PublishedTable(lake.path, RETENTION)
    lake.append(1, 11, "r11")
    assert lake.publish(1) == 1 and len(lake.ids()) == 11


def test_a_new_process_knows_the_offsets_of_an_entry_that_has_a_checkpoint(lake: Lake) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    assert Path(lake.path, "_delta_log", f"{0:020}.checkpoint.parquet").exists()
    shown = PublishedTable(lake.path, RETENTION).shown()
    assert shown is not None and shown == lake.published.shown() and shown.offsets == {"sales": {"0": 1}}


def test_a_table_of_an_epoch_without_slices_shows_none_of_the_epoch_before(lake: Lake) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    lake.create(2)
    lake.publish(2)
    shown = lake.published.shown()
    assert shown is not None and (shown.epoch, shown.seq, shown.offsets) == (2, None, None)


def test_entries_of_the_epoch_that_are_gone_are_made_good_by_its_state(lake: Lake) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    lake.append(1, 2, "b"), lake.append(1, 3, "c")
    DeltaTable(lake.source(1)).create_checkpoint()
    Path(lake.source(1), "_delta_log", f"{2:020}.json").unlink()
    assert lake.publish(1) == 1 and lake.ids() == ["a", "b", "c"]


# Who may write


@pytest.fixture
def attacks() -> dict[str, Any]:
    rows = pa.table({"id": ["z"], "amount": [1]})
    return {
        "append": lambda path: write_deltalake(path, rows, mode="append"),
        "overwrite": lambda path: write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite"),
        "delete": lambda path: DeltaTable(path).delete("amount = 1"),
        "optimize": lambda path: DeltaTable(path).optimize.compact(),
        "restore": lambda path: DeltaTable(path).restore(0),
        "properties": lambda path: DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"}),
    }


@pytest.mark.parametrize("attack", ["append", "overwrite", "delete", "optimize", "restore", "properties"])
def test_another_writer_is_shut_out_by_the_feature(lake: Lake, attacks: dict[str, Any], attack: str) -> None:
    for seq in (1, 2):
        lake.append(1, seq, "a")
        lake.publish(1)
    with pytest.raises(Exception, match="kappaPublished"):
        attacks[attack](lake.path)
    assert DeltaTable(lake.path).version() == 1


@pytest.mark.parametrize("is_full", [True, False])
def test_a_vacuum_of_another_program_takes_no_file(lake: Lake, is_full: bool) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    lake.create(2)
    lake.append(2, 1, "b")
    lake.publish(2)
    assert DeltaTable(lake.path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=is_full) == []
    assert lake.ids(0) == ["a"] and lake.publish(1) == 1 and lake.ids() == ["a"]


@pytest.mark.parametrize("is_seen", [True, False])
def test_an_entry_of_a_writer_that_ignores_the_feature_is_undone_by_the_next(lake: Lake, is_seen: bool) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    removed = [{"remove": {"path": path, "dataChange": True}} for path in state_of(lake.path).files]  # type: ignore[union-attr]
    metadata = state_of(lake.path).metadata  # type: ignore[union-attr]
    entry = [{"commitInfo": {"operation": "DELETE"}}, {"metaData": {**metadata, "partitionColumns": ["id"]}}, *removed]
    file = Path(lake.path, "_delta_log", f"{1:020}.json")
    file.write_text("".join(f"{json.dumps(action)}\n" for action in entry))
    assert lake.ids() == []
    lake.append(1, 2, "b")
    if is_seen:  # by a driver that goes on; its first attempt meets the entry
        with pytest.raises(ConflictError):
            lake.published.publish(lake.origin(1), lake.published.version)
    else:
        lake.published = PublishedTable(lake.path, RETENTION)
    assert lake.publish(1) == 1 and lake.ids() == ["a", "b"]
    assert DeltaTable(lake.path).metadata().partition_columns == []


def test_of_two_processes_one_publishes_and_the_other_looks_again(lake: Lake) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    late = PublishedTable(lake.path, RETENTION)
    late.look()
    origin = lake.origin(1)
    lake.append(1, 2, "b")
    lake.publish(1)
    with pytest.raises(ConflictError):
        late.publish(replace(origin, version=lake.origin(1).version, epoch=1, folder="_e0001"), late.version)
    assert late.publish(lake.origin(1), late.version) and lake.ids() == ["a", "b"]


def test_a_look_for_files_that_stay_lets_no_late_writer_publish_over_its_successor(lake: Lake) -> None:
    """The thread of upkeep looks while the one that publishes was frozen between its look and its commit."""
    lake.append(1, 1, "a")
    lake.publish(1)
    late = PublishedTable(lake.path, RETENTION)
    version = late.version
    lake.append(1, 2, "b")
    origin = lake.origin(1)
    lake.create(2)
    lake.append(2, 1, "A")
    lake.publish(2)
    assert late.needed("_e0001")
    with pytest.raises(ConflictError):
        late.publish(origin, version)
    assert lake.ids() == ["A"]


def test_an_entry_of_another_writer_is_known_as_such_after_a_look(lake: Lake) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    for published in (lake.published, PublishedTable(lake.path, RETENTION)):
        published.look()
        assert not published.is_foreign
    file = Path(lake.path, "_delta_log", f"{1:020}.json")
    file.write_text(json.dumps({"commitInfo": {"operation": "DELETE"}}) + "\n")
    for published in (lake.published, PublishedTable(lake.path, RETENTION)):
        published.look()
        assert published.is_foreign
    assert lake.publish(1) == 1 and not lake.published.is_foreign


def test_files_that_another_program_merged_in_an_epochs_table_change_no_row(lake: Lake) -> None:
    for seq in (1, 2):
        lake.append(1, seq, f"r{seq}")
    lake.publish(1)
    DeltaTable(lake.source(1)).optimize.compact()
    lake.append(1, 3, "r3")
    lake.published = PublishedTable(lake.path, RETENTION)  # a driver that comes up
    assert lake.publish(1) == 2
    assert [lake.changes(version) for version in (1, 2)] == [{False}, {True}]
    assert [lake.ids(version) for version in (1, 2)] == [["r1", "r2"], ["r1", "r2", "r3"]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.enableChangeDataFeed", "true"),
        ("delta.columnMapping.mode", "name"),
        ("delta.enableDeletionVectors", "true"),
        ("delta.enableRowTracking", "true"),
    ],
)
def test_a_table_with_a_feature_that_readers_would_not_see_is_refused(lake: Lake, name: str, value: str) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    source, version = lake.source(1), tables.version(lake.source(1)) + 1
    metadata = state_of(source).metadata  # type: ignore[union-attr]
    changed = {**metadata, "configuration": {**metadata["configuration"], name: value}}
    Path(source, "_delta_log", f"{version:020}.json").write_text(json.dumps({"metaData": changed}) + "\n")
    with pytest.raises(PublicationError, match=f"it has {name} = {value}") as error:
        lake.published.publish(replace(lake.origin(1), version=version), lake.published.version)
    assert error.value.data["path"] == source and lake.ids() == ["a"]


@pytest.mark.parametrize(
    "add",
    [
        {"deletionVector": {"storageType": "u"}},
        {"path": "s3://bucket/x.parquet"},
        {"path": "/tmp/x.parquet"},
        {"path": "file:/x.parquet"},
    ],
)
def test_a_file_that_readers_would_not_find_or_misread_is_refused(lake: Lake, add: dict[str, Any]) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    source, version, origin = lake.source(1), tables.version(lake.source(1)) + 1, lake.origin(1)
    file = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True, **add}
    Path(source, "_delta_log", f"{version:020}.json").write_text(json.dumps({"add": file}) + "\n")
    for published in (lake.published, PublishedTable(lake.path, RETENTION)):
        with pytest.raises(PublicationError, match=f"The table {source} is not published") as error:
            published.publish(replace(origin, version=version), published.version)
        assert error.value.data["path"] == source
    assert lake.ids() == ["a"]


# What stays


def test_files_stay_for_the_retention_after_they_left(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: now)
    lake.append(1, 1, "a")
    lake.publish(1)
    (file,) = lake.published.needed("_e0001")
    lake.create(2)
    lake.append(2, 1, "b")
    lake.publish(2)
    assert lake.published.needed("_e0001") == {file}
    now += RETENTION
    assert lake.published.needed("_e0001") == {file}
    now += timedelta(seconds=1)
    assert lake.published.needed("_e0001") == set() and len(lake.published.needed("_e0002")) == 1


def test_a_driver_that_lives_long_does_not_remember_all_files_that_were_ever_removed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.delta.published.CHECKPOINT_EVERY", 4)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: now)
    schema = pa.schema(DeltaTable(lake.source(1)).schema().to_arrow())
    for seq in range(1, 10):
        tables.overwrite(lake.source(1), pa.Table.from_pylist([{"_seq": seq, "id": "x"}], schema), seq)
        lake.publish(1)
        now += timedelta(days=1)
    state = lake.published.look()
    assert state is not None and state.version == 8 and len(state.tombstones) == 8
    assert [len(lake.published.needed("_e0001")), len(state.files)] == [8, 1]
    for seq in range(10, 14):
        tables.overwrite(lake.source(1), pa.Table.from_pylist([{"_seq": seq, "id": "x"}], schema), seq)
        lake.publish(1)
        now += timedelta(days=1)
    assert len(state.tombstones) == 8


def test_upkeep_of_an_epoch_spares_files_of_its_published_table(lake: Lake) -> None:
    for seq in (1, 2):
        lake.append(1, seq, f"r{seq}")
    lake.publish(1)
    schema = pa.schema(DeltaTable(lake.source(1)).schema().to_arrow())
    tables.overwrite(lake.source(1), pa.Table.from_pylist([{"_seq": 3, "id": "x"}], schema), 3)
    upkeep = partial(vacuum.vacuum, lake.source(1), tuple, age=timedelta(0), check=lambda: None)
    upkeep(spared=lake.published.needed("_e0001"))
    assert len(list(Path(lake.source(1)).glob("*.parquet"))) == 3
    upkeep()
    assert len(list(Path(lake.source(1)).glob("*.parquet"))) == 1


def test_the_log_never_has_two_thousand_entries_and_begins_with_a_checkpoint(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.delta.published.CHECKPOINT_EVERY", 5)
    monkeypatch.setattr("kappa.delta.published.LOG_ENTRIES", 20)
    for seq in range(1, 61):
        lake.append(1, seq, f"r{seq}")
        lake.publish(1)
        assert len(list(Path(lake.path, "_delta_log").glob("*.json"))) <= 30
    assert LOG_ENTRIES + 2 * 100 <= 2000
    numbers = sorted(int(file.name[:20]) for file in Path(lake.path, "_delta_log").glob("0*.json"))
    assert len(lake.ids()) == 60 and len(lake.ids(numbers[1])) == numbers[1] + 1
    assert DeltaTable(lake.path).transaction_version(EPOCH) == 1
    assert DeltaTable(lake.path).transaction_version(VERSION) == 60


def test_a_writer_that_was_frozen_until_its_entry_was_cleaned_up_publishes_after_the_newest(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    frozen = PublishedTable(lake.path, RETENTION)
    frozen.look()
    for seq in (2, 3, 4):
        lake.append(1, seq, f"r{seq}")
        lake.publish(1)
    DeltaTable(lake.path, version=2).create_checkpoint()
    for number in (0, 1):
        Path(lake.path, "_delta_log", f"{number:020}.json").unlink()
    lake.append(1, 5, "r5")
    monkeypatch.setattr("kappa.delta.published.LOOK_SECONDS", -1.0)  # it was frozen for hours
    with pytest.raises(ConflictError):
        frozen.publish(lake.origin(1), frozen.version)
    assert not frozen.publish(lake.origin(1), frozen.version) and lake.ids() == ["a", "r2", "r3", "r4", "r5"]
    assert not Path(lake.path, "_delta_log", f"{1:020}.json").exists() and DeltaTable(lake.path).version() == 4


def test_a_writer_that_was_frozen_over_a_cutover_publishes_nothing_over_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(1, 1, "a")
    lake.publish(1)
    frozen = PublishedTable(lake.path, RETENTION)
    assert frozen.shown() is not None  # after that it learned that its epoch is live
    lake.create(2)
    lake.append(2, 1, "A")
    lake.publish(2)
    lake.append(1, 2, "b")
    monkeypatch.setattr("kappa.delta.published.LOOK_SECONDS", -1.0)  # it was frozen for hours
    with pytest.raises(ConflictError):
        frozen.publish(lake.origin(1), frozen.version)
    assert lake.ids() == ["A"]
    shown = frozen.shown()
    assert shown is not None and shown.epoch == 2
