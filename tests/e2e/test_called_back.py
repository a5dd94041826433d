"""Epochs that are called back while their driver is ending: its heartbeat is fresh, so no other driver is started."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.processes import is_running, rows

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from support.processes import Rig

pytestmark = pytest.mark.e2e

START_MS = 1_700_000_000_000


@pytest.fixture
def ending(machine: Rig) -> Rig:
    """Drivers that freeze while they end do not grow stale within a test: each is taken for one that runs."""
    machine.config = replace(machine.config, stale_seconds=600.0)
    return machine


def test_an_epoch_started_while_its_driver_ends_gets_a_driver(ending: Rig) -> None:
    ending.produce(rows(20))
    first = ending.start("ending:stop")
    ending.await_live(first)
    control.stop(ending.config, ending.name, actor="test", reason="test")
    frozen = ending.await_death(first)
    assert control.start(ending.config, ending.name, actor="test", reason="test") == first
    assert ending.beat(first).pid == frozen, "its heartbeat is fresh: no driver was started"
    os.kill(frozen, signal.SIGCONT)
    ending.wait(lambda: not is_running(frozen), "the driver ends")
    ending.wait(lambda: ending.status(first).is_running, "the epoch has a driver again")
    ending.produce(rows(12, first=100), start_ms=START_MS + 60_000)
    ending.settle(first)
    assert ending.prove({first: 1}) == 32


def test_an_epoch_recalled_while_its_retired_driver_ends_goes_live(ending: Rig) -> None:
    ending.produce(rows(20))
    first = ending.start("ending:stop")
    ending.await_live(first)
    ending.deploy(2)
    second = ending.plan_replay()
    ending.await_stage(second, Stage.VERIFIED)
    control.cut_over(ending.config, ending.name, second, actor="test", reason="test")
    ending.await_live(second)
    frozen = ending.await_death(first)
    assert control.rollback(ending.config, ending.name, actor="test", reason="test") == first
    assert ending.beat(first).pid == frozen, "its heartbeat is fresh: no driver was started"
    os.kill(frozen, signal.SIGCONT)
    ending.await_stage(first, Stage.CAUGHT_UP)
    control.cut_over(ending.config, ending.name, first, actor="test", reason="test")
    ending.await_live(first)
    ending.produce(rows(12, first=100), start_ms=START_MS + 60_000)
    ending.settle(first)
    assert ending.prove({first: 1, second: 2}) == 32
