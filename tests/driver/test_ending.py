"""A driver that does not end by itself is ended by its process id, and waited for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.programs import WAITS, waiting_program

from kappa.config import Config
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.processes import host
from kappa.driver.processes.process import await_end
from kappa.errors import KappaError
from kappa.names import EpochPaths
from kappa.presence import heartbeat

TOPOLOGY = "a.b"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folders = dict.fromkeys(("topologies", "home", "cache"), tmp_path)
    return Config(lake=str(tmp_path / "lake"), bootstrap_servers="", stale_seconds=0.1, **folders)


def write_heartbeat(config: Config, pid: int) -> None:
    path = EpochPaths(lake=config.lake, topology=TOPOLOGY, epoch=1).heartbeat
    Path(path).parent.mkdir(parents=True)
    beat = replace(heartbeat.this_process("w", "feed"), pid=pid, started=heartbeat.process_start(pid))
    heartbeat.write(path, beat)


def test_a_process_that_is_no_driver_is_not_ended(config: Config) -> None:
    with waiting_program("-c", WAITS) as other:
        write_heartbeat(config, other.pid)
        with pytest.raises(KappaError, match=f"Process {other.pid}.*is not a driver and is not ended"):
            await_end(config, TOPOLOGY, 1)
        assert other.poll() is None


def test_a_driver_whose_process_is_not_seen_from_here_is_named_and_not_waited_for(config: Config) -> None:
    patient = replace(config, stale_seconds=1.0)
    write_heartbeat(config, os.getppid())
    path = EpochPaths(lake=config.lake, topology=TOPOLOGY, epoch=1).heartbeat
    beat = heartbeat.read(path)
    assert beat is not None
    elsewhere = replace(beat, pids=beat.pids + 1)  # of a container that has this host's name
    beating = heartbeat.Beating(path, elsewhere, 0.05, lambda: True)
    try:
        with pytest.raises(KappaError, match=f"on {beat.host} does not end. End process {beat.pid} there"):
            await_end(patient, TOPOLOGY, 1)
    finally:
        beating.close()


def test_a_driver_that_has_no_command_line_any_more_is_waited_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    looks: list[bool] = []
    kill = os.kill

    def ends_slowly(pid: int, number: int) -> None:
        signals.append(number)
        kill(pid, number)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its memory is given back

    def process_start(_: int) -> int:  # for some looks it is still there, then the process is gone
        looks.append(bool(signals))
        return 0 if sum(looks) > 6 else started

    with waiting_program("-c", WAITS, "run_epoch.py") as driver:
        write_heartbeat(config, driver.pid)
        started = heartbeat.process_start(driver.pid)
        monkeypatch.setattr(heartbeat, "process_start", process_start)
        with monkeypatch.context() as patched:
            patched.setattr("kappa.driver.processes.process.os.kill", ends_slowly)
            await_end(config, TOPOLOGY, 1)
    assert signals == [signal.SIGKILL], "one signal"
    assert sum(looks) > 6, "and it is waited for"


def test_a_driver_that_ends_by_itself_at_that_moment_is_counted(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = os.kill
    with waiting_program("-c", WAITS, "run_epoch.py") as driver:
        write_heartbeat(config, driver.pid)

        def is_too_late(pid: int, number: int) -> None:  # it is gone between the look and the signal
            kill(pid, signal.SIGKILL)
            driver.wait()
            kill(pid, number)

        monkeypatch.setattr("kappa.driver.processes.process.os.kill", is_too_late)
        monkeypatch.setattr("kappa.driver.processes.process.wanted_drivers", lambda _: [(TOPOLOGY, 1)])
        assert host.end_local(config) == 1


@pytest.mark.parametrize("broken", ["sender", "Spark", "broker"])
def test_what_a_driver_has_open_is_closed_whatever_fails_to(broken: str) -> None:
    closed = []

    def close(what: str) -> Callable[[], None]:
        def done() -> None:
            closed.append(what)
            if what == broken:
                raise OSError(28, "No space left on device")

        return done

    own: Any = SimpleNamespace(
        spend_sender=close("sender"),
        opened_session=SimpleNamespace(stop=close("Spark")),
        opened_broker=SimpleNamespace(close=close("broker")),
        is_spark_dead=lambda: False,
        _given_session=None,
    )
    with pytest.raises(OSError, match="No space left"):
        LazyEngines.close(own)
    assert closed == ["sender", "Spark", "broker"]
