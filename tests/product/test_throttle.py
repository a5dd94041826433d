"""A replay beside a live stream that falls behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.epochs import Lab, lab

from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_a_replay_pauses_while_the_live_stream_lags_and_still_ends(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: Any
) -> None:
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), throttle_lag=0, slice_records=10) as stream:
        first, second = _beside(stream)
        driver = stream.run(second)
        stream.run(first)
        stream.produce([("a", 1)] * 200, start_ms=1_700_000_100_000)
        stream.wait(lambda: driver.voice.doing.startswith("pausing"), "the replay pauses")
        stream.await_stage(second, Stage.REPLAYED)
        assert _throttled(stream, second) > 0


def test_a_replay_does_not_wait_for_a_live_epoch_without_a_driver(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: Any
) -> None:
    settings = {"throttle_lag": 0, "slice_records": 10, "stale_seconds": 0.5}
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), **settings) as stream:
        _, second = _beside(stream)
        stream.produce([("a", 1)] * 400, start_ms=1_700_000_100_000)
        driver = stream.run(second)
        stream.await_stage(second, Stage.REPLAYED)
        assert "pausing" not in driver.voice.doing


def _beside(stream: Lab) -> tuple[int, int]:
    """A live epoch that was stopped, and a replay of forty records that is planned."""
    stream.deploy(1)
    stream.produce([("a", 1), ("b", 2)] * 20)
    first = stream.start_live()
    stream.stop(first)
    return first, stream.plan_replay(slice_records=10)


def _throttled(stream: Lab, epoch: int) -> float:
    (event,) = [e for e in stream.record().events if e.epoch == epoch and e.event == "replayed"]
    return float(event.detail["throttled_seconds"])
