"""A topology that reads another's versioned topic: alone, and moved together with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from chained import Downstream, Upstream, prove, verified
from lab import lab

from kappa import control
from kappa.replay.offsets import Offsets

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.runtime.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]
LATER = 1_700_000_100_000

Chain = Callable[..., tuple[Upstream, Downstream]]


@pytest.fixture
def chain(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Chain]:
    """Makes two topologies in one lake, the second of which reads the first one's versioned topic."""
    with ExitStack() as stack:

        def make(**settings: object) -> tuple[Upstream, Downstream]:
            source = topic(partitions=2)
            made = stack.enter_context(lab(tmp_path / "lab", kafka, spark, source, **settings))
            same = {"config": made.config, "kafka": kafka, "topic": source, "session": spark}
            name = f"lab.{source.replace('.', '_')}"
            one = Upstream(name=f"{name}_a", **same)
            two = Downstream(name=f"{name}_b", of=one, **same)
            for member in (one, two):
                member.deploy(1)
                stack.callback(member.close)
            return one, two

        yield make


def live(one: Upstream, two: Downstream) -> None:
    """Both live, and what is in the root topic read by both."""
    one.produce(ROWS)
    assert one.start() == 1
    one.await_live(1)
    assert two.start() == 1
    two.await_live(1)
    two.settle(1)


def test_it_reads_the_live_epochs_own_topic_stands_at_root_offsets_and_is_replayed_alone(chain: Chain) -> None:
    one, two = chain(slice_records=3)
    live(one, two)
    bound = two.plan(1).bound
    assert {source: (b.topology, b.epoch, b.topic) for source, b in bound.items()} == {
        one.story: (one.name, 1, f"{one.story}.e0001")
    }
    prove(two, {1: 1})
    state = two.ledger(1).state()
    assert state.position.topics == (f"{one.story}.e0001",) and state.standing.topics == (two.topic,)
    told = {Offsets.from_json(row.detail["sent"]) for row in one.ledger(1).state().commits if row.seq}
    assert {Offsets.of((r.at, r.end) for r in row.ranges) for row in state.commits if row.seq} <= told
    assert two.kafka.group_offsets(two.paths(1).name) == state.position

    second = verified(two, 2)
    assert two.plan(second).bound == bound
    report = control.diff(two.config, two.name, second)
    assert set(report.at.topics) == {two.topic}
    assert report.tables[0].keys_changed == 3
    one.produce([("d", 6), ("a", 7)], start_ms=LATER)
    two.settle(1)
    control.cut_over(two.config, two.name, second, actor="ada", reason="alone")
    two.await_live(second)
    one.produce([("b", 8)], start_ms=LATER + 60_000)
    two.settle(second)
    prove(two, {1: 1, 2: 2})
    assert [member.record().live for member in (one, two)] == [1, 2]
