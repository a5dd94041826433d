"""Records whose times lie beyond the year 9999, as from a producer that sends microseconds for milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.epochs import Lab, lab

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

YEAR_55840_MS = 1_700_000_000_000_000


@pytest.fixture
def stream_of(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Lab]:
    source = topic(partitions=2, message_timestamp_after_max_ms=str(2**63 - 1))
    with lab(tmp_path / "lab", kafka, spark, source) as stream:
        stream.deploy(1)
        yield stream


def test_stream_replay_and_cutover_accept_records_from_the_far_future(stream_of: Lab) -> None:
    stream = stream_of
    stream.produce([("a", 1), ("b", 2)])
    first = stream.start_live()
    stream.produce([("a", 10), ("b", 20)], start_ms=YEAR_55840_MS)
    stream.settle(first)
    stream.produce([("a", 100)], start_ms=1_700_000_060_000)
    stream.settle(first)
    assert stream.balances() == {"a": 111, "b": 22}
    stream.deploy(2)
    second = stream.plan_replay(slice_records=2)
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    control.cut_over(stream.config, stream.name, second, actor="test", reason="twice")
    stream.await_live(second)
    stream.produce([("b", 200)], start_ms=YEAR_55840_MS + 1)
    stream.settle(second)
    assert stream.balances() == {"a": 222, "b": 444}
    assert sorted(stream.sent()) == sorted([("a", 1), ("b", 2), ("a", 10), ("b", 20), ("a", 100), ("b", 400)])
    assert control.certify(stream.config, stream.name).complete
