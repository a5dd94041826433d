"""Epochs removed beside a live stream, by commands that die on the way: the stream keeps all that it has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.deaths import run_to_death
from support.processes import Rig, rig, rows

from kappa import control, faults
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e

POINTS = ("removal.record", "removal.topics", "removal.broker", "removal.folder")


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[Rig]:
    with rig(tmp_path / "rig", kafka, topic(partitions=2), handover_seconds=600.0) as machine:
        yield machine


def killed(machine: Rig, point: str, *words: str) -> None:
    """Run a command that is to die at a point."""
    environ = {**os.environ, **machine.config.to_env(), faults.HOME: str(machine.config.home)}
    run_to_death("-m", "kappa", *words, point=point, environ=environ)
    assert (mark := faults.marks(machine.config.home)[-1])["point"] == point and words[0] in mark["argv"]


def is_gone(machine: Rig, kafka: Broker, epoch: int) -> bool:
    paths = machine.paths(epoch)
    return not (kafka.topics(f"{paths.name}.") or kafka.groups(paths.name) or Path(paths.root).exists())


def test_commands_killed_while_removing_an_epoch_take_nothing_from_the_live_one(machine: Rig, kafka: Broker) -> None:
    machine.produce(rows(60))
    first = machine.start()
    machine.await_live(first)
    with machine.feeding():
        machine.deploy(2)
        given_up = machine.plan_replay()
        machine.await_stage(given_up, Stage.VERIFIED)
        words = ("abort", machine.name, str(given_up), "--reason", "test", "--execute")
        for point in POINTS:
            killed(machine, point, *words)
            assert machine.record().epoch(given_up).stage is Stage.ABORTED
        control.abort(machine.config, machine.name, given_up, actor="test", reason="again")
        assert is_gone(machine, kafka, given_up)

        second = machine.plan_replay()
        machine.await_stage(second, Stage.VERIFIED)
        control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
        machine.await_live(second)
        words = ("retire", machine.name, str(first), "--reason", "test", "--execute")
        for point in POINTS:
            killed(machine, point, *words)
            assert machine.record().epoch(first).stage is Stage.DROPPED
        control.retire(machine.config, machine.name, first, actor="test", reason="again")
        assert is_gone(machine, kafka, first)
    machine.settle(second)
    assert machine.prove({first: 1, second: 2}) > 60
