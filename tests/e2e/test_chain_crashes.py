"""Real drivers of a chain, killed with SIGKILL: in every line of a slice, and at each step of the cutover of both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.chains import Downstream, Upstream, prove
from support.joint_cutovers import await_ready, cut_over_through_deaths
from support.processes import SLICE_POINTS, Rig, rows

from kappa.replay.stages import Stage

#: In CI drivers die within the test's process at some of these points: tests/product/test_chains.py.
pytestmark = [pytest.mark.e2e, pytest.mark.soak]


@dataclass(kw_only=True)
class First(Rig, Upstream):
    """A topology over the root topic whose drivers are processes."""


@dataclass(kw_only=True)
class Second(Rig, Downstream):
    """A topology that reads the topic of the first one."""


@pytest.fixture
def chain(machine: Rig) -> Iterator[tuple[First, Second]]:
    """Two topologies in the lake of a rig, the second of which reads the first one's versioned topic."""
    (machine.config.topologies / "balances.py").unlink()
    same = {"config": machine.config, "kafka": machine.kafka, "topic": machine.topic, "session": None}
    one = First(name=f"{machine.name}_a", **same)
    two = Second(name=f"{machine.name}_b", of=one, **same)
    for member in (one, two):
        member.deploy(1)
    yield one, two
    for member in (one, two):
        member.close()


def produce(one: First, number: int) -> None:
    """Some records that parse, a minute after those before."""
    good = [row for row in rows(12, first=100 * number) if not isinstance(row, bytes)]
    one.produce(good, start_ms=1_700_000_000_000 + 60_000 * number)


def die_in_each_line(member: Rig, one: First, numbers: Iterator[int]) -> None:
    """A driver that is to die at the first line of a slice dies at each of them, and is started again."""
    for following in (*SLICE_POINTS[1:], ""):
        produce(one, next(numbers))
        member.await_death(1)
        member.run(1, following)


def test_each_root_record_counts_once_whichever_driver_dies_in_any_line_of_a_slice(chain: tuple[First, Second]) -> None:
    one, two = chain
    numbers = itertools.count()
    produce(one, next(numbers))
    one.start()
    one.await_live(1)
    one.settle(1)
    two.start(SLICE_POINTS[0])
    die_in_each_line(two, one, numbers)
    one.kill(1)
    one.run(1, SLICE_POINTS[0])
    die_in_each_line(one, one, numbers)
    produce(one, next(numbers))
    two.settle(1)
    prove(two, {1: 1})


def test_both_go_live_at_one_root_offset_whichever_driver_dies_in_the_cutover(chain: tuple[First, Second]) -> None:
    one, two = chain
    produce(one, 0)
    one.start("standing")
    one.await_live(1)
    one.settle(1)
    two.start("yield")
    two.await_live(1)
    two.settle(1)
    for member, upstream in ((one, {}), (two, {one.name: 2})):
        member.deploy(2)
        assert member.plan_replay("move.ready", upstream=upstream) == 2
        member.await_stage(2, Stage.VERIFIED)
    await_ready(chain)
    produce(one, 1)
    cut_over_through_deaths(chain)
    assert one.record().moves[-1].detail["at"] == two.record().moves[-1].detail["at"]
    produce(one, 2)
    two.settle(2)
    prove(two, {1: 1, 2: 4})
