"""Topics that a replay sends to, with drivers killed for real; plain Python computes what they must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from support.epochs import read_messages
from support.kills import OUTPUT, row
from support.processes import Rig, expected_moves, rows

from kappa import control
from kappa.offsets.vector import Offsets
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from support.kills import Row

#: In CI drivers die at the same points within the test's process: tests/product/test_versioned_topics.py,
#: tests/product/test_reconciled_topics.py.
pytestmark = [pytest.mark.e2e, pytest.mark.soak]

OUTPUTS = (
    OUTPUT
    + ' Topic(name="{topic}.story", of="moves", key="id", on_replay="versioned"),'
    + ' Topic(name="{topic}.balances", of="balances", key="id", on_replay="reconcile"),'
)


def deploy(machine: Rig, version: int) -> None:
    machine.deploy(version)
    file = machine.config.topologies / "balances.py"
    text, output = file.read_text(), OUTPUT.format(topic=machine.topic)
    assert output in text
    file.write_text(text.replace(output, OUTPUTS.format(topic=machine.topic)))


def story(machine: Rig, epoch: int) -> list[Row]:
    """What a plain consumer reads of an epoch's versioned topic."""
    name = f"{machine.topic}.story.e{epoch:04d}"
    return sorted(map(row, read_messages(machine.config.bootstrap_servers, name)))


def folded(machine: Rig) -> dict[str, int | None]:
    """The newest value per key, as a consumer keeps it."""
    totals: dict[str, int | None] = {}
    for message in read_messages(machine.config.bootstrap_servers, f"{machine.topic}.balances"):
        value = message.value()
        totals[message.key().decode()] = None if value is None else orjson.loads(value)["total"]
    return totals


def expected_story(machine: Rig, factor: int) -> list[Row]:
    raw = list(read_messages(machine.config.bootstrap_servers, machine.topic))
    return sorted(expected_moves(raw, [(Offsets(), factor)]).values())


def test_topics_are_correct_after_drivers_die_in_a_replay_and_its_cutover(machine: Rig) -> None:
    deploy(machine, 1)
    machine.produce(rows(50))
    first = machine.start("baseline.marker")
    machine.await_death(first)
    machine.run(first)
    machine.await_live(first)
    machine.settle(first)
    before = expected_story(machine, 1)
    assert story(machine, first) == before
    deploy(machine, 2)
    second = machine.plan_replay("rewind.names", slice_records=20)
    for point in ("baseline.marker", "send.open@1", "send@1", "reconcile.compared", "reconcile.differences"):
        machine.await_death(second)
        machine.run(second, point)
    machine.await_stage(second, Stage.VERIFIED)
    assert story(machine, second) == expected_story(machine, 2)
    sent = len(list(read_messages(machine.config.bootstrap_servers, f"{machine.topic}.balances")))
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    for point in ("moved", "reconcile.open", "reconcile.send", ""):
        machine.await_death(second)
        machine.run(second, point)
    machine.await_live(second)
    messages = list(read_messages(machine.config.bootstrap_servers, f"{machine.topic}.balances"))
    assert len(messages) - sent == len(machine.balances())  # every total is another, none is gone
    assert folded(machine) == machine.balances()
    machine.produce(rows(12, first=500), start_ms=1_700_000_900_000)
    machine.settle(second)
    assert folded(machine) == machine.balances()
    assert story(machine, second) == expected_story(machine, 2)
    assert story(machine, first) == before
    assert machine.prove({first: 1, second: 2}) == 62
