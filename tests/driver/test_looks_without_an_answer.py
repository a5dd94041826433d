"""Whoever starts, watches or ends drivers outlives a look at a heartbeat that the store does not answer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.live_lake import NAME, live_lake

from kappa import clock
from kappa.config import Config
from kappa.driver.processes import host, process
from kappa.driver.processes.process import DriverStatus
from kappa.errors import KappaError, LakeUnreachableError
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.record.ledger import Ledger

CLAIMANT = "elsewhere:1:0123abcd"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Settings of a lake with a live epoch whose driver is wanted."""
    return replace(live_lake(tmp_path, monkeypatch), stale_seconds=3.0, launcher="here")


@pytest.fixture
def paths(config: Config) -> EpochPaths:
    return EpochPaths(lake=config.lake, topology=NAME, epoch=1)


def answering(state: str, failures: int = 2) -> Callable[..., DriverStatus]:
    """Looks of which the first ones get no answer."""
    looks = iter(range(1_000))

    def look(_: Config, topology: str, epoch: int) -> DriverStatus:
        if next(looks) < failures:
            raise LakeUnreachableError("The store does not answer.")
        return DriverStatus(topology=topology, epoch=epoch, state=state)  # type: ignore[arg-type]

    return look


def write_foreign(path: str, number: int, **values: Any) -> None:
    """Write the heartbeat with this number of a driver on another host."""
    at = clock.now() + timedelta(seconds=number)
    first = heartbeat.this_process(CLAIMANT, "code")
    beat = replace(first, host="elsewhere", boot="another", monotonic=float(number), at=at, **values)
    heartbeat.write(path, beat)


def test_a_host_looks_again_and_starts_what_is_missing(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, started = threading.Event(), list[tuple[str, int]]()

    def ensure(_: Config, topology: str, epoch: int) -> None:
        started.append((topology, epoch))
        stopping.set()

    monkeypatch.setattr(host, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(process, "driver_status", answering("dead"))
    monkeypatch.setattr(process, "ensure_driver", ensure)
    host.host(config, stopping)
    assert started == [(NAME, 1)]


def test_an_end_is_waited_for(config: Config, paths: EpochPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    write_foreign(paths.heartbeat, 1, state="running")
    monkeypatch.setattr(process, "driver_status", answering("stopped"))
    process.await_end(config, NAME, 1)


@pytest.fixture
def too_late(config: Config, paths: EpochPaths, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A launch whose driver ends at once, since one of another host claims first; that one beats once it is set."""
    is_beating, is_over = threading.Event(), threading.Event()

    def beat() -> None:
        for number in range(1, 1_000):
            if is_over.wait(0.2):
                return
            if is_beating.is_set():
                write_foreign(paths.heartbeat, number)

    thread = threading.Thread(target=beat)

    def launch(*_: object, **__: object) -> int:
        ledger = Ledger(paths.ledger)
        ledger.claim(CLAIMANT, "code", ledger.state())
        thread.start()
        with subprocess.Popen([sys.executable, "-c", ""]) as ended:
            return ended.pid

    monkeypatch.setattr(process, "launch", launch)
    yield is_beating
    is_over.set()
    thread.join()


def test_a_driver_that_was_first_elsewhere_is_the_one_that_was_wanted(
    config: Config, too_late: threading.Event
) -> None:
    threading.Timer(0.7, too_late.set).start()
    status = process.ensure_driver(config, NAME, 1)
    assert status.is_running and status.host == "elsewhere"


def test_a_driver_that_was_first_elsewhere_and_never_beats_is_an_error(
    config: Config, too_late: threading.Event
) -> None:
    began = time.monotonic()
    with pytest.raises(KappaError, match="ended at once; see"):
        process.ensure_driver(config, NAME, 1)
    assert not too_late.is_set() and time.monotonic() - began > config.stale_seconds
