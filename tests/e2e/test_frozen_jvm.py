"""A JVM that is frozen while Python beats on: it is reported, and a cutover that waits for it is withdrawn."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support.processes import Rig, rig, rows

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e


def jvm_of(machine: Rig, epoch: int) -> psutil.Process:
    """The JVM of an epoch's driver."""
    (jvm,) = [child for child in psutil.Process(machine.beat(epoch).pid).children() if child.name() == "java"]
    return jvm


def test_a_frozen_jvm_is_reported_and_a_cutover_withdrawn_without_loss(
    tmp_path: Path, kafka: Broker, topic: TopicFactory
) -> None:
    limits = {"slow_minutes": 0.1, "stuck_minutes": 60.0, "handover_seconds": 2.0}
    with rig(tmp_path, kafka, topic(partitions=2), **limits) as machine:
        machine.produce(rows(40))
        first = machine.start_live()
        machine.deploy(2)
        second = machine.plan_replay()
        machine.await_stage(second, Stage.VERIFIED)
        machine.wait(lambda: machine.status(first).message == "live", "micro-batches come")
        frozen = jvm_of(machine, first)
        frozen.send_signal(signal.SIGSTOP)
        try:
            machine.wait(lambda: machine.status(first).state == "slow", "the frozen JVM is told")
            assert "has not ended" in machine.status(first).message
            assert "Thread MainThread" in machine.driver_log(first)
            control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
            machine.produce(rows(30, 40), start_ms=1_700_000_100_000)
            machine.wait(lambda: machine.record().handover is None, "the handover is withdrawn")
            assert (machine.record().live, machine.record().events[-1].event) == (first, "withdrawn")
        finally:
            frozen.send_signal(signal.SIGCONT)
        machine.settle(first)
        machine.wait(lambda: machine.status(first).state == "running", "it gets on")
        machine.prove({1: 1})
