"""A driver that does not end by itself is ended by its process id, and waited for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kappa.config import Config
from kappa.driver.context import Context
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


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *arguments])
    try:
        yield made
    finally:
        made.kill()
        made.wait()


def write_heartbeat(config: Config, pid: int) -> None:
    path = EpochPaths(lake=config.lake, topology=TOPOLOGY, epoch=1).heartbeat
    Path(path).parent.mkdir(parents=True)
    beat = replace(heartbeat.this_process("w", "feed"), pid=pid, started=heartbeat.process_start(pid))
    heartbeat.write(path, beat)


def test_a_process_that_is_no_driver_is_not_ended(config: Config) -> None:
    with process() as other:
        write_heartbeat(config, other.pid)
        with pytest.raises(KappaError, match=f"Process {other.pid}.*is not a driver and is not ended"):
            await_end(config, TOPOLOGY, 1)
        assert other.poll() is None


def test_a_driver_that_has_no_command_line_any_more_is_waited_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = threading.Event()
    looks: list[bool] = []

    def command_line(_: int) -> str:
        looks.append(killed.is_set())
        return "" if killed.is_set() else "run_epoch.py"

    def kill(pid: int, _: int) -> None:
        assert pid == driver.pid
        killed.set()

    def process_start(_: int) -> int:  # for some looks its memory is given back, then the process is gone
        return 0 if sum(looks) > 3 else started

    with process("run_epoch.py") as driver:
        write_heartbeat(config, driver.pid)
        started = heartbeat.process_start(driver.pid)
        monkeypatch.setattr(heartbeat, "_command_line", command_line)
        monkeypatch.setattr(heartbeat, "process_start", process_start)
        with monkeypatch.context() as patched:
            patched.setattr("kappa.driver.processes.process.os.kill", kill)
            await_end(config, TOPOLOGY, 1)
    assert looks == [False, True, True, True, True], "one signal, and it is waited for"


def test_a_driver_that_ends_by_itself_at_that_moment_is_counted(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process("run_epoch.py") as driver:
        write_heartbeat(config, driver.pid)

        def command_line(_: int) -> str:  # it is gone between the look and the signal
            driver.kill()
            driver.wait()
            return "run_epoch.py"

        monkeypatch.setattr(heartbeat, "_command_line", command_line)
        monkeypatch.setattr("kappa.driver.processes.process.wanted_drivers", lambda _: [(TOPOLOGY, 1)])
        assert host.end_local(config) == 1


@pytest.mark.parametrize("broken", ["sender", "ahead", "Spark", "broker"])
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
        slice_run=SimpleNamespace(take_ahead=lambda: SimpleNamespace(close=close("ahead"))),
        session=SimpleNamespace(stop=close("Spark")),
        broker=SimpleNamespace(close=close("broker")),
        is_spark_dead=lambda: False,
        _given_session=None,
    )
    with pytest.raises(OSError, match="No space left"):
        Context.close(own)
    assert closed == ["sender", "ahead", "Spark", "broker"]
