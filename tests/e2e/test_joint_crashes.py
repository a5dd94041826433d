"""Real drivers of two topologies, killed with SIGKILL at each step of a cutover of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.joint_cutovers import await_ready, cut_over_through_deaths
from support.joint_topologies import output_topic, write
from support.processes import Rig, rows

from kappa.replay.stages import Stage

#: In CI drivers die at the same points within the test's process: tests/product/test_joint_topologies.py.
pytestmark = [pytest.mark.e2e, pytest.mark.soak]


@dataclass(kw_only=True)
class Pair(Rig):
    """One of two topologies over one source, in one lake."""

    def deploy(self, version: int, factor: int | None = None) -> None:
        """Change its file."""
        write(self, version, factor)

    def sent_values(self) -> Iterator[bytes]:
        """Values of its own output topic."""
        return self.values_of(output_topic(self))


@pytest.fixture
def pair(machine: Rig) -> Iterator[tuple[Pair, Pair]]:
    """Two topologies over the topic of a rig."""
    (machine.config.topologies / "balances.py").unlink()
    members = [
        Pair(
            config=machine.config,
            kafka=machine.kafka,
            topic=machine.topic,
            name=f"{machine.name}_{which}",
            session=None,
        )  # type: ignore[arg-type]  # Spark is elsewhere
        for which in "ab"
    ]
    for one in members:
        one.deploy(1)
    yield members[0], members[1]
    for one in members:
        one.close()


def test_a_joint_cutover_survives_drivers_killed_at_each_step(pair: tuple[Pair, Pair]) -> None:
    one, two = pair
    one.produce(rows(50))
    assert (one.start("standing"), two.start("yield")) == (1, 1)
    for member in pair:
        member.await_live(1)
        member.settle(1)
        member.deploy(2)
        assert member.plan_replay("move.ready") == 2
    for member in pair:
        member.await_stage(2, Stage.VERIFIED)
    await_ready(pair)
    one.produce(rows(12, first=100), start_ms=1_700_000_060_000)
    cut_over_through_deaths(pair)
    assert one.record().moves[-1].n + 1 == two.record().moves[-1].n
    one.produce(rows(12, first=500), start_ms=1_700_000_900_000)
    for member in pair:
        member.settle(2)
        assert member.prove({1: 1, 2: 2}) == 74
        assert member.record().moves[-1].detail["at"] == one.record().moves[-1].detail["at"]
