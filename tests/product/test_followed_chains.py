"""A window of another topology's windows: live in many slices, replayed in few, the same, and nothing is late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.chains import Downstream, chain_of, verified
from support.epochs import read_messages
from support.joint_topologies import Member, await_all_live, cut_over

from kappa import control
from kappa.delta import queries
from kappa.errors import RefusedError
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

BEGIN = 1_700_000_000_000
MINUTE, HOUR = 4_000, 16_000
MINUTES = '''
"""Moves of each account in windows of four seconds, told to others. Version {version}."""

from kappa import Append, Source, Topic, Topology
from kappa.operators import agg, tumbling_window

MOVES = Source(topic="{topic}", schema="id STRING NOT NULL, at BIGINT NOT NULL", time="at", grace="2 seconds")
MINUTES = tumbling_window(MOVES, key="id", size="4 seconds", aggregates={{"moves": agg.count()}}, table="open_minutes")

minutes = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[MINUTES],
    outputs=[
        Append(name="minutes", of=MINUTES.final),
        Topic(name="{name}.story", of="minutes", key="id", {time}on_replay="versioned"),
    ],
)
'''
HOURS = '''
"""Windows of sixteen seconds of what the other topology counted. Version {version}."""

from kappa import Append, Source, Topology
from kappa.operators import agg, tumbling_window

COUNTED = Source(
    topic="{of}.story",
    schema="id STRING NOT NULL, window_start TIMESTAMP NOT NULL, moves BIGINT NOT NULL",
    of="{of}",
    time="window_start",
)
HOURS = tumbling_window(
    COUNTED,
    key="id",
    size="16 seconds",
    aggregates={{"moves": agg.sum("moves"), "minutes": agg.count()}},
    table="open_hours",
)

hours = Topology(
    name="{name}",
    version="{version}",
    sources=[COUNTED],
    operators=[HOURS],
    outputs=[Append(name="hours", of=HOURS.final)],
)
'''
#: The topology over the root topic, and its reader.
Chain = tuple["Minutes", "HoursOfMinutes"]
#: Account, start of the hour -> moves and minutes in it.
Hours = dict[tuple[str, int], tuple[int, int]]


@dataclass(kw_only=True)
class Minutes(Member):
    """The topology over the root topic."""

    time: str = 'time="window_start", '

    @property
    def story(self) -> str:
        """Its versioned topic output."""
        return f"{self.name}.story"

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        text = MINUTES.format(name=self.name, version=version, topic=self.topic, time=self.time)
        (self.config.topologies / f"{self.name.replace('.', '_')}.py").write_text(text)

    def produce_moves(self, first: int, last: int, *, seed: int) -> None:
        """Moves of some seconds in both partitions: out of order, some late, one partition ahead of the other."""
        chance = random.Random(seed)
        for partition in (0, 1):
            rows = []
            for at in range(first, last, 200):
                late = chance.choice([0, 0, 0, 700, 1_900, 6_000])
                rows.append(orjson.dumps({"id": chance.choice("ab"), "at": BEGIN + at - late}))
            self.produce(rows, partition=partition, start_ms=BEGIN + first, step_ms=200)


@dataclass(kw_only=True)
class HoursOfMinutes(Downstream):
    """The topology that reads what the other one counted."""

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        text = HOURS.format(name=self.name, version=version, of=self.of.name)
        (self.config.topologies / f"{self.name.replace('.', '_')}.py").write_text(text)

    def hours(self, epoch: int) -> Hours:
        """What an epoch has closed; each window once."""
        rows = queries.query(self.paths(epoch).output("hours"), None).to_pylist()
        windows = {(row["id"], ms(row["window_start"])): (row["moves"], row["minutes"]) for row in rows}
        assert len(windows) == len(rows)
        assert queries.query(self.paths(epoch).output("late_records"), None).num_rows == 0
        return windows


def ms(time: Any) -> int:
    return round(time.timestamp() * 1000)


def expected(member: Minutes) -> Hours:
    """The hours that are over, in plain Python from the root topic: late moves are refused by their own partition."""
    reached: dict[int, int] = {}
    minutes: Counter[tuple[str, int]] = Counter()
    for message in read_messages(member.config.bootstrap_servers, member.topic):
        row, partition = orjson.loads(message.value()), message.partition()
        reached[partition] = max(row["at"], reached.get(partition, row["at"]))
        start = row["at"] // MINUTE * MINUTE
        if start + MINUTE > reached[partition] - 2_000:
            minutes[row["id"], start] += 1
    frontier = min(reached.values()) - 2_000
    hours: dict[tuple[str, int], list[int]] = {}
    for (key, start), moves in minutes.items():
        if start + MINUTE <= frontier:
            hours.setdefault((key, start // HOUR * HOUR), []).append(moves)
    # A minute that is still open may begin up to its size before the frontier.
    return {at: (sum(one), len(one)) for at, one in hours.items() if at[1] + HOUR <= frontier - MINUTE}


@pytest.fixture
def chain(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Chain]:
    with chain_of(Minutes, HoursOfMinutes, tmp_path / "lab", kafka, spark, topic(partitions=2)) as members:
        yield members


def live(chain: Chain, *, seed: int) -> Hours:
    """The hours of moves that come in several commits, as plain Python has them."""
    one, two = chain
    one.produce_moves(0, 9_000, seed=seed + 1)
    for member in chain:
        member.start_live()
    for turn in range(2, 6):  # a commit of both for each
        one.produce_moves(9_000 * (turn - 1), 9_000 * turn, seed=seed + turn)
        one.settle(1)
        two.settle(1)
    assert len(one.ledger(1).state().commits) >= 5
    hours = two.hours(1)
    assert hours == expected(one) and len(hours) >= 4
    return hours


def replayed(chain: Chain) -> dict[str, int]:
    """The epochs of both from the beginning: minutes come in another order, and in fewer slices."""
    one, two = chain
    epochs = {one.name: verified(one, 2)}
    return {**epochs, two.name: verified(two, 2, upstream={one.name: 2})}


@pytest.mark.soak
@pytest.mark.parametrize("number", range(100))
def test_a_hundred_chains_are_the_same_live_and_replayed(chain: Chain, number: int) -> None:
    hours = live(chain, seed=10 * (number + 1))
    replayed(chain)
    assert chain[1].hours(2) == hours


def test_hours_of_minutes_are_the_same_live_and_replayed_and_no_minute_is_late(chain: Chain) -> None:
    one, two = members = chain
    hours = live(chain, seed=0)

    # The frontier came from the upstream's commits, and is on record in the slices that took it over.
    commits = [row for row in two.ledger(1).state().commits if row.seq]
    upstream_frontiers = {
        row.detail["final"][f"{one.story}.e0001"]["ms"] for row in one.ledger(1).state().commits if row.seq
    }
    frontiers = [row.frontiers.get(f"{one.story}.e0001") for row in commits]
    assert set(frontiers) <= upstream_frontiers and frontiers == sorted(frontiers, key=lambda at: at or 0)
    assert commits[-1].stream_times == {f"{one.story}.e0001": dict.fromkeys((0, 1), frontiers[-1])}

    epochs = replayed(chain)
    assert two.hours(2) == hours
    report = control.diff(two.config, two.name, 2)
    assert [(output.rows_added, output.rows_removed) for output in report.outputs] == [(0, 0)] * len(report.outputs)
    assert len([row for row in two.ledger(2).state().commits if row.seq]) < len(commits)

    # The reader alone, from the same upstream epoch.
    cut_over(members, epochs)
    await_all_live(members, epochs)
    one.produce_moves(45_000, 60_000, seed=9)
    one.settle(2)
    two.settle(2)
    # Computed twice: the second run cuts its slices by time, in the middle of commits.
    third = two.plan_replay(determinism=True, slice_records=7)
    two.run(third)
    two.await_stage(third, Stage.VERIFIED)
    assert two.record().epoch(third).determinism.is_same, two.record().epoch(third).determinism.failures
    assert two.hours(third) == two.hours(2) == expected(one)
    for member in members:
        assert control.certify(member.config, member.name).complete


def test_a_reader_without_grace_is_refused_if_its_upstream_sends_no_frontier(chain: Chain) -> None:
    one, two = chain
    one.time = ""
    one.deploy(1)
    one.produce_moves(0, 9_000, seed=1)
    one.start_live()
    with pytest.raises(RefusedError, match="does not report its final rows") as refused:
        two.start()
    assert [finding.code for finding in refused.value.data["findings"]] == ["upstream-not-followed"]
