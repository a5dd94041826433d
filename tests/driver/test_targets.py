"""Where Prometheus is told to look: at the drivers that should run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.live_lake import NAME, live_lake
from typer.testing import CliRunner

from kappa.cli import app
from kappa.config import Config
from kappa.driver.processes.targets import targets, write_targets
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs

THERE = [{"targets": ["10.0.0.7:9464"], "labels": {"topology": NAME, "epoch": "1", "owner": "team-a"}}]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return live_lake(tmp_path, monkeypatch)


def beat(config: Config, metrics: str) -> None:
    path = EpochPaths(lake=config.lake, topology=NAME, epoch=1).heartbeat
    heartbeat.write(path, replace(heartbeat.this_process("w", "code"), metrics=metrics, owner="team-a"))


def test_a_driver_that_should_run_is_a_target_also_when_it_died_and_a_stopped_one_is_none(config: Config) -> None:
    assert targets(config) == []
    beat(config, "")
    assert targets(config) == []
    beat(config, "10.0.0.7:9464")
    assert targets(config) == THERE
    Epochs(config.lake).add(NAME, 1, "stop", actor="test")
    assert targets(config) == []


def test_the_file_is_replaced_only_when_the_targets_changed(config: Config, tmp_path: Path) -> None:
    file = tmp_path / "new" / "targets.json"
    write_targets(config, file)
    assert json.loads(file.read_text()) == []
    beat(config, "10.0.0.7:9464")
    write_targets(config, file)
    assert json.loads(file.read_text()) == THERE
    before = file.stat().st_ino
    write_targets(config, file)
    assert file.stat().st_ino == before and [entry.name for entry in file.parent.iterdir()] == ["targets.json"]


def test_the_command_shows_the_endpoints_or_how_to_get_one(config: Config) -> None:
    def output(*words: str) -> str:
        result = CliRunner().invoke(app, ["metrics", *words], env=config.to_env())
        assert result.exit_code == 0, result.output
        return result.output

    assert "KAPPA_METRICS=0" in output()
    beat(config, "10.0.0.7:9464")
    assert "http://10.0.0.7:9464/metrics" in output()
    assert json.loads(output("--json")) == THERE
