"""The streams of the page, as files, started as a user starts them: a real broker, a real driver, a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from support.epochs import lab, plain_settings
from support.five_streams import LOGS, RESULTS, fence, picked, topology_of
from support.joint_topologies import Member

from kappa import serving
from kappa.delta import queries
from kappa.replay.stages import Stage
from kappa.wire.inputs import input_key, input_value

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

#: Kafka takes a timestamp of 0 for none.
BEGIN = 1_700_000_000_000


@pytest.mark.parametrize("title", LOGS)
def test_the_code_of_the_page_runs_live_and_in_a_replay(
    title: str, tmp_path: Path, kafka: Broker, spark: SparkSession
) -> None:
    topology, (_, _, expected) = topology_of(title), RESULTS[title]
    kafka.delete_topics(set(topology.source_topics) & set(kafka.topics()))
    for source in topology.source_topics:
        kafka.create_topic(source, partitions=1, config={"retention.ms": "-1"})
    produce(kafka, title)
    with lab(tmp_path / "lab", kafka, spark, topology.source_topics[0]) as stream:
        (stream.config.topologies / "one.py").write_text(fence(title, "python"))
        member = Member(
            name=topology.name, config=stream.config, kafka=kafka, topic=topology.source_topics[0], session=spark
        )
        try:
            member.start_live()
            member.settle(1, topology.source_topics)
            assert rows_of(member, 1, title) == expected
            second = member.plan_replay()
            member.run(second)
            member.await_stage(second, Stage.VERIFIED)
            assert rows_of(member, second, title) == expected
        finally:
            member.close()


def produce(kafka: Broker, title: str) -> None:
    """The records of a stream, as other programs send them."""
    sources = {source.topic: source for source in topology_of(title).sources}
    producer = Producer(plain_settings(kafka.bootstrap_servers))
    for item in LOGS[title]:
        source = sources[item.topic]
        producer.produce(
            item.topic,
            key=input_key(source, item.key),
            value=input_value(source, item.value),
            partition=0,
            timestamp=BEGIN + (item.timestamp_ms or 0),
        )
    assert producer.flush(30) == 0


def rows_of(member: Member, epoch: int, title: str) -> list[tuple[object, ...]]:
    """What an epoch keeps of the result."""
    place = RESULTS[title][0]
    topology = topology_of(title)
    is_table = place in {table.name for table in topology.tables}
    if is_table:
        rows = serving.snapshot(member.config, member.name, epoch=epoch).rows(place).to_pylist()
    else:
        rows = queries.query(member.paths(epoch).output(place), None).to_pylist()
    return picked(title, rows)
