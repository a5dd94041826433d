"""``kappa drivers``: a host that keeps wanted drivers running, and ends them when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.epochs import DEADLINE_SECONDS
from support.processes import Rig, rows

from kappa import control

pytestmark = pytest.mark.e2e

Hosts = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def host(machine: Rig) -> Iterator[Hosts]:
    """Starts hosts for the drivers of a lake; those that are left are ended."""
    machine.config = replace(machine.config, launcher="elsewhere", stale_seconds=4.0)
    hosts: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        environ = {**os.environ, **machine.config.to_env()}
        targets = machine.config.home / f"targets-{len(hosts)}.json"
        words = [sys.executable, "-m", "kappa", "drivers", "--targets", str(targets)]
        hosts.append(subprocess.Popen(words, env=environ, stdin=subprocess.DEVNULL))
        machine.wait(targets.exists, "the host has looked once")
        return hosts[-1]

    yield start
    for process in hosts:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_SECONDS) == 0


def test_a_host_restarts_wanted_drivers_and_ends_them_with_itself(machine: Rig, host: Hosts) -> None:
    machine.produce(rows(12))
    epoch = control.start(machine.config, machine.name, actor="test", reason="wanted, and started elsewhere")
    assert machine.status(epoch).state == "never"
    killed = host()
    machine.await_live(epoch)
    machine.settle(epoch)
    dead = machine.beat(epoch).pid
    os.kill(dead, signal.SIGKILL)
    machine.produce(rows(12, first=12), start_ms=1_700_000_060_000)
    machine.settle(epoch)
    survivor = machine.beat(epoch).pid
    assert survivor != dead

    killed.kill()
    killed.wait()
    machine.produce(rows(12, first=24), start_ms=1_700_000_120_000)
    machine.settle(epoch)
    last = host()
    end(last)
    assert machine.beat(epoch).pid == survivor, "the next host takes the driver that is there for its own"
    assert machine.is_dead(epoch)
    assert machine.status(epoch).state == "stopped"
    assert control.wanted_drivers(machine.config) == [(machine.name, epoch)], "it is still wanted"
    assert machine.prove({epoch: 1}) == 36
