"""``kappa drivers --check``: one look at every wanted driver, for a health check."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from support.epoch_record import FIRST, empty_plan, tell
from support.live_lake import NAME, live_lake
from typer.testing import CliRunner, Result

from kappa.cli import app
from kappa.config import Config
from kappa.driver.processes.host import host
from kappa.driver.processes.targets import targets
from kappa.errors import DriverNotRunningError
from kappa.names import EpochPaths, code_file
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import LedgerState


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
        (
            None,
            f"The driver of epoch 1 of '{NAME}' is not started yet: waiting for a host that starts it: kappa drivers.",
        ),
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


#: What a file may hold that is not a heartbeat.
STRANGE = [
    "",
    "{",
    "{}",
    "[]",
    "null",
    '"text"',
    '{"at": "yesterday"}',
    '{"format": "x", "at": "2026-01-01T00:00:00Z"}',
]


def put(config: Config, topology: str, text: str) -> str:
    path = EpochPaths(lake=config.lake, topology=topology, epoch=1).heartbeat
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return path


def second(config: Config) -> str:
    """Another live topology, whose driver runs."""
    plan = empty_plan("a.other", 1, Offsets({"pos": {0: 0}}))
    planned = {
        "plan_id": plan.id,
        "plan": plan.to_json(),
        "start": plan.start.to_json(),
        "version": "1",
        "code": "code",
    }
    tell(config, "a.other", 1, *FIRST, by_event={"planned": planned, "moved": {"from": None, "at": {}}})
    ledger = Ledger(EpochPaths(lake=config.lake, topology="a.other", epoch=1).ledger)
    ledger.create()
    ledger.claim("w", "code", LedgerState())
    path = put(config, "a.other", "")
    heartbeat.write(path, replace(heartbeat.this_process("w", "code"), metrics="10.0.0.7:9464"))
    return "a.other"


@pytest.mark.parametrize("text", STRANGE)
def test_a_file_that_is_not_a_heartbeat_counts_as_none(config: Config, text: str) -> None:
    put(config, NAME, text)
    assert "is not started yet" in str(check(config).exception)
    result = CliRunner().invoke(app, ["status", NAME], env=config.to_env())
    assert result.exit_code == 0 and "epoch 1" in result.output


@pytest.mark.parametrize("changes", [{"seq": "seven"}, {"at": "2026-01-01T00:00:00"}, {"monotonic": None}, {"pid": []}])
def test_a_heartbeat_with_a_field_of_another_kind_counts_as_none(config: Config, changes: dict[str, object]) -> None:
    beat(config)
    path = EpochPaths(lake=config.lake, topology=NAME, epoch=1).heartbeat
    assert heartbeat.read(path) is not None
    put(config, NAME, json.dumps({**json.loads(Path(path).read_text()), **changes}))
    assert heartbeat.read(path) is None or changes == {"monotonic": None}, "null reads as the default"


@pytest.mark.parametrize("text", STRANGE)
def test_a_running_driver_writes_its_heartbeat_anew(config: Config, text: str) -> None:
    path = put(config, NAME, "")
    beating = heartbeat.Beating(path, heartbeat.this_process("me", "code"), 60, lambda: True)
    put(config, NAME, text)
    beating.say(message="on")
    beating.close()
    after = heartbeat.read(path)
    assert after is not None and after.writer == "me"


def newer(config: Config) -> None:
    put(config, NAME, '{"format": 99}')


def closed(config: Config) -> None:
    """What the system refuses to read, whoever the user of the tests is."""
    Path(EpochPaths(lake=config.lake, topology=NAME, epoch=1).heartbeat).mkdir(parents=True)


@pytest.mark.parametrize(
    ("spoil", "reason"), [(newer, r": A heartbeat in .*format 99"), (closed, r".*Is a directory.*heartbeat\.json")]
)
def test_a_heartbeat_that_cannot_be_read_hides_no_other_driver(
    config: Config, spoil: Callable[[Config], None], reason: str
) -> None:
    other = second(config)
    spoil(config)
    message = str(check(config).exception)
    assert re.search(f"The driver of epoch 1 of '{NAME}' is not readable{reason}", message)
    assert other not in message
    assert [entry["labels"]["topology"] for entry in targets(config)] == [other]
    result = CliRunner().invoke(app, ["status"], env=config.to_env())
    assert result.exit_code == 0 and other in result.output and NAME in result.output, result.output


@pytest.mark.parametrize("spoil", [newer, closed])
def test_a_host_looks_after_the_others_beside_a_heartbeat_that_cannot_be_read(
    config: Config, spoil: Callable[[Config], None]
) -> None:
    """It starts what is missing: here a driver whose start fails, which the host counts and tries again."""
    other = second(config)
    spoil(config)
    Path(code_file(config.lake, "code")).mkdir(parents=True)
    put(config, other, "{}")
    stopping, looks = threading.Event(), []
    with structlog.testing.capture_logs() as lines:
        thread = threading.Thread(target=host, args=(config, stopping))
        thread.start()
        while len(looks := [line for line in lines if line["event"] == "starting"]) < 2:
            assert thread.is_alive(), lines
            stopping.wait(0.05)
        stopping.set()
        thread.join()
    assert {line["topology"] for line in looks} == {other}
    assert [line["topology"] for line in lines if line["event"] == "not looked after"] == [NAME]


def test_one_that_is_not_wanted_is_passed_over(config: Config) -> None:
    Epochs(config.lake).add(NAME, 1, "stop", actor="test")
    assert check(config).exit_code == 0
