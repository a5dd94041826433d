"""A version that reads another topic than the live one: it goes on by itself, and no report calls the two equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from confluent_kafka import Producer
from support.epochs import Lab, plain_settings

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def produce(stream: Lab, topic: str, *rows: tuple[str, int]) -> None:
    producer = Producer(plain_settings(stream.config.bootstrap_servers))
    for account, amount in rows:
        producer.produce(topic, orjson.dumps({"id": account, "amount": amount}), account)
    assert producer.flush(30) == 0


def test_a_candidate_of_a_renamed_topic_reports_no_topic_in_common(stream: Lab, topic: TopicFactory) -> None:
    renamed = topic(partitions=2)
    stream.produce([("a", 1), ("b", 2)])
    live = stream.start_live()
    produce(stream, renamed, ("a", 1), ("b", 2), ("c", 3))
    stream.deploy(2)
    file = stream.config.topologies / "balances.py"
    file.write_text(
        file.read_text()
        .replace(f'Source(topic="{stream.topic}"', f'Source(topic="{renamed}"')
        .replace(f'slice["{stream.topic}"]', f'slice["{renamed}"]')
    )
    second = stream.plan_replay()
    stream.run(second)
    stream.settle(second, topics=[renamed])
    stream.await_stage(second, Stage.VERIFIED)
    produce(stream, renamed, ("a", 10))
    stream.settle(second, topics=[renamed])
    assert stream.balances(second) == {"a": 22, "b": 4, "c": 6}
    assert stream.balances(live) == {"a": 1, "b": 2}
    (note,) = [note for note in control.diff(stream.config, stream.name, second).notes if "no topic in common" in note]
    assert stream.topic in note and renamed in note
