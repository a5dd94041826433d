"""Moves to an epoch whose environment is not on this host: decided on the record alone, no broker, no JVM."""

from __future__ import annotations

import json
import shlex
import sys
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import epoch_record
from support.epoch_record import CODE, FIRST, SECOND, empty_lake, empty_plan, store_code
from typer.testing import CliRunner

from kappa import clock, control
from kappa.cli import app
from kappa.config import Config
from kappa.control.environments import backfill_findings
from kappa.driver.processes import launches
from kappa.environments import files, interpreters, launchers
from kappa.environments.environment import Environment
from kappa.errors import KappaError, MoveRefusedError
from kappa.names import EpochPaths, launcher_file
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.topology.masking import fingerprint

NAME = "a.moved"
BACK = {"actor": "ada", "reason": "back"}


def tell(config: Config, epoch: int, *names: Any, **detail: Any) -> None:
    """Put events on record."""
    plan = empty_plan(NAME, epoch, Offsets({"pos": {0: 0}}))
    by_event = {
        "planned": {"plan_id": plan.id, "start": plan.start.to_json(), "plan": plan.to_json()},
        "verified": {"verdict": "same"},
        "moved": {"from": epoch - 1 or None, "at": {"pos": {"0": 9}}},
    }
    epoch_record.tell(config, NAME, epoch, *names, by_event=by_event, **{"code": CODE, **detail})


def claim(config: Config, epoch: int, environment: Environment) -> None:
    """Leave what a driver leaves that ran in an environment."""
    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=epoch)
    files.store(paths, environment)
    ledger = Ledger(paths.ledger)
    ledger.create()
    ledger.claim("driver", CODE, ledger.state(), environment={"environment": environment.id})


