"""``kappa drivers`` says in the lake which environments its host has, as long as it runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.live_lake import NAME, live_lake

from kappa import control
from kappa.config import Config
from kappa.driver.processes import host, process
from kappa.environments import interpreters, launchers
from kappa.environments.launchers import Launcher
from kappa.names import launcher_file


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A lake, in a process that looks often and starts no driver."""
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(host, "ANNOUNCE_SECONDS", 0.02)
    monkeypatch.setattr(process, "ensure_driver", lambda *_: None)
    return live_lake(tmp_path, monkeypatch)


@contextmanager
def running(config: Config) -> Iterator[None]:
    """A ``kappa drivers``, as a thread."""
    stopping = threading.Event()
    thread = threading.Thread(target=host.host, args=(config, stopping))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def hosts(config: Config) -> tuple[Launcher, ...]:
    """All hosts, once there are some."""
    deadline = time.monotonic() + 60
    while not (present := launchers.read(config.lake)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return present


def age(path: str, hours: float) -> None:
    """Make a file older."""
    written = time.time() - hours * 3600
    os.utime(path, (written, written))


def test_a_host_says_what_it_has_while_it_runs(config: Config) -> None:
    with running(config):
        (one,) = hosts(config)
    assert one.own == interpreters.own(config).environment.id
    assert one.own in one.environments
    assert launchers.read(config.lake) == ()


def test_a_host_says_so_also_while_no_driver_is_wanted_and_again_once_its_file_is_gone(config: Config) -> None:
    control.stop(config, NAME, actor="ada", reason="rest")
    assert process.wanted_drivers(config) == []
    with running(config):
        (one,) = hosts(config)
        Path(launcher_file(config.lake, one.host)).unlink()
        assert hosts(config) == (one,)


def test_of_two_processes_on_one_host_the_first_leaves_the_file_of_the_second(config: Config) -> None:
    first, second = (launchers.this_host(config, writer) for writer in ("first", "second"))
    launchers.write(config, first)
    launchers.write(config, second)
    launchers.withdraw(config, first)
    assert launchers.read(config.lake) == (second,)
    launchers.withdraw(config, second)
    assert launchers.read(config.lake) == ()


def test_a_host_that_was_cut_off_decides_for_an_hour(config: Config) -> None:
    here = launchers.this_host(config)
    gone = replace(here, host="gone", environments=("old",))
    launchers.write(config, gone)
    file = launcher_file(config.lake, "gone")
    age(file, 0.9)
    assert launchers.read(config.lake) == (gone,)
    age(file, 1.1)
    assert launchers.read(config.lake) == ()
    launchers.write(config, here)
    assert not Path(file).exists()
    assert launchers.read(config.lake) == (here,)
