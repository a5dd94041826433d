"""`kappa approve` and `kappa reject`: what they show, bind, and say of the next step."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.epoch_record import FIRST, SECOND, tell
from typer.testing import CliRunner

from kappa.cli import app, options
from kappa.config import Config
from kappa.errors import MoveRefusedError, UnknownEpochError
from kappa.offsets.vector import Offsets
from kappa.record import code
from kappa.record.epochs import Epochs
from kappa.replay.proof.verdict import DiffReport, TableDiff

REPORT = DiffReport(
    topology="a.b",
    live_epoch=1,
    live_seq=3,
    candidate_epoch=2,
    candidate_seq=3,
    at=Offsets({"pos": {0: 9}}),
    tables=(TableDiff(name="balances", rows_live=1, rows_candidate=2, keys_added=1),),
)
DETAILS = {
    "planned": {"plan_id": "p"},
    "verified": {"verdict": "differs", "report": REPORT.to_json()},
    "moved": {"from": None},
}

Run = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folder = tmp_path / "topologies"
    folder.mkdir()
    (folder / "ab.py").write_text("Topology(name='a.b', version='2', approvals=2)")
    words = {"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake"), "KAPPA_TOPOLOGIES": str(folder)}
    config = Config.from_env(words)
    tell(config, "a.b", 1, *FIRST, by_event=DETAILS)
    tell(config, "a.b", 2, *SECOND, by_event=DETAILS)
    return config


@pytest.fixture
def run(config: Config, monkeypatch: pytest.MonkeyPatch) -> Run:
    def invoke(*words: str, user: str = "ann", **environ: str) -> Any:
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name=user))
        return CliRunner().invoke(app, list(words), env={**config.to_env(), **environ})

    return invoke


def test_a_look_shows_the_difference_and_changes_nothing(run: Run, config: Config) -> None:
    result = run("approve", "a.b")
    assert result.exit_code == 0, result.output
    assert "Epoch 2 of a.b would replace epoch 1." in result.output and "table balances" in result.output
    assert "Would approve epoch 2 of a.b." in result.output
    assert "kappa approve a.b --execute" in result.output
    assert Epochs(config.lake).record("a.b").epoch(2).approvals == ()


def test_two_people_approve_and_each_is_told_what_is_missing(run: Run) -> None:
    first = run("approve", "a.b", "2", "--execute")
    assert "is approved by ann." in first.output and "1 more is needed" in first.output
    second = run("approve", "a.b", "2", "--execute", user="bob")
    assert "is approved by ann and bob." in second.output
    assert "kappa cutover a.b --execute" in second.output
    again = run("approve", "a.b", "2", user="eve")
    assert "Nothing to do: epoch 2 has your approval, or all that it needs." in again.output


def test_a_variable_of_the_environment_makes_nobody_a_second_person(run: Run, config: Config) -> None:
    names = ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER")
    for name in names:
        result = run("approve", "a.b", "2", "--execute", **{name: f"bob-by-{name}".lower()})
        assert "is approved by ann." in result.output and "1 more is needed" in result.output
    assert [event.actor for event in Epochs(config.lake).record("a.b").epoch(2).approvals] == ["ann"]


def test_a_user_without_a_name_is_known_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> Any:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setenv("LOGNAME", "bob")
    assert options.actor() == f"uid {os.getuid()}"


def test_where_only_logins_of_airflow_count_it_is_said_before_anything_is_written(run: Run, config: Config) -> None:
    for words in ([], ["--execute"]):
        refused = run("approve", "a.b", *words, KAPPA_LAUNCHER="elsewhere").exception
        assert isinstance(refused, MoveRefusedError)
        assert "Nothing was written. Answer in Airflow: DAG cutover__a.b" in str(refused)
    assert Epochs(config.lake).record("a.b").epoch(2).approvals == ()


@pytest.mark.parametrize("holder", [1, 2])
def test_another_folder_of_topologies_lifts_no_approval(config: Config, run: Run, tmp_path: Path, holder: int) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    stored = code.store(config.lake, config.topologies, "a.b")
    tell(config, "a.b", 1, "upgraded", by_event={}, code=stored if holder == 1 else "new", version="2", upgrade=1)
    if holder == 2:
        tell(config, "a.b", 2, "aborted", by_event={})
        tell(config, "a.b", 3, *SECOND, by_event=DETAILS, code=stored)
    epoch = "3" if holder == 2 else "2"
    for words in ([], ["--execute"]):
        refused = run("cutover", "a.b", *words, KAPPA_TOPOLOGIES=str(empty)).exception
        assert isinstance(refused, MoveRefusedError) and "--override REASON" in str(refused)
    assert json.loads(run("approve", "a.b", epoch, "--json", KAPPA_TOPOLOGIES=str(empty)).output)["missing"] == 2
    first = run("approve", "a.b", epoch, "--execute", KAPPA_TOPOLOGIES=str(empty))
    assert "1 more is needed" in first.output
    second = run("approve", "a.b", epoch, "--execute", user="bob", KAPPA_TOPOLOGIES=str(empty))
    assert "is approved by ann and bob." in second.output


def test_what_changed_since_it_was_shown_is_refused(run: Run, config: Config) -> None:
    look = json.loads(run("approve", "a.b", "--json").output)
    events = [{"topology": "a.b", "epoch": 2, "event": "approved"}]
    assert look == {
        "executed": False,
        "topology": "a.b",
        "epoch": 2,
        "shown": look["shown"],
        "approved_by": [],
        "missing": 2,
        "effects": [{"effect": "approve epoch 2 of a.b", "events": events}],
    }
    other = run("approve", "a.b", "--shown", "000000000000", "--execute")
    assert isinstance(other.exception, MoveRefusedError) and f"is {look['shown']} now" in str(other.exception)
    answer = json.loads(run("approve", "a.b", "--shown", look["shown"], "--execute", "--json").output)
    assert (answer["approved_by"], answer["missing"]) == (["ann"], 1)


def test_a_rejection_is_a_dry_run_first_and_says_how_to_take_it_back(run: Run, config: Config) -> None:
    assert "Would reject epoch 2 of a.b and stop its driver." in run("reject", "a.b", "2").output
    assert Epochs(config.lake).record("a.b").epoch(2).rejected is None
    result = run("reject", "a.b", "2", "--reason", "wrong sums", "--execute")
    assert "kept for 72 hours" in result.output and "kappa start a.b --epoch 2 --execute" in result.output
    rejected = Epochs(config.lake).record("a.b").epoch(2).rejected
    assert rejected is not None and (rejected.actor, rejected.reason) == ("ann", "wrong sums")
    assert isinstance(run("approve", "a.b").exception, UnknownEpochError)


def test_a_cutover_without_two_approvals_is_refused_in_a_dry_run_too(run: Run, config: Config) -> None:
    for words in ([], ["--execute"]):
        refused = run("cutover", "a.b", *words).exception
        assert isinstance(refused, MoveRefusedError) and "--override REASON" in str(refused)
    assert "Would hand over a.b" in run("cutover", "a.b", "--override", "fire").output
