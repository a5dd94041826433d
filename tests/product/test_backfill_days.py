"""Local days over both changes of a clock, of 23 and 25 hours, computed again beside a live stream: as by a replay."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.epochs import Lab, lab
from support.timed import BEGIN, DAY, TimedMixin

from kappa import control
from kappa.control import upgrade as upgrading
from kappa.control.backfills import backfill, backfill_plan
from kappa.offsets.notation import local_time
from kappa.replay.stages import Stage
from kappa.verify.recount import recount

if TYPE_CHECKING:
    from conftest_spark import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

BERLIN = "Europe/Berlin"
LOCAL = '''
"""Amounts by the day of Berlin, version {version}: each counts {factor} times."""

from kappa.operators import agg, at_most_every, hopping_window, tumbling_window
from kappa.topology import Append, Source, Topology

MOVES = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL", grace="{grace}")
OF = {{"key": "id", "rows": "id STRING, counted BIGINT", "zone": "Europe/Berlin"}}
SUMS = {{"aggregates": {{"records": agg.count(), "counted": agg.sum("counted")}}, **OF}}
days = tumbling_window(MOVES, size="1 day", keep="5 days", table="open_days", **SUMS)
pairs = hopping_window(MOVES, size="2 days", every="1 day", table="open_pairs", **SUMS)
daily = at_most_every(MOVES, every="1 day", table="due", **OF)
each = [days, pairs, daily]


def step(slice):
    """Sums of what is counted."""
    counted = slice["{topic}"].selectExpr("*", "CAST(amount * {factor} AS BIGINT) AS counted")
    for operator in each:
        operator(slice, counted)
    return {{}}


amounts = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=each,
    outputs=[
        Append(name="days", of=days.final), Append(name="pairs", of=pairs.final), Append(name="daily", of=daily.final),
    ],
    step=step,
)
'''
OUTPUTS = ("days", "pairs", "daily", "open_days")


class Local(TimedMixin, Lab):
    """A lab with drivers in this process."""

    template = LOCAL

    def days(self, first: datetime, count: int) -> None:
        """Records of this many days."""
        for number in range(count):
            self.day((first - BEGIN) // DAY + number)

    def propose(self, first: str, last: str, zone: str = BERLIN) -> backfill_plan.Backfill:
        """What a backfill of some days would do, as the command line is given them."""
        spark: Any = SimpleNamespace(session=self.session)
        begin, end = local_time(first, zone), local_time(last, zone)
        return backfill_plan.propose(self.config, spark, self.name, begin, end, OUTPUTS)


@pytest.fixture
def local(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Local]:
    """A live epoch that has read days around both changes of 2026, in two slices, and goes on by version 2."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Local) as stream:
        stream.deploy(1)
        stream.days(datetime(2026, 3, 28, tzinfo=UTC), 5)
        stream.start_live()
        stream.days(datetime(2026, 10, 24, tzinfo=UTC), 5)
        stream.settle(1)
        stream.deploy(2)
        upgrading.upgrade(
            stream.config,
            upgrading.propose(stream.config, stream.name, slices=0),
            history_stands=True,
            actor="ada",
            reason="from now on",
        )
        stream.running[1][1].join(120)
        assert stream.stop(1) == []
        stream.run(1)
        yield stream


def of_day(rows: list[dict[str, Any]], first: str, last: str) -> list[dict[str, Any]]:
    """Rows of an interval of local days."""
    begin, end = local_time(first, BERLIN), local_time(last, BERLIN)
    return [row for row in rows if begin <= row.get("window_start", row.get("boundary")) < end]


def test_local_days_across_both_clock_changes_equal_a_replay(local: Local) -> None:
    before = {name: local.rows(name) for name in OUTPUTS}
    intervals = (("2026-03-29", "2026-03-30"), ("2026-10-25", "2026-10-26"))
    (off,) = {finding.code for finding in local.propose("2026-03-29", "2026-03-30", "UTC").refusals}
    assert off == "backfill-off-grid"
    for first, last in intervals:
        proposal = local.propose(first, last)
        assert not proposal.refusals, proposal.render()
        spark: Any = SimpleNamespace(session=local.session)
        computed = backfill.compute(local.config, spark, proposal)
        request = backfill.request(local.config, proposal, computed, actor="ada", reason="amounts count twice")
        backfill.await_replaced(local.config, request)
    after = {name: local.rows(name) for name in OUTPUTS}
    second = local.plan_replay()
    local.run(second)
    local.await_stage(second, Stage.CAUGHT_UP)
    for name in OUTPUTS:
        replayed = local.rows(name, second)
        for first, last in intervals:
            new, old = (of_day(rows, first, last) for rows in (after[name], before[name]))
            assert new == of_day(replayed, first, last), (name, first)
            assert len(new) == len(old) and (new != old or not old), (name, first)
        rest = [
            [row for row in rows if not any(row in of_day(rows, *one) for one in intervals)]
            for rows in (after[name], before[name])
        ]
        assert rest[0] == rest[1], name
    lengths = [
        {(row["window_end"] - row["window_start"]) / timedelta(hours=1) for row in of_day(after["days"], *one)}
        for one in intervals
    ]
    assert lengths == [{23.0}, {25.0}]
    assert of_day(after["open_days"], *intervals[1])
    certificate = control.certify(local.config, local.name)
    assert certificate.complete, certificate.problems
    assert local.stop(1) == []
    assert recount(local.paths(1)).problems == ()
