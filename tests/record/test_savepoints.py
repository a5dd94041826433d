"""Savepoints with a name: unique, of the live epoch, on record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from kappa.cli import app
from kappa.config import Config
from kappa.delta.append_log import AppendLog
from kappa.errors import SavepointError, UnknownTopologyError, UsageError
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record import savepoints
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow

NAME = "a.b"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def live(config: Config, epoch: int, *seqs: int) -> None:
    """An epoch that is live, with these commits."""
    for name in ("planned", "rewound", "seeded"):
        add(config, epoch, name)
    if epoch > 1:
        for name in ("replayed", "caught_up", "verified", "handover"):
            add(config, epoch, name)
    add(config, epoch, "moved")
    ledger = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=epoch).ledger)
    ledger.create()
    ledger.claim("w", "c", ledger.state())
    for seq in seqs:
        commit(ledger, seq)


def commit(ledger: Ledger, seq: int) -> None:
    ranges = (OffsetRange(topic="pos", partition=0, start=0, end=10 * seq),)
    ledger.append(
        LedgerRow(kind="commit", seq=seq, writer="w", at=AT, ranges=ranges, delta_versions={"tables/rewards": seq})
    )


def add(config: Config, epoch: int, name: str) -> None:
    event = Event(topology=NAME, epoch=epoch, event=name, at=AT, actor="test", detail={"code": "c"})
    Epochs(config.lake).change(event.topology, lambda _: [event])


@pytest.fixture
def config(tmp_path: Path) -> Config:
    settings = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake")})
    live(settings, 1, 0, 1, 2)
    return settings


def test_the_last_commit_of_the_live_epoch_gets_a_name(config: Config) -> None:
    savepoint = savepoints.create(config, NAME, "sale", actor="ada", reason="prices change")
    assert (savepoint.epoch, savepoint.seq, savepoint.offsets, savepoint.delta_versions) == (
        1,
        2,
        Offsets({"pos": {0: 20}}),
        {"tables/rewards": 2},
    )
    assert (savepoint.actor, savepoint.reason, savepoint.stage) == ("ada", "prices change", "live")
    assert savepoints.every(config) == savepoints.every(config, NAME) == [savepoint]


def test_an_earlier_commit_is_named_by_its_number(config: Config) -> None:
    assert savepoints.create(config, NAME, "first", seq=1, actor="ada").offsets == Offsets({"pos": {0: 10}})
    with pytest.raises(SavepointError, match="has no commit 3 whose files are kept; it has 3, from 0 to 2"):
        savepoints.create(config, NAME, "later", seq=3, actor="ada")


def test_a_commit_whose_files_are_given_up_while_it_is_named_loses_its_name(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger)
    append = AppendLog.append
    look = {"readable_from": 2, "savepoints": [], "merges": {}}

    def give_up(log: AppendLog, rows: Any) -> Any:
        monkeypatch.setattr(AppendLog, "append", append)
        ledger.append(LedgerRow(kind="maintain", seq=2, writer="w", at=AT, detail=look))
        return append(log, rows)

    ledger.state()
    monkeypatch.setattr(AppendLog, "append", give_up)
    with pytest.raises(SavepointError, match=r"given up .*\. Name the last commit: kappa savepoint create a\.b first "):
        savepoints.create(config, NAME, "first", seq=1, actor="ada")
    assert savepoints.every(config) == []
    assert savepoints.create(config, NAME, "first", actor="ada").seq == 2


def test_a_commit_whose_files_are_gone_gets_no_name(config: Config) -> None:
    detail = {"readable_from": 2, "savepoints": [0]}
    ledger = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger)
    ledger.append(LedgerRow(kind="maintain", seq=2, writer="w", at=AT, detail=detail))
    with pytest.raises(SavepointError, match="has no commit 1 whose files are kept; it has 2, from 0 to 2"):
        savepoints.create(config, NAME, "gone", seq=1, actor="ada")
    assert savepoints.create(config, NAME, "kept", seq=0, actor="ada").seq == 0


def test_a_name_is_unique_and_repeating_it_for_a_commit_changes_nothing(config: Config) -> None:
    savepoint = savepoints.create(config, NAME, "sale", actor="ada")
    assert savepoints.create(config, NAME, "sale", actor="bob") == savepoint
    with pytest.raises(SavepointError, match=r"'sale' already: seq 2 of epoch 1, named .* by ada"):
        savepoints.create(config, NAME, "sale", seq=1, actor="bob")
    commit(Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger), 3)
    with pytest.raises(SavepointError, match="already"):
        savepoints.create(config, NAME, "sale", actor="bob")
    assert [e.event for e in Epochs(config.lake).events()].count("savepoint") == 1


def test_a_dropped_name_is_free_again(config: Config) -> None:
    savepoints.create(config, NAME, "sale", seq=1, actor="ada")
    assert savepoints.drop(config, NAME, "sale", actor="bob").seq == 1
    with pytest.raises(SavepointError, match=r"no savepoint 'sale'; it has \[\]"):
        savepoints.drop(config, NAME, "sale", actor="bob")
    assert savepoints.create(config, NAME, "sale", actor="ada").seq == 2


def test_an_error_about_an_unknown_name_suggests_the_nearest(config: Config) -> None:
    savepoints.create(config, NAME, "sale", actor="ada")
    with pytest.raises(SavepointError, match="Did you mean 'sale'"):
        savepoints.drop(config, NAME, "sales", actor="bob")


@pytest.mark.parametrize("name", ["17", "2026-03-01", "a b", ""])
def test_a_name_that_could_mean_something_else_is_refused(config: Config, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        savepoints.create(config, NAME, name, actor="ada")


def test_a_topology_without_a_live_epoch_has_no_commit_to_name(config: Config) -> None:
    with pytest.raises(UnknownTopologyError, match="no live epoch"):
        savepoints.create(config, "other", "sale", actor="ada")


def test_after_a_cutover_the_savepoint_belongs_to_a_retired_epoch(config: Config) -> None:
    savepoints.create(config, NAME, "sale", actor="ada")
    live(config, 2, 0)
    assert [one.stage for one in savepoints.every(config, NAME)] == ["RETIRED"]
    with pytest.raises(SavepointError, match="seq 2 of epoch 1"):
        savepoints.create(config, NAME, "sale", actor="ada")


def invoke(config: Config, *words: str) -> Any:
    environment = {"KAPPA_HOME": config.home, "KAPPA_LAKE": config.lake}
    result = typer.testing.CliRunner().invoke(
        app, ["savepoint", *words], env={k: str(v) for k, v in environment.items()}
    )
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_create_and_drop_are_dry_runs_unless_executed(config: Config) -> None:
    assert "Would name seq 2 of live epoch 1 'sale'" in invoke(config, "create", NAME, "sale")
    shown = json.loads(invoke(config, "create", NAME, "sale", "--json"))
    assert (shown["executed"], shown["savepoint"]["seq"], len(shown["effects"])) == (False, 2, 1)
    assert savepoints.every(config) == []
    invoke(config, "create", NAME, "sale", "--execute", "--reason", "r")
    assert "kappa savepoint drop a.b sale --execute" in invoke(config, "drop", NAME, "sale")
    assert json.loads(invoke(config, "list", "--json"))[0]["name"] == "sale"
    assert "sale  1      live   2" in invoke(config, "list", NAME)
    invoke(config, "drop", NAME, "sale", "--execute")
    assert json.loads(invoke(config, "list", NAME, "--json")) == []


def test_a_dry_run_refuses_what_the_run_would_refuse(config: Config) -> None:
    savepoints.create(config, NAME, "sale", seq=1, actor="ada")
    with pytest.raises(SavepointError, match="already"):
        invoke(config, "create", NAME, "sale")
    with pytest.raises(SavepointError, match="no savepoint"):
        invoke(config, "drop", NAME, "none")
