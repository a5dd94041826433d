"""Commits of other programs in an epoch's Delta tables: named, not built on, undone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, TableFeatures, write_deltalake
from support.slices import Epoch

from kappa import clock
from kappa.config import Config
from kappa.delta import commits as delta_commits
from kappa.delta import queries, tables, vacuum
from kappa.delta.damage import entry_of
from kappa.delta.log_state import state_of
from kappa.driver.maintenance import maintain
from kappa.errors import ForeignCommitError, first_line
from kappa.record import foreign_writes
from kappa.record.foreign_writes import Watch
from kappa.slices.merging import merge_between
from kappa.slices.places import record_files
from kappa.slices.protocol import apply_changes, commit_slice


@pytest.fixture
def epoch(tmp_path: Path) -> Epoch:
    new_epoch = Epoch(tmp_path, merge_seconds=0.0)
    for number in range(3):
        new_epoch.slice({("a", number): number, ("b", number): 10 * number})
    return new_epoch


def newest(epoch: Epoch, place: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = queries.query(epoch.paths.place(place), None).to_pylist()
    return sorted(rows, key=str)


@pytest.mark.parametrize("place", ["tables/sums", "changes/sums"])
def test_rows_deleted_by_another_program_stop_the_epoch_and_are_restored(epoch: Epoch, place: str) -> None:
    before = newest(epoch, place)
    path = epoch.paths.place(place)
    DeltaTable(path).delete("id = 'a'")
    DeltaTable(path).delete("id = 'b' AND total = 10")
    one = "sums --epoch 1 --execute"  # by default the commands are about the live epoch
    way = f"kappa stop {one}, then kappa restore {one}, then kappa start {one}$"
    with pytest.raises(ForeignCommitError, match=rf"{place}: version \d+ \(DELETE at .*: {way}"):
        epoch.run.look_at_commits()
    state = epoch.run.ledger.state()
    assert [c.operation for c in foreign_writes.foreign_commits(epoch.paths, state)[place]] == ["DELETE", "DELETE"]
    restored = foreign_writes.undo(epoch.paths, state)
    assert list(restored) == [place]
    assert newest(epoch, place) == before
    assert foreign_writes.undo(epoch.paths, state) == {}
    epoch.run.look_at_commits()
    epoch.slice({("a", 0): 7})
    merge_between(epoch.run, is_asked=True)
    maintain(epoch.run, Config.from_env({"KAPPA_HOME": str(epoch.paths.lake)}), clock.now() + timedelta(hours=1))
    epoch.run.look_at_commits()
    assert {(r["id"], r["select"], r["total"]) for r in newest(epoch, "tables/sums")} == {
        ("a", 0, 7),
        ("b", 0, 0),
        ("a", 1, 1),
        ("b", 1, 10),
        ("a", 2, 2),
        ("b", 2, 20),
    }


def test_undoing_a_foreign_commit_keeps_rows_of_the_current_slice(epoch: Epoch) -> None:
    path = epoch.paths.changes("sums")
    before = newest(epoch, "changes/sums")
    DeltaTable(path).delete("id = 'a'")
    plan, effects = epoch.begin({("c'", 0): 5})
    with pytest.raises(ForeignCommitError):
        apply_changes(epoch.run, plan, effects)
    with pytest.raises(ForeignCommitError):
        commit_slice(epoch.run, plan, effects)
    foreign_writes.undo(epoch.paths, epoch.run.ledger.state())
    assert len(newest(epoch, "changes/sums")) == len(before) + 1
    apply_changes(epoch.run, plan, effects)
    assert epoch.table(commit_slice(epoch.run, plan, effects))["c'", 0] == 5


def test_an_older_version_restored_by_another_program_is_undone(epoch: Epoch) -> None:
    before = newest(epoch, "tables/sums")
    DeltaTable(epoch.paths.table("sums")).restore(1)
    with pytest.raises(ForeignCommitError, match="RESTORE"):
        merge_between(epoch.run, is_asked=True), epoch.run.look_at_commits()
    foreign_writes.undo(epoch.paths, epoch.run.ledger.state())
    assert newest(epoch, "tables/sums") == before


def test_the_way_back_is_within_what_is_shown_however_many_commits_there_are(epoch: Epoch) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    commit = next(delta_commits.commits_after(epoch.paths.place("tables/sums"), -1))
    several = [replace(commit, version=n, at=at, operation="STREAMING UPDATE") for n in range(50_000)]
    shown = first_line(foreign_writes.refusal(epoch.paths, {"tables/sums": several, "changes/sums": several}))
    assert "and 99,997 more. Nothing is built on them." in shown
    assert shown.endswith("then kappa start sums --epoch 1 --execute")


def test_rows_added_by_another_program_are_named_and_removed(epoch: Epoch) -> None:
    before = newest(epoch, "tables/sums")
    rows = pa.table({"id": ["z"], "select": pa.array([0], pa.int32()), "total": [1]})
    write_deltalake(epoch.paths.table("sums"), rows, mode="append")
    with pytest.raises(ForeignCommitError, match="WRITE"):
        epoch.run.look_at_commits()
    foreign_writes.undo(epoch.paths, epoch.run.ledger.state())
    assert newest(epoch, "tables/sums") == before


@pytest.mark.parametrize("timestamp", [1764430000000000, -(2**62), "2026-11-29T12:00:00Z", None])
def test_a_commit_of_another_program_with_another_kind_of_time_is_undone_too(epoch: Epoch, timestamp: object) -> None:
    before = newest(epoch, "tables/sums")
    table = DeltaTable(epoch.paths.table("sums"))
    table.delete("id = 'a'")
    entry = Path(entry_of(epoch.paths.table("sums"), table.version()))
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = timestamp
    entry.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(ForeignCommitError, match=r"\(DELETE, by "):
        epoch.run.look_at_commits()
    foreign_writes.undo(epoch.paths, epoch.run.ledger.state())
    assert newest(epoch, "tables/sums") == before


def write_more_columns(path: str, mode: Literal["append", "overwrite"]) -> None:
    rows = queries.query(path, None).drop_columns(["total"]).append_column("extra", pa.array([1, 2, 3, 4, 5, 6]))
    write_deltalake(path, rows, mode=mode, schema_mode="merge" if mode == "append" else "overwrite")


#: Changes of what a table is, most of them without a change of rows.
CHANGES: dict[str, Callable[[str], object]] = {
    "a new column": lambda path: DeltaTable(path).alter.add_columns([Field("extra", "long")]),
    "rows with a new column": lambda path: write_more_columns(path, "append"),
    "other columns": lambda path: write_more_columns(path, "overwrite"),
    "a property": lambda path: DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"}),
    "a constraint": lambda path: DeltaTable(path).alter.add_constraint({"small": "total < 1000"}),
    "a feature of readers": lambda path: DeltaTable(path).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    ),
    "a name": lambda path: DeltaTable(path).alter.set_table_name("sums"),
}


@pytest.mark.parametrize("place", ["tables/sums", "changes/sums"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_table_that_another_program_changed_stops_the_epoch_and_is_restored(
    epoch: Epoch, place: str, change: Callable[[str], object]
) -> None:
    path = epoch.paths.place(place)
    before, rows = state_of(path), newest(epoch, place)
    change(path)
    with pytest.raises(ForeignCommitError, match=rf"{place}: version \d+ "):
        epoch.run.look_at_commits()
    assert list(foreign_writes.undo(epoch.paths, epoch.run.ledger.state())) == [place]
    after = state_of(path)
    assert before is not None and after is not None
    assert (after.metadata, after.protocol, after.files.keys()) == (
        before.metadata,
        before.protocol,
        before.files.keys(),
    )
    assert newest(epoch, place) == rows
    epoch.run.look_at_commits()
    epoch.slice({("a", 0): 7})
    merge_between(epoch.run, is_asked=True)
    assert ("a", 0, 7) in {(row["id"], row["select"], row["total"]) for row in newest(epoch, "tables/sums")}


@pytest.mark.parametrize("moment", ["dead_letters", "changes/sums", "tables/sums"])
@pytest.mark.parametrize("place", ["changes/sums", "tables/sums"])
def test_a_commit_of_another_program_during_maintenance_is_not_put_on_record(
    epoch: Epoch, monkeypatch: pytest.MonkeyPatch, moment: str, place: str
) -> None:
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 0)
    path, ledger = epoch.paths.place(place), epoch.run.ledger
    before, recorded = newest(epoch, place), ledger.state().recorded

    def write(now: str) -> tuple[str, ...]:
        if now == moment:
            write_deltalake(path, queries.query(path, None), mode="append")
        return ()

    config = Config.from_env({"KAPPA_HOME": str(epoch.paths.lake)})
    with pytest.raises(ForeignCommitError, match=rf"^Epoch 1 of 'sums' has commits .* {place}: version \d+ \(WRITE"):
        maintain(epoch.run, config, clock.now(), published=write)
    assert ledger.state().recorded == recorded
    assert list(foreign_writes.undo(epoch.paths, ledger.state())) == [place]
    assert newest(epoch, place) == before
    maintain(epoch.run, config, clock.now())
    assert ledger.state().recorded[place] == tables.version(path)
    assert newest(epoch, place) == before


class Overtaken(Watch):
    """A look at commits right after which another program writes, once."""

    def look(self, versions: Mapping[str, int], most: Mapping[str, int] | None = None) -> None:
        super().look(versions, most)
        path = self.paths.table("sums")
        if tables.version(path) == self.looked["tables/sums"]:
            DeltaTable(path).delete("id = 'b' AND select = 0")


def test_a_commit_of_another_program_right_before_that_of_a_slice_is_not_put_on_record(epoch: Epoch) -> None:
    plan, effects = epoch.begin({("a", 0): 5})
    apply_changes(epoch.run, plan, effects)
    epoch.run.watch = Overtaken(paths=epoch.paths)
    with pytest.raises(ForeignCommitError, match=r"tables/sums: version \d+ \(DELETE"):
        commit_slice(epoch.run, plan, effects)
    state = epoch.run.ledger.state()
    assert state.open_plan == plan
    foreign_writes.undo(epoch.paths, state)
    epoch.run.watch = Watch(paths=epoch.paths)
    assert epoch.table(commit_slice(epoch.run, plan, effects))["b", 0] == 0


def test_files_of_another_program_are_not_put_on_record(epoch: Epoch) -> None:
    row = epoch.run.ledger.rows()[-1]
    DeltaTable(epoch.paths.table("sums")).delete("id = 'b'")
    with pytest.raises(ForeignCommitError, match=r"tables/sums: version \d+ \(DELETE"):
        record_files(epoch.run)
    assert epoch.run.ledger.rows()[-1] == row


def test_merged_files_and_commits_by_kappa_are_not_foreign(epoch: Epoch) -> None:
    DeltaTable(epoch.paths.changes("sums")).optimize.compact()
    for seq in range(4, 70):
        epoch.slice({("a", 0): seq})
    maintain(epoch.run, Config.from_env({"KAPPA_HOME": str(epoch.paths.lake)}), clock.now() + timedelta(hours=1))
    tables.seal(epoch.paths.changes("sums"), 69)
    epoch.run.watch.looked.clear()
    versions = dict.fromkeys(("dead_letters", "changes/sums", "tables/sums"), 0)
    epoch.run.watch.look(versions)
    assert epoch.run.watch.looked["changes/sums"] > 66