@pytest.fixture
def present(config: Config) -> Environment:
    """The environment of this process."""
    return interpreters.own(config).environment


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A topology whose epoch 2 is live and whose epoch 1 is retired; drivers are started on this host."""
    config = replace(empty_lake(tmp_path, monkeypatch), launcher="here", environments=f"{tmp_path}/*/bin/python")
    store_code(config)
    tell(config, 1, *FIRST)
    tell(config, 2, *SECOND, "moved")
    return config


@pytest.fixture
def earlier(config: Config, present: Environment) -> Environment:
    """The environment in which epoch 1 ran: of another library, and an earlier Kappa."""
    of_epoch = {**present.distributions, "pricing": "1.0", "kappa-replay": "0.0.9"}
    of_epoch.pop("numpy")
    environment = replace(present, distributions=of_epoch)
    claim(config, 1, environment)
    return environment


def events(config: Config) -> list[Event]:
    return list(Epochs(config.lake).record(NAME).events)


def test_a_rollback_into_a_missing_environment_names_what_differs_and_changes_nothing(
    config: Config, earlier: Environment, present: Environment
) -> None:
    before = events(config)
    with pytest.raises(MoveRefusedError) as error:
        control.rollback(config, NAME, **BACK)
    assert events(config) == before
    text = str(error.value)
    assert text.startswith(f"Epoch 1 of {NAME!r} ran in environment {earlier.id[:12]} (")
    assert f"numpy was {present.distributions['numpy']}, and is missing now" not in text, "it is here"
    assert f"numpy was not there, and is {present.distributions['numpy']} now" in text
    assert "pricing was 1.0, and is missing now" in text
    assert text.endswith(f": kappa rollback {NAME} --to 1 --reason back --in-this-environment --execute")
    assert {one["name"] for one in error.value.data["differences"]} == {"numpy", "pricing"}, "Kappa's own is stored"


@pytest.mark.parametrize("key", ["", "the key after the rotation"])
def test_a_rollback_under_another_mask_key_changes_nothing(config: Config, present: Environment, key: str) -> None:
    claim(config, 1, present)
    ledger, own = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger), "the key before the rotation"
    detail = {"mask": fingerprint(own)}
    ledger.append(LedgerRow(kind="commit", seq=0, writer="driver", at=clock.now(), detail=detail))
    before = events(config)
    with pytest.raises(MoveRefusedError, match=f"under the key with fingerprint {fingerprint(own)}") as error:
        control.rollback(replace(config, mask_key=key), NAME, **BACK)
    assert events(config) == before
    assert str(error.value).endswith(f": kappa replay {NAME} --allow mask-key-changed --execute")
    elsewhere = replace(config, launcher="elsewhere")
    assert [effect.what for effect in control.rollback.planned(replace(elsewhere, mask_key=own), NAME, **BACK).effects]
    assert control.rollback.planned(replace(elsewhere, mask_key=""), NAME, **BACK).effects


def test_the_decision_is_on_record_and_makes_this_environment_the_epochs_own(
    config: Config, earlier: Environment, present: Environment
) -> None:
    act = control.rollback.planned(config, NAME, in_this_environment=True, **BACK)
    act.effects[0].make()
    last = events(config)[-1]
    assert (last.event, last.detail) == ("recalled", {"live": 2, "in_environment": present.id})
    record = Epochs(config.lake).record(NAME)
    row = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger).state().claim
    assert row is not None and row.own_environment == earlier.id
    assert launches.own_environment(record, 1, row) == present.id
    assert launches.own_environment(record, 2, None) == ""
    assert control.missing_environment(config, record, 1) is None


def test_an_environment_that_an_interpreter_has_needs_no_decision(
    config: Config, tmp_path: Path, earlier: Environment
) -> None:
    venv.create(tmp_path / "mine", symlinks=True, with_pip=False)
    (other,) = interpreters.others(config)
    claim(config, 2, other.environment)
    record = Epochs(config.lake).record(NAME)
    assert control.missing_environment(config, record, 2) is None
    assert launches.python(config, other.environment.id) == str(tmp_path / "mine" / "bin" / "python")


def test_hosts_elsewhere_say_what_they_have(config: Config, earlier: Environment, present: Environment) -> None:
    config, record = replace(config, launcher="elsewhere"), Epochs(config.lake).record(NAME)
    assert control.missing_environment(config, record, 1) is None, "nobody says what is installed there"
    host = launchers.this_host(config)
    launchers.write(config, host)
    missing = control.missing_environment(config, record, 1)
    assert missing is not None and (missing.here, missing.environment) == (present.id, earlier.id)
    assert missing.differences is not None and "pricing" in {one.name for one in missing.differences}

    other = replace(host, host="another", environments=(earlier.id,))
    launchers.write(config, other)
    assert control.missing_environment(config, record, 1) is None
    launchers.withdraw(config, other)
    (recall, *_) = control.rollback.planned(config, NAME, in_this_environment=True, **BACK).effects
    assert recall.what.endswith(f", in environment {present.id[:12]} from then on")
    assert launchers.read(config.lake) == (host,)


@pytest.mark.parametrize("content", ['{"format": 1, "ho', '{"format": 99, "host": "new"}'])
def test_a_file_of_a_host_that_cannot_be_read_is_passed_over(
    config: Config, earlier: Environment, present: Environment, content: str
) -> None:
    config = replace(config, launcher="elsewhere")
    host = launchers.this_host(config)
    launchers.write(config, host)
    Path(launcher_file(config.lake, "torn")).write_text(content)
    assert launchers.read(config.lake) == (host,)
    act = control.rollback.planned(config, NAME, in_this_environment=True, **BACK)
    assert act.effects[0].what.endswith(f", in environment {present.id[:12]} from then on")


def test_the_decision_counts_also_where_the_look_fails(
    config: Config, earlier: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Path(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger)
    for file in (ledger / "_delta_log").iterdir():
        file.write_text("{")
    with pytest.raises(KappaError):
        control.rollback.planned(config, NAME, **BACK)
    act = control.rollback.planned(config, NAME, in_this_environment=True, **BACK)
    act.effects[0].make()
    assert events(config)[-1].event == "recalled"
    assert caplog.messages[0].startswith(f"The environment of epoch 1 of {NAME} was not looked up: ")


def test_an_epoch_of_earlier_code_needs_no_decision(config: Config) -> None:
    assert control.missing_environment(config, Epochs(config.lake).record(NAME), 1) is None
    control.rollback.planned(config, NAME, **BACK)


def test_an_environment_that_the_lake_does_not_hold_is_refused_all_the_same(
    config: Config, earlier: Environment
) -> None:
    Path(EpochPaths(lake=config.lake, topology=NAME, epoch=1).environment(earlier.id)).unlink()
    with pytest.raises(MoveRefusedError, match="the lake does not say what was installed"):
        control.rollback(config, NAME, **BACK)


def test_a_cutover_to_an_epoch_without_a_driver_asks_for_the_same_decision(
    config: Config, earlier: Environment, present: Environment
) -> None:
    tell(config, 3, *SECOND)
    claim(config, 3, earlier)
    with pytest.raises(MoveRefusedError) as error:
        control.cut_over.planned(config, NAME, 3, actor="ada", reason="to 2.0; rm", keep_old_running=True)
    assert str(error.value).endswith(
        f": kappa cutover {NAME} --epoch 3 --keep-old-running --reason 'to 2.0; rm' --in-this-environment --execute"
    )
    act = control.cut_over.planned(config, NAME, 3, in_this_environment=True, **BACK)
    act.effects[0].make()
    handover = next(event for event in events(config) if event.event == "handover")
    assert handover.detail["in_environment"] == present.id


def test_the_command_of_the_refusal_goes_to_the_epoch_that_was_refused(
    config: Config, earlier: Environment, present: Environment
) -> None:
    tell(config, 3, *SECOND, "moved")
    with pytest.raises(MoveRefusedError) as error:
        control.rollback.planned(config, NAME, to=1, **BACK)
    command = shlex.split(str(error.value).rpartition(": kappa ")[2])
    result = CliRunner().invoke(app, [word for word in command if word != "--execute"], env=config.to_env())
    assert result.exit_code == 0, result.output
    assert f"bring back epoch 1 of {NAME}" in " ".join(result.output.split())


def test_a_start_may_make_this_environment_the_epochs_own(
    config: Config, earlier: Environment, present: Environment
) -> None:
    claim(config, 2, earlier)
    act = control.start.planned(config, NAME, in_this_environment=True, **BACK)
    act.effects[0].make()
    last = events(config)[-1]
    assert (last.event, last.epoch, last.detail) == ("start", 2, {"in_environment": present.id})
    record = Epochs(config.lake).record(NAME)
    assert launches.own_environment(record, 2, None) == present.id
    (start,) = control.start.planned(config, NAME, in_this_environment=True, **BACK).effects
    assert start.what == f"start the driver of epoch 2 of {NAME}", "it is on record"


def test_a_backfill_with_other_libraries_than_the_driver_is_named(
    config: Config, earlier: Environment, present: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Epochs(config.lake).record(NAME)
    (finding,) = backfill_findings(config, record, 1)
    assert (finding.code, finding.numbers) == ("backfill-other-environment", {"epoch": 1, "environment": earlier.id})
    assert "not in that of live epoch 1: pricing was 1.0, and is missing now; numpy was not there" in finding.message
    claim(config, 2, present)
    assert backfill_findings(config, record, 2) == []
    (Path(config.home) / "vendor" / "more-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, f"{config.home}/vendor"])
    assert backfill_findings(config, record, 2) == [], "a library added a folder to the path of this process"


def test_the_command_gives_all_differences_as_json(
    config: Config, earlier: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(app, ["rollback", NAME, "--json"], env=config.to_env())
    assert isinstance(result.exception, MoveRefusedError)
    assert json.loads(json.dumps(result.exception.data))["environment"] == earlier.id


def test_a_driver_that_runs_needs_nothing(config: Config, earlier: Environment) -> None:
    path = EpochPaths(lake=config.lake, topology=NAME, epoch=1).heartbeat
    heartbeat.write(path, heartbeat.this_process("driver", CODE))
    assert control.missing_environment(config, Epochs(config.lake).record(NAME), 1) is None
    heartbeat.write(path, replace(heartbeat.this_process("driver", CODE), state="stopped"))
    assert control.missing_environment(config, Epochs(config.lake).record(NAME), 1) is not None
