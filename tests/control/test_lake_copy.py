"""A lake moves from a disk to S3 and back: all of it, once, and never to two places."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from shlex import quote

import pytest
from support.live_lake import NAME
from support.moved_lakes import SCRATCH, Places, contents, copied, counted, full_lake, is_open, write

from kappa.control.lakes import inventory, moving
from kappa.control.lakes.relocations import relocated
from kappa.errors import KappaError, LakeMovedError, RefusedError, StaleWriterError, UsageError
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.record import savepoints
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger

#: Where a copy is killed, one after the other.
POINTS = (
    "lake.file@1",
    "lake.bulk",
    "lake.closed",
    "lake.ledgers",
    "lake.file@3",
    "lake.files",
    "lake.entry",
    "lake.opening",
    "lake.record",
)


# There and back


def test_a_lake_is_all_there_and_comes_back(lake: Places) -> None:
    before, hashed = contents(lake.config.lake), counted(lake.config.lake)
    assert not hashed.problems and any("hold what the ledger says" in line for line in hashed.read)
    answer = lake.copy()
    assert lake.open_ones() == [lake.target]
    assert f"KAPPA_LAKE={quote(lake.target)}" in answer and f"kappa start {NAME} --epoch 1 --execute" in answer
    assert counted(lake.target) == hashed
    moved = contents(lake.target)
    assert moved == contents(lake.config.lake)
    assert {name: moved[name] for name in before if not inventory.is_entry(name)}.items() <= before.items()
    assert not [name for name in inventory.sizes(lake.target) if name in SCRATCH or name.startswith(inventory.MARKS)]
    assert "sale" in {one.name for one in savepoints.every(lake.there, NAME)}
    savepoints.create(lake.there, NAME, "later", actor="ann")
    shutil.rmtree(f"{lake.config.lake}/_kappa/plans")
    lake.back.copy()
    assert lake.open_ones() == [lake.config.lake]
    assert {one.name for one in savepoints.every(lake.config, NAME)} == {"sale", "later"}
    assert (counted(lake.config.lake), contents(lake.config.lake)) == (hashed, contents(lake.target))


def test_no_file_of_a_lake_but_the_record_of_its_moves_has_its_address(disk: Places) -> None:
    disk.copy()
    address = disk.config.lake.encode()
    for name, content in contents(disk.target).items():
        if inventory.is_entry(name) and name.endswith(".json"):  # what an entry says of its writer names no file
            lines = [line for line in content.split(b"\n") if not line.startswith(b'{"commitInfo"')]
        else:
            lines = [content]
        assert not any(address in line for line in lines) or name.startswith("_kappa/epochs/part-"), name


def test_a_copy_that_is_killed_is_finished_by_the_same_command(lake: Places) -> None:
    hashed = counted(lake.config.lake)
    for point in POINTS:
        lake.die(point)
        assert is_open(lake.target) == (point == "lake.record"), point
        assert is_open(lake.config.lake) == (point in ("lake.file@1", "lake.bulk")), point
    lake.copy()
    assert lake.open_ones() == [lake.target]
    assert (counted(lake.target), contents(lake.target)) == (hashed, contents(lake.config.lake))
    assert "Nothing to do" in lake.kappa("lake", "copy", lake.target).stdout


@pytest.mark.parametrize("is_there_before", [False, True])
def test_half_a_record_is_not_a_lake(lake: Places, is_there_before: bool) -> None:
    if is_there_before:  # an older state is at the target, closed
        lake.copy()
        savepoints.create(lake.there, NAME, "later", actor="ann")
        lake = lake.back
    names = inventory.of_record(contents(lake.config.lake))
    while not is_open(lake.target):
        lake.die("lake.entry")
        assert lake.open_ones() in ([], [lake.target])
    there = contents(lake.target)
    assert set(names) <= there.keys() and any(name.startswith(inventory.MARKS) for name in there)
    lake.copy()
    assert lake.open_ones() == [lake.target]


def test_what_the_source_lost_since_is_removed_and_what_changed_is_copied(lake: Places) -> None:
    lake.die("lake.bulk")
    for name in ("_kappa/plans/gone.json", f"{NAME}/e0001/tables/rewards/_delta_log/{99:020}.json"):
        write(lake.target, name)
    write(lake.target, "_kappa/schemas/pos/1.json", b"[]")
    lake.copy()
    assert contents(lake.target) == contents(lake.config.lake)


# One lake


def test_a_lake_that_has_moved_is_closed_for_all(disk: Places) -> None:
    paths = EpochPaths(lake=disk.config.lake, topology=NAME, epoch=1)
    epochs, ledger = Epochs(disk.config.lake), Ledger(paths.ledger)
    claim = ledger.state().claim
    epochs.events()
    assert claim is not None
    disk.copy()
    with pytest.raises(LakeMovedError, match=f"has moved to {disk.target}.*KAPPA_LAKE={quote(disk.target)}"):
        epochs.add(NAME, 1, "start", actor="ann")
    with pytest.raises(StaleWriterError, match="claimed by the copy to"):
        ledger.append(replace(claim, kind="plan"))
    answer = disk.kappa("status", NAME)
    assert (answer.returncode, answer.stderr.split(":")[0]) == (1, "LakeMovedError")


def test_a_closed_lake_is_copied_nowhere_else(disk: Places, tmp_path: Path) -> None:
    disk.die("lake.closed")
    with pytest.raises(LakeMovedError, match="has moved to"):
        moving.copy(disk.config, str(tmp_path / "third"), actor="ann")


@pytest.mark.parametrize("is_killed", [False, True])
def test_rows_of_a_pending_backfill_are_copied_and_those_of_an_ended_one_are_not(
    disk: Places, *, is_killed: bool
) -> None:
    epochs, paths = Epochs(disk.config.lake), EpochPaths(lake=disk.config.lake, topology=NAME, epoch=1)
    for folder in ("b1", "b2"):
        Ledger(paths.recomputed(folder).ledger).create()
        detail = {"folder": folder, "from": "2026-01-01T00:00:00+00:00", "to": "2026-01-02T00:00:00+00:00"}
        epochs.change(NAME, lambda now, detail=detail: [now.event("backfill", 1, actor="ann", detail=detail)])
    second = epochs.record(NAME).epoch(1).backfills[1].n
    epochs.change(NAME, lambda now: [now.event("backfill_withdrawn", 1, actor="ann", detail={"backfill": second})])
    if is_killed:
        disk.die("lake.closed")
    copied(disk)
    there = EpochPaths(lake=disk.target, topology=NAME, epoch=1)
    assert Ledger(there.recomputed("b1").ledger).exists()
    assert not [name for name in inventory.sizes(disk.target) if "/recomputed/b2/" in name]


# Drivers


def test_drivers_may_run_while_files_are_copied_that_do_not_change(lake: Places) -> None:
    paths = EpochPaths(lake=lake.config.lake, topology=NAME, epoch=1)
    heartbeat.write(paths.heartbeat, beat := heartbeat.this_process("me", "code"))
    with pytest.raises(RefusedError, match=f"kappa stop {NAME} --epoch 1 --execute; then again: kappa lake copy"):
        moving.copy(lake.config, lake.target, actor="ann")
    assert lake.open_ones() == [lake.config.lake]
    files = {name for name in contents(lake.config.lake) if inventory.is_copied(name) and not inventory.is_entry(name)}
    assert {name for name in contents(lake.target) if not name.startswith(inventory.MARKS)} == files
    heartbeat.write(paths.heartbeat, replace(beat, state="stopped"))
    moving.copy(lake.config, lake.target, actor="ann")
    assert lake.open_ones() == [lake.target]


# Targets that are refused


def test_a_target_with_another_lake_is_refused(disk: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "second").mkdir()
    other = full_lake(tmp_path / "second", monkeypatch)
    before = contents(other.lake)
    with pytest.raises(RefusedError, match="holds another lake"):
        moving.copy(disk.config, other.lake, actor="ann")
    assert contents(other.lake) == before
    Places(config=other, target=disk.target).die("lake.file@1")
    with pytest.raises(RefusedError, match="is filled by a copy of another lake"):
        moving.copy(disk.config, disk.target, actor="ann")


def test_a_target_with_other_files_or_an_open_copy_is_refused(disk: Places) -> None:
    write(disk.target, "letters/1.txt")
    with pytest.raises(RefusedError, match=r"is not empty, and not a lake.*kappa lake copy <address>$"):
        moving.copy(disk.config, disk.target, actor="ann")
    shutil.rmtree(disk.target)
    shutil.copytree(disk.config.lake, disk.target)
    with pytest.raises(RefusedError, match="holds a copy of this lake that is open"):
        moving.copy(disk.config, disk.target, actor="ann")


def test_a_lake_is_not_copied_into_itself(disk: Places) -> None:
    lake = disk.config.lake
    folder = Path(lake).parent
    (folder / "link").symlink_to(lake)
    (folder / "way").symlink_to(f"{lake}/{NAME}")
    targets = (lake, f"{lake}/", f"{lake}/copy", str(folder), f"{lake}/../{Path(lake).name}", f"{folder}/link/copy")
    before = contents(lake)
    for target in (*targets, f"{folder}/way", f"{folder}/way/copy"):
        with pytest.raises(UsageError, match="is the lake"):
            moving.copy(disk.config, target, actor="ann")
    assert contents(lake) == before


def test_a_file_does_not_become_a_lake(disk: Places) -> None:
    file = Path(disk.config.lake).parent / "file"
    file.touch()
    for target in (str(file), f"{file}/other/lake"):
        with pytest.raises(UsageError, match=f"^{target} cannot be a folder, since {file} is a file"):
            moving.copy.planned(disk.config, target, actor="ann")


def test_a_lake_is_at_one_spelling_of_its_address(disk: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets KAPPA_LAKE to the short one is at the same lake."""
    (folder := Path(disk.target).parent / "work").mkdir()
    monkeypatch.chdir(folder)
    moving.copy(disk.config, "../new", actor="ann")
    assert is_open(str(folder.parent / "new"))
    moving.copy(replace(disk.config, lake=str(folder.parent / "new")), f"{disk.config.lake}/../newer", actor="ann")
    assert is_open(f"{Path(disk.config.lake).parent}/newer")


def test_a_lake_that_an_earlier_version_moved_to_a_long_spelling_is_open(disk: Places) -> None:
    long = f"{disk.target}/../{Path(disk.target).name}"
    copied(disk)
    there = Epochs(disk.target)
    rows = relocated(there.now(""), disk.config.lake, long, "ann", "")
    there.change("", lambda _: rows)
    assert is_open(disk.target)


def test_a_folder_without_a_lake_is_not_copied(disk: Places, tmp_path: Path) -> None:
    with pytest.raises(KappaError, match="has no topology on record"):
        moving.copy(replace(disk.config, lake=str(tmp_path / "nothing")), disk.target, actor="ann")
    assert not Path(disk.target).exists()
