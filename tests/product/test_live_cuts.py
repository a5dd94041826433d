"""Results that depend on where slices end: left out of a verdict, or computed along the slices of the live epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import pytest
from support.epochs import Lab, lab

from kappa import control, serving
from kappa.errors import UsageError
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

BATCHES = '''
"""Balances, which no cut changes, and the size of each batch, which is that of a slice."""

from kappa import Append, Source, Topology
from kappa.operators import agg, aggregate

MOVE = "id STRING NOT NULL, amount BIGINT NOT NULL"
MOVES = Source(topic="{topic}", schema=MOVE)
TOTALS = aggregate(MOVES, key="id", aggregates={{"total": agg.sum("amount")}}, table="balances")


def step(slice):
    """Sums by account, and how many moves came together."""
    TOTALS(slice)
    moves = slice["{topic}"]
    sizes = moves.groupBy().agg({{"amount": "count"}}).withColumnRenamed("count(amount)", "moves").where("moves > 0")
    return {{"batches": sizes}}


batches = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[TOTALS],
    outputs=[Append(name="batches", schema="moves BIGINT NOT NULL", cuts="equal")],
    step=step,
)
'''


class Batches(Lab):
    """A lab whose topology tells how many records each slice has."""

    template: ClassVar[str] = BATCHES

    def sizes(self, epoch: int) -> list[int]:
        """Records of each slice, in order."""
        rows = serving.snapshot(self.config, self.name, epoch=epoch).rows("batches").to_pylist()
        return [row["moves"] for row in sorted(rows, key=lambda row: int(row["_seq"]))]

    def verified(self, epoch: int) -> str:
        """What the report of a candidate says."""
        self.run(epoch)
        self.await_stage(epoch, Stage.VERIFIED)
        return "\n".join(control.diff(self.config, self.name, epoch).render())

    def give_up(self, epoch: int) -> None:
        """End a candidate."""
        assert self.stop(epoch) == []
        control.abort(self.config, self.name, epoch, actor="test", reason="compared")


@pytest.fixture
def stream(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Batches]:
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Batches) as stream:
        stream.deploy(1)
        yield stream


def test_slice_dependent_results_are_the_same_with_the_cuts_of_the_live_epoch(stream: Batches) -> None:
    stream.produce([("a", 1), ("b", 2), ("a", 3)], partition=0)
    first = stream.start_live()
    for number in range(4):
        stream.produce([("a", number)] * (1 + number % 3), partition=number % 2)
        stream.settle(first)
    named = stream.ledger(first).state().seq - 1

    by_time = stream.plan_replay(slice_records=5)
    report = stream.verified(by_time)
    assert stream.sizes(by_time) != stream.sizes(first)
    assert ": same" in report.splitlines()[0]
    assert "batches (differs): rows depend on where slices end" in report and "--cuts live" in report
    stream.give_up(by_time)

    again = stream.plan_replay(cuts="live")
    report = stream.verified(again)
    assert stream.sizes(again) == stream.sizes(first)
    assert ": same" in report.splitlines()[0] and "depend on where" not in report
    stream.give_up(again)

    seeded = stream.plan_replay(start=FromSavepoint(seq=named), cuts="live")
    assert ": same" in stream.verified(seeded).splitlines()[0]
    stream.produce([("c", 1)], partition=0)
    stream.settle(first)
    stream.wait(
        lambda: sorted(stream.sizes(seeded)) == sorted(stream.sizes(first)), "the candidate follows slice by slice"
    )
    stream.give_up(seeded)

    # By its command.
    assert "in the slices of the live epoch" in stream.output_of("plan", stream.name, "--cuts", "live")
    with pytest.raises(UsageError, match="is not one of time, live"):
        stream.output_of("plan", stream.name, "--cuts", "equal")
    with pytest.raises(UsageError, match="of another size"):
        stream.output_of("plan", stream.name, "--cuts", "live", "--determinism")
