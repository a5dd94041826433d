"""A name that no topology has is an error of each command, with the nearest name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.epoch_record import FIRST, SECOND, tell
from typer.testing import CliRunner

from kappa.cli import app
from kappa.config import Config
from kappa.errors import UnknownEpochError, UnknownTopologyError

Run = Callable[..., Any]
COMMANDS = {
    "status": (),
    "history": (),
    "dead-letters": (),
    "cutover": (),
    "rollback": (),
    "approve": (),
    "reject": ("1",),
    "abort": ("1",),
    "retire": ("1",),
    "stop": (),
    "restore": (),
    "lag": (),
    "set-aside": ("--offset", "1"),
    "savepoint list": (),
    "savepoint create": ("name",),
    "savepoint drop": ("name",),
    "backfill": ("--from", "2026-03-01T00:00:00Z", "--to", "2026-03-02T00:00:00Z"),
    "tables": (),
    "profile": (),
    "certify": (),
    "diff": (),
    "path": ("out",),
    "upgrade": (),
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Commands in a lake with one topology on record, beside another one that is deployed."""
    folder = tmp_path / "topologies"
    folder.mkdir()
    (folder / "revenue.py").write_text("Topology(name='retail.revenue', version='1')")
    words = {"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake"), "KAPPA_TOPOLOGIES": str(folder)}
    config = Config.from_env(words)
    details = {
        "planned": {"plan_id": "p"},
        "verified": {"verdict": "same", "report": '{"at": {}}'},
        "moved": {"from": None, "at": {"pos": {"0": 0}}},
    }
    tell(config, "retail.loyalty", 1, *FIRST, by_event=details)
    tell(config, "retail.loyalty", 2, *SECOND, "rejected", by_event=details, actor="ann")
    return lambda *words: CliRunner().invoke(app, list(words), env=config.to_env())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Retail.Loyalty", "Did you mean 'retail.loyalty'?"),
        ("retail.revenu", "Did you mean 'retail.revenue'?"),
        ("../../etc", "kappa topologies"),
    ],
)
def test_a_name_of_nothing_is_refused(run: Run, command: str, name: str, hint: str) -> None:
    error = run(*command.split(), name, *COMMANDS[command]).exception
    assert isinstance(error, UnknownTopologyError) and hint in str(error), error


def test_a_topology_that_is_deployed_or_on_record_has_an_answer(run: Run) -> None:
    assert "No epoch on record. Start one: kappa start retail.revenue" in run("status", "retail.revenue").output
    assert "Nothing on record." in run("history", "retail.revenue").output
    assert "planned" in run("history", "retail.loyalty", "--epoch", "2").output


def test_the_history_of_an_epoch_that_is_not_there_is_refused(run: Run) -> None:
    error = run("history", "retail.loyalty", "--epoch", "99").exception
    assert isinstance(error, UnknownEpochError) and "it has [1, 2]" in str(error)


@pytest.mark.parametrize("command", ["cutover", "approve"])
def test_a_rejected_epoch_is_named_where_none_is_being_built(run: Run, command: str) -> None:
    error = run(command, "retail.loyalty").exception
    assert isinstance(error, UnknownEpochError)
    assert "epoch 2 was rejected by ann" in str(error)
    assert str(error).endswith("kappa start retail.loyalty --epoch 2 --execute")


def test_the_first_epoch_is_stopped_by_default_while_it_is_built(run: Run, tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake")})
    tell(config, "retail.revenue", 1, "planned", "rewound", by_event={})
    assert "Would stop the driver of epoch 1 of retail.revenue." in run("stop", "retail.revenue").output
