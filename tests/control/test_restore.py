"""The way back after commits of another program is on record, whenever its process dies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.live_lake import NAME, live_lake, open_run

from kappa import clock
from kappa.config import Config
from kappa.control.restore import restore
from kappa.delta import commits
from kappa.errors import RefusedError
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger_rows import LedgerRow

PLACES = ("changes/rewards", "dead_letters")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A lake in which another program deleted rows of one table, and wrote one into another."""
    config = live_lake(tmp_path, monkeypatch)
    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    DeltaTable(paths.place(PLACES[0])).delete("CustomerCardNo = 'c1'")
    letter = {"_seq": 1, "topic": "pos", "partition": 0, "offset": 1, "reason": "none"}
    letters = DeltaTable(paths.place(PLACES[1]))
    rows = pa.Table.from_pylist([letter], pa.schema(letters.schema().to_arrow()))
    write_deltalake(letters, rows, mode="append")
    return config


def restored(config: Config) -> list[Event]:
    return [event for event in Epochs(config.lake).record(NAME).events if event.event == "restored"]


def test_a_way_back_that_died_before_its_event_is_put_on_record_by_the_next_call(config: Config) -> None:
    effects = restore.planned(config, NAME, actor="ada", reason="back").effects
    for effect in effects[:-1]:
        effect.make()
    assert restored(config) == []
    (effect,) = restore.planned(config, NAME, actor="ada", reason="back").effects
    assert effect.what == f"put on record that commits of other programs in epoch 1 of {NAME} were undone"
    versions = restore(config, NAME, actor="ada", reason="back").versions
    (event,) = restored(config)
    assert event.detail["made"] == versions and sorted(event.detail["undone"]) == sorted(PLACES)
    assert restore.planned(config, NAME, actor="ada", reason="back").effects == ()
    effect.make()
    assert len(restored(config)) == 1


def test_a_way_back_that_died_between_two_tables_is_put_on_record_once(config: Config) -> None:
    path = EpochPaths(lake=config.lake, topology=NAME, epoch=1).place(PLACES[0])
    since = DeltaTable(path).version() - 1
    version = commits.undo(path, since, list(commits.commits_after(path, since)))
    restore(config, NAME, actor="ada", reason="back")
    (event,) = restored(config)
    assert event.detail["made"][PLACES[0]] == version
    assert sorted(event.detail["made"]) == sorted(event.detail["undone"]) == sorted(PLACES)


def test_a_driver_of_another_host_is_seen_to_run(config: Config) -> None:
    """A first look at its heartbeat tells nothing."""
    path = EpochPaths(lake=config.lake, topology=NAME, epoch=1).heartbeat
    beat = replace(heartbeat.this_process("me", "code"), host="another", boot="another")
    beating = heartbeat.Beating(path, beat, 0.02, lambda: True)
    try:
        with pytest.raises(RefusedError, match=rf"epoch 1 .* is running: .*: kappa stop {NAME} --epoch 1 --execute$"):
            restore(config, NAME, actor="ada", reason="back")
    finally:
        beating.close()
    assert restored(config) == []


def test_a_way_back_is_not_an_attempt_at_the_slice_that_is_open(config: Config) -> None:
    ledger = open_run(config).ledger
    ledger.append(LedgerRow(kind="plan", seq=ledger.state().seq + 1, writer="me", at=clock.now()))
    assert restore(config, NAME, actor="ada", reason="back").versions
    claim = ledger.state().claim
    assert claim is not None and "restore" in claim.writer and ledger.state().tries == 0
