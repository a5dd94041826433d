"""Slices that end the JVM: the process dies with it, and only the ledger can tell the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes import Rig, rig, rows

from kappa import control

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e

#: Ends the JVM as the kernel does when memory is short, in each slice of more records than a file allows.
GREEDY = """
    import pathlib

    import psutil

    limit = pathlib.Path({limit!r})
    if limit.exists() and slice["{topic}"].count() > int(limit.read_text()):
        [jvm] = [child for child in psutil.Process().children() if child.name() == "java"]
        jvm.kill()
        jvm.wait()
    counted ="""


@pytest.fixture
def greedy(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[tuple[Rig, Path]]:
    """A rig whose step ends the JVM; attempts are few, since each of them is a JVM."""
    with rig(tmp_path, kafka, topic(partitions=2), attempts=1) as machine:
        limit, file = tmp_path / "limit", machine.config.topologies / "balances.py"
        text = GREEDY.format(limit=str(limit), topic=machine.topic)
        source = file.read_text()
        assert "\n    counted =" in source
        file.write_text(source.replace("\n    counted =", text, 1))
        yield machine, limit


def lives(machine: Rig, epoch: int, crash: str = "none") -> None:
    """Start the epoch's driver again where it died, as whoever watches it does."""
    if machine.is_dead(epoch):
        machine.run(epoch, crash)  # it may die at once


def test_a_slice_too_large_for_its_jvm_is_planned_smaller_and_nothing_is_lost(greedy: tuple[Rig, Path]) -> None:
    machine, limit = greedy
    limit.write_text("25")
    machine.produce(rows(40))
    epoch = machine.start("none")

    def is_read() -> bool:
        # The one that gives the large slice up dies as soon as it did.
        lives(machine, epoch, "none" if machine.deaths(epoch) else "abandon")
        state = machine.ledger(epoch).state()
        ends = machine.kafka.stable_offsets([machine.topic])
        return bool(state.commits) and state.position == state.position.merge(ends)

    machine.wait(is_read, "everything is read, by smaller slices")
    machine.await_death(epoch, "abandon")
    history = machine.ledger(epoch).rows()
    assert [row.detail["most"] for row in history if row.kind == "abandon"] == [1]
    assert max(sum(r.count for r in row.ranges) for row in history if row.kind == "commit") <= 20
    assert not [e for e in machine.record().events if e.event == "stuck"]
    machine.prove({1: 1})


def test_a_record_that_ends_every_jvm_makes_the_epoch_stuck_until_mended(greedy: tuple[Rig, Path]) -> None:
    machine, limit = greedy
    limit.write_text("0")
    machine.produce(rows(10))
    epoch = machine.start("none")

    def is_stuck() -> bool:
        lives(machine, epoch)
        return machine.status(epoch).state == "stuck"

    machine.wait(is_stuck, "the epoch is stuck")
    (event,) = [e for e in machine.record().events if e.event == "stuck"]
    assert "out of memory?" in event.reason and event.reason in machine.status(epoch).message
    machine.kill(epoch)
    machine.run(epoch)
    machine.wait(lambda: machine.status(epoch).state == "stuck", "a driver that is started by itself waits too")
    assert len([e for e in machine.record().events if e.event == "stuck"]) == 1
    limit.unlink()
    control.start(machine.config, machine.name, actor="ada", reason="more memory")
    machine.settle(epoch)
    machine.prove({1: 1})
