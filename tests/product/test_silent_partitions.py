"""A partition without new records stops holding windows back, and every later computation of the log agrees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import orjson
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from support.epochs import Lab, lab

from kappa import control, serving
from kappa.record import savepoints
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

BEGIN = 1_700_000_000_000
COUNTS = '''
"""Moves of each account in windows of ten seconds; a partition is idle when it is twenty seconds behind."""

from kappa import Append, Source, Topology
from kappa.operators import agg, tumbling_window

MOVE = "id STRING NOT NULL, at BIGINT"
MOVES = Source(topic="{topic}", schema=MOVE, time="at", grace="0 seconds", idle_after="20 seconds")
COUNTS = tumbling_window(
    MOVES, key="id", size="10 seconds", aggregates={{"moves": agg.count()}}, table="open_windows"
)

windows = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[COUNTS],
    outputs=[Append(name="counts", of=COUNTS.final)],
)
'''


class Moves(Lab):
    """A lab whose topology counts moves in windows of event time."""

    template: ClassVar[str] = COUNTS

    def moves(self, partition: int, seconds: Sequence[int]) -> None:
        """A move at each of these seconds."""
        rows = [orjson.dumps({"id": "a", "at": BEGIN + 1000 * second}) for second in seconds]
        self.produce(rows, partition=partition, start_ms=BEGIN + 1000 * min(seconds), step_ms=1)

    def closed(self, epoch: int) -> dict[int, int]:
        """Second at which a closed window starts -> moves in it."""
        rows = serving.snapshot(self.config, self.name, epoch=epoch).rows("counts").to_pylist()
        windows = {round(row["window_start"].timestamp()) - BEGIN // 1000: row["moves"] for row in rows}
        assert len(windows) == len(rows), "a window closes once"
        return windows

    def late(self, epoch: int) -> list[tuple[int, int]]:
        """Partition and offset of the late records."""
        rows = serving.snapshot(self.config, self.name, epoch=epoch).rows("late_records").to_pylist()
        return sorted((row["_partition"], row["_offset"]) for row in rows)


@pytest.fixture
def stream(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Moves]:
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Moves) as stream:
        stream.deploy(1)
        yield stream


def compared(stream: Moves, epoch: int) -> None:
    """Run a candidate and compare it with the live epoch."""
    live = stream.record().live
    stream.run(epoch)
    stream.await_stage(epoch, Stage.VERIFIED)
    assert control.diff(stream.config, stream.name, epoch).verdict == "same"
    assert stream.closed(epoch) == stream.closed(live)
    assert stream.late(epoch) == stream.late(live)


def test_an_idle_partition_is_released_live_and_in_a_replay(stream: Moves) -> None:
    first = with_idle_times(stream)

    # In slices of its own: where the live epoch released between two slices, these end in the middle of one.
    again = stream.plan_replay(slice_records=4)
    compared(stream, again)
    assert stream.ledger(again).state().released == stream.ledger(first).state().released


def with_idle_times(stream: Moves) -> int:
    """A live epoch whose partition 1 fell silent twice."""
    stream.moves(0, [0, 1, 2])
    stream.moves(1, [0, 3])
    first = stream.start_live()
    for second in (11, 22, 33, 44):  # partition 1 has no more: at 33 it is too far behind, the slice after that says so
        stream.moves(0, [second])
        stream.settle(first)
    assert stream.ledger(first).state().released == {stream.topic: {1: {2: BEGIN + 33_000}}}
    assert stream.closed(first) == {0: 5, 10: 1, 20: 1}
    stream.moves(1, [12, 31, 41])  # its first record would have been in time without the release
    stream.settle(first)
    assert stream.late(first) == [(1, 2)]
    savepoints.create(stream.config, stream.name, "between", actor="test")
    for second in (55, 66, 77, 88):
        stream.moves(0, [second])
        stream.settle(first)
    stream.moves(1, [42, 70])
    stream.settle(first)
    assert stream.late(first) == [(1, 2), (1, 5)]
    assert stream.ledger(first).state().released == {stream.topic: {1: {2: BEGIN + 33_000, 5: BEGIN + 66_000}}}
    return first


def test_an_added_partition_reopens_no_closed_window(stream: Moves) -> None:
    stream.moves(0, [0])
    stream.moves(1, [1])
    first = stream.start_live()
    stream.moves(0, [25])
    stream.moves(1, [26])
    stream.settle(first)
    assert stream.closed(first) == {0: 2}
    admin = AdminClient({"bootstrap.servers": stream.config.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(stream.topic, 3)]).values():
        future.result(30)
    stream.moves(2, [3, 27])
    stream.settle(first)
    assert stream.late(first) == [(2, 0)]
    assert stream.closed(first) == {0: 2}

    again = stream.plan_replay(slice_records=3, allow=frozenset({"partition-count-changed"}))
    compared(stream, again)


def test_releases_pass_from_epoch_to_epoch_and_are_lost_with_the_lake(stream: Moves) -> None:
    first = with_idle_times(stream)
    seeded = stream.plan_replay(start=FromSavepoint(seq=stream.record().savepoints["between"].detail["seq"]))
    compared(stream, seeded)
    assert stream.ledger(seeded).state().released == stream.ledger(first).state().released
    assert stream.stop(seeded) == []
    control.abort(stream.config, stream.name, seeded, actor="test", reason="compared")

    # The one that follows takes over what is released while it follows, and releases by itself once it is live.
    stream.deploy(2)
    second = stream.plan_replay(slice_records=100, determinism=True)
    compared(stream, second)
    for at in (100, 111, 122):
        stream.moves(0, [at])
        stream.settle(first)
    control.cut_over(stream.config, stream.name, second, actor="test", reason="v2")
    stream.await_live(second)
    released = stream.ledger(second).state().released[stream.topic][1]
    assert len(released) == 3 and released == stream.ledger(first).state().released[stream.topic][1]
    assert stream.closed(second) == stream.closed(first)
    for at in (133, 144, 155):
        stream.moves(0, [at])
        stream.settle(second)
    assert max(stream.ledger(second).state().released[stream.topic][1].values()) > max(released.values())

    # The lake is lost: what was released before is not on the broker, and the plan of a replay says so.
    stream.close()
    shutil.rmtree(stream.config.lake)
    stream.output_of("rebuild", stream.name, "--from-changelog", "--execute", "--detach")
    third = max(stream.record().epochs)
    stream.run(third)
    stream.await_live(third)
    stream.settle(third)
    assert "releases-lost" in stream.output_of("plan", stream.name)
    for at in (166, 177):
        stream.moves(0, [at])
        stream.settle(third)
    assert stream.closed(third)[140] == 1
