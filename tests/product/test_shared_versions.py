"""Joins that share one table of versions, live: a replay, an interval that is computed again, and other joins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.epochs import Lab, lab
from support.timed import BEGIN, DAY, TimedMixin

from kappa import control
from kappa.control.backfills import backfill, backfill_plan
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint

if TYPE_CHECKING:
    from conftest_spark import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TEMPLATE = '''
"""Amounts with the level of their time, by itself, by the hour, and with that of another id."""

from kappa.operators import agg, table_join, tumbling_window, versions_by
from kappa.topology import Append, Source, Topology

MOVES = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL", grace="3 hours")
ROW = "id STRING, amount BIGINT, at TIMESTAMP"
hours = tumbling_window(MOVES, key="id", size="1 hour", aggregates={{"n": agg.count()}}, table="open_hours")
levels = versions_by(MOVES, key="id", rows="id STRING, level BIGINT", table="levels")
rated = table_join(MOVES, levels, key="id", tables="waiting_moves", left_rows=ROW)
hourly = table_join(hours.final, levels, key="id", how="inner", tables="waiting_hours")
again = table_join(
    rated.rows, levels, key={{"other": "id"}}, tables="waiting_again", left_rows=f"{{ROW}}, other STRING"
)
further = table_join(hours.final, levels, key="id", tables="waiting_further")
joins = [{joins}]


def step(slice):
    """Amounts that five divides are levels, the others are rated by them."""
    moves = slice["{topic}"].selectExpr("*", "_event_time AS at")
    levels(slice, moves.where("amount % 5 = 0").selectExpr("* EXCEPT (at)", "amount AS level"))
    hours(slice)
    found = rated(slice, moves.where("amount % 5 > 0"))
    if hourly in joins:
        hourly(slice)
    if further in joins:
        further(slice)
    if again in joins:
        again(slice, found.rows.selectExpr("* EXCEPT (level)", "IF(id = 'k0', 'k1', 'k0') AS other"))
    return {{}}


times = {{rated: "at", again: "at"}}
names = {{rated: "rated", hourly: "hourly", again: "again", further: "further"}}
amounts = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[hours, levels, *joins],
    outputs=[Append(name=names[join], of=join.rows, time=times.get(join)) for join in joins],
    step=step,
)
'''
OUTPUTS = ("rated", "hourly", "again")


class Joined(TimedMixin, Lab):
    """A lab of these joins; other versions have fewer, or one more."""

    def deploy(self, version: int, *joins: str) -> None:  # type: ignore[override]
        """Change the file in the topologies folder."""
        named = {"topic": self.topic, "name": self.name, "version": version, "joins": ", ".join(joins)}
        (self.config.topologies / "amounts.py").write_text(TEMPLATE.format(**named))

    def refused(self, *joins: str) -> dict[str, str]:
        """Code -> text of each refusal to seed these joins from the live epoch."""
        self.deploy(2, *joins)
        start = FromSavepoint(seq=self.ledger(1).state().seq)
        request = ReplayRequest(topology=self.name, start=start, reason="test", actor="test")
        return {finding.code: finding.message for finding in control.plan(self.config, request).refusals}


@pytest.fixture
def joined(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Joined]:
    """A live epoch that has read four days, in a slice each."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Joined) as stream:
        stream.deploy(1, *OUTPUTS)
        stream.day(0)
        stream.start_live()
        for number in (1, 2, 3):
            stream.day(number)
            stream.settle(1)
        yield stream


def test_intervals_and_replays_equal_the_live_stream_and_further_joins_are_refused(joined: Joined) -> None:
    spark: Any = SimpleNamespace(session=joined.session)
    proposal = backfill_plan.propose(joined.config, spark, joined.name, BEGIN + 2 * DAY, BEGIN + 3 * DAY, OUTPUTS)
    assert not proposal.refusals, proposal.render()
    # It begins with the versions of a commit.
    assert proposal.since and proposal.seed == "from-savepoint"
    compared = backfill.compute(joined.config, spark, proposal).compared
    assert {output.name: output.is_same for output in compared} == dict.fromkeys(OUTPUTS, True)
    assert all(output.rows_again > 20 for output in compared)

    second = joined.plan_replay()
    joined.run(second)
    joined.await_stage(second, Stage.VERIFIED)
    for name in OUTPUTS:
        assert joined.rows(name, second) == joined.rows(name, 1) != []

    # The state of three joins serves two of them, and no other.
    assert not [code for code in joined.refused("rated", "again") if code.startswith("seed-")]
    refusals = joined.refused(*OUTPUTS, "further")
    assert {"seed-operator-changed", "seed-lacks-table"} <= refusals.keys()
    assert "waiting_further of" in refusals["seed-operator-changed"]
