"""A driver that freezes before it writes its baseline, and wakes up when its successor has written it and gone on."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.processes import rows

from kappa import control
from kappa.presence import heartbeat
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from support.processes import Rig

pytestmark = pytest.mark.e2e

START_MS = 1_700_000_000_000


def test_the_changelog_of_a_successor_survives_a_driver_frozen_in_its_baseline(machine: Rig) -> None:
    machine.config = replace(machine.config, stale_seconds=4.0)
    machine.produce(rows(40))
    first = machine.start_live()
    machine.deploy(2)
    second = machine.plan_replay("baseline.chunk")  # leaves records without a marker
    machine.await_death(second)
    machine.run(second, "baseline.begun:stop")
    frozen = machine.beat(second)
    machine.wait(lambda: not machine.status(second).is_running, "the heartbeat grows stale")
    assert heartbeat.is_process(frozen.pid, frozen.started), "it is frozen, not dead"
    machine.produce([("account-0", 7)], start_ms=START_MS + 60_000)
    machine.settle(first)
    machine.run(second)
    machine.await_stage(second, Stage.VERIFIED)
    machine.settle(second)
    before = machine.folded(second)
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    machine.await_live(second)
    os.kill(frozen.pid, signal.SIGCONT)
    machine.wait(lambda: not heartbeat.is_process(frozen.pid, frozen.started), "the woken driver stops")
    assert machine.folded(second) == before
    machine.produce(rows(12, first=100), start_ms=START_MS + 120_000)
    machine.settle(second)
    assert machine.prove({first: 1, second: 2}) == 53
