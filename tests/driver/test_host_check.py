"""``kappa drivers --check``: one look at every wanted driver, for a health check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.live_lake import NAME, live_lake
from typer.testing import CliRunner, Result

from kappa.cli import app
from kappa.config import Config
from kappa.errors import DriverNotRunningError
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return live_lake(tmp_path, monkeypatch)


def beat(config: Config, **fields: object) -> None:
    path = EpochPaths(lake=config.lake, topology=NAME, epoch=1).heartbeat
    heartbeat.write(path, replace(heartbeat.this_process("w", "code"), **fields))  # type: ignore[arg-type]


def check(config: Config) -> Result:
    return CliRunner().invoke(app, ["drivers", "--check"], env=config.to_env())


@pytest.mark.parametrize("state", ["running", "slow"])
def test_drivers_that_get_on_are_well(config: Config, state: str) -> None:
    beat(config, state=state)
    result = check(config)
    assert (result.exit_code, result.output.strip()) == (0, "Each wanted driver runs.")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (None, f"The driver of epoch 1 of '{NAME}' is not started yet. Look at it: kappa status {NAME}"),
        ({"state": "stopped"}, "is stopped"),
        ({"pid": 2**22 + 1, "message": "effects of slice 7"}, "is dead: effects of slice 7. Look at it"),
        ({"state": "stuck", "message": "stuck: 'send' has not ended for 20 min"}, "is stuck: stuck: 'send'"),
    ],
)
def test_one_that_does_not_run_or_is_stuck_is_named(
    config: Config, fields: dict[str, object] | None, message: str
) -> None:
    if fields is not None:
        beat(config, **fields)
    result = check(config)
    assert isinstance(result.exception, DriverNotRunningError) and result.exit_code
    assert message in str(result.exception)


def test_one_that_is_not_wanted_is_passed_over(config: Config) -> None:
    Epochs(config.lake).add(NAME, 1, "stop", actor="test")
    assert check(config).exit_code == 0
