"""Several topologies cut over together: equal offsets, one commit, all or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from lab import lab
from several import Member, Reader, await_all_live, cut_over, moved, resumed_at, verified

from kappa import control, joint_moves
from kappa.errors import MoveRefusedError
from kappa.runtime.epochs import Epochs

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.runtime.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [("a", 1), ("b", 2), ("c", 4)]
LATER = 1_700_000_100_000

#: Makes topologies over these source topics, version 1 deployed, in one lake.
Several = Callable[..., list[Member]]


@pytest.fixture
def several(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Several]:
    """Makes topologies in one lake: one for each source topic that is named."""
    with ExitStack() as stack:

        def make(*topics: str, **settings: object) -> list[Member]:
            made = stack.enter_context(lab(tmp_path / "lab", kafka, spark, topics[0], **settings))
            found = []
            for number, source in enumerate(topics):
                member = Member(
                    config=made.config, kafka=kafka, topic=source, session=spark,
                    name=f"lab.{source.replace('.', '_')}_{'abc'[number]}",
                )  # fmt: skip
                member.deploy(1)
                stack.callback(member.close)
                found.append(member)
            return found

        yield make


def prove(members: list[Member]) -> None:
    """Each record of the source was sent once by each member; certificates hold."""
    for member in members:
        certificate = control.certify(member.config, member.name)
        assert certificate.complete, certificate.problems


def test_two_topologies_over_one_source_move_in_one_commit_and_resume_from_equal_offsets(
    several: Several, topic: TopicFactory
) -> None:
    source = topic(partitions=2)
    one, two = members = several(source, source)
    one.produce(ROWS)
    wanted = verified(members)
    # The first one's driver is down while the second one reads on: they stand at different offsets.
    assert one.stop(1) == []
    one.produce([("a", 10), ("d", 20)], start_ms=LATER)
    two.settle(1)
    behind, ahead = one.ledger(1).state().position, two.ledger(1).state().position
    assert behind != ahead and ahead.dominates(behind)
    with Reader(one.config, [one.name, two.name]).reading() as reader:
        cut_over(members, wanted)
        one.run(1)
        await_all_live(members, wanted)
    assert reader.seen == [(1, 1), (2, 2)]
    assert resumed_at(one, 2) == resumed_at(two, 2) == ahead
    assert moved(one).n + 1 == moved(two).n and moved(one).at == moved(two).at
    assert moved(one).detail["together"] == moved(two).detail["together"] == wanted
    one.produce([("a", 100)], start_ms=LATER + 60_000)
    for member in members:
        member.settle(2)
        assert sorted(member.sent()) == sorted([*ROWS, ("a", 10), ("d", 20), ("a", 200)])
        assert member.balances() == {"a": 222, "b": 4, "c": 8, "d": 40}
    prove(members)


def test_topologies_over_different_sources_move_in_one_commit_each_at_its_own_offsets(
    several: Several, topic: TopicFactory
) -> None:
    one, two = members = several(topic(partitions=2), topic())
    one.produce(ROWS)
    two.produce(ROWS[:2])
    wanted = verified(members)
    with Reader(one.config, [one.name, two.name]).reading() as reader:
        cut_over(members, wanted, keep_old_running=True)
        await_all_live(members, wanted)
    assert reader.seen == [(1, 1), (2, 2)]
    assert moved(one).n + 1 == moved(two).n
    for member in members:
        member.produce([("a", 100)], start_ms=LATER)
        member.settle(2)
        member.settle(1)  # kept running: it follows, sending nothing
    assert sorted(one.sent()) == sorted([*ROWS, ("a", 200)])
    assert sorted(two.sent()) == sorted([*ROWS[:2], ("a", 200)])
    prove(members)

    back = joint_moves.recall(one.config, wanted, actor="ada", reason="back")
    assert back == {one.name: 1, two.name: 1}
    for member in members:
        member.wait(lambda m=member: control.progress(m.config, m.name, 1).is_caught_up, "it is there already")
    with Reader(one.config, [one.name, two.name]).reading() as reader:
        cut_over(members, back)
        await_all_live(members, back)
    assert reader.seen == [(2, 2), (1, 1)]
    for member in members:
        member.produce([("a", 1000)], start_ms=LATER + 60_000)
        member.settle(1)
    assert sorted(one.sent()) == sorted([*ROWS, ("a", 200), ("a", 1000)])
    prove(members)


def test_the_whole_group_is_withdrawn_when_one_does_not_take_over_in_time_and_all_old_epochs_go_on(
    several: Several, topic: TopicFactory
) -> None:
    source = topic(partitions=2)
    one, two = members = several(source, source, handover_seconds=1.0)
    one.produce(ROWS)
    wanted = verified(members)
    assert two.stop(2) == []
    cut_over(members, wanted)
    with pytest.raises(MoveRefusedError, match=f"epoch 2 of '{two.name}' has no driver"):
        one.wait(lambda: joint_moves.is_live(one.config, wanted), "it is withdrawn")
    ends = [(e.topology, e.event) for e in Epochs(one.config.lake).events()[-2:]]
    assert ends == [(one.name, "withdrawn"), (two.name, "withdrawn")]
    one.produce([("a", 10)], start_ms=LATER)
    for member in members:
        member.settle(1)
        assert member.record().live == 1
        assert sorted(member.sent()) == sorted([*ROWS, ("a", 10)])
    prove(members)
