"""Topics of an epoch, counted again: missing, changed, repeated and foreign records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from confluent_kafka import Producer
from support.epochs import lab, read_messages
from support.kills import OUTPUT, Mortal

from kappa import control, faults
from kappa.replay.starts import FromSavepoint
from kappa.verify import topic_comparison
from kappa.verify.recount import Recount
from kappa.verify.topic_recount import recount_topics

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TOPICS = (
    OUTPUT
    + ' Topic(name="{topic}.balances", of="balances", key="id", columns="total", on_replay="reconcile"),'
    + ' Topic(name="{topic}.story", of="moves", key="id", columns=["id", "total"], on_replay="versioned"),'
)


@pytest.fixture
def stream(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mortal]:
    with lab(tmp_path / "world", kafka, spark, topic(partitions=2), kind=Mortal) as stream:
        monkeypatch.setattr(faults, "os", stream.reaper)
        stream.outputs = TOPICS
        yield stream
        kafka.delete_topics(kafka.topics(f"{stream.topic}."))


def counted(stream: Mortal, kafka: Broker, epoch: int) -> Recount:
    return recount_topics(stream.config, stream.paths(epoch), kafka)


def columns_of_values(stream: Mortal, topic: str) -> set[tuple[str, ...]]:
    messages = read_messages(stream.config.bootstrap_servers, topic)
    return {tuple(orjson.loads(message.value())) for message in messages if message.value() is not None}


def send(stream: Mortal, topic: str, key: bytes, value: bytes | None, seq: int | None = None) -> None:
    producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers, "partitioner": "murmur2_random"})
    headers = None if seq is None else [("seq", str(seq).encode())]
    producer.produce(topic, value, key, headers=headers)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("records", [topic_comparison.RECORDS, 3], ids=["in one reading", "in several"])
def test_missing_changed_repeated_and_foreign_records_are_reported(
    stream: Mortal, kafka: Broker, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    monkeypatch.setattr(topic_comparison, "RECORDS", records)
    first = stream.live_first()
    moves, story = f"{stream.topic}.moves", stream.paths(first).versioned(f"{stream.topic}.story")
    report = counted(stream, kafka, first)
    assert report.problems == () and report.unread == ()
    assert f"topic {moves}: 8 rows sent, 8 found, 0 other records" in report.read
    assert any(line.startswith(f"changelog {stream.paths(first).changelog('balances')}: ") for line in report.read)

    stream.deploy(2)
    second = stream.verified()
    assert counted(stream, kafka, second).problems == (), "a candidate has sent to its versioned topic only"
    stream.cut_over_to(second)
    stream.tell([("a", 1), ("n", 2)], minute=1)
    assert counted(stream, kafka, second).problems == ()
    assert counted(stream, kafka, first).problems == (), "what others sent to a topic is not checked against an epoch"
    assert columns_of_values(stream, f"{stream.topic}.balances") == {("total",)}
    assert columns_of_values(stream, stream.paths(second).versioned(f"{stream.topic}.story")) == {("id", "total")}

    changelog, seq = stream.paths(second).changelog("balances"), stream.ledger(second).state().seq
    send(stream, changelog, b'{"id":"x"}', b'{"id":"x","total":1}', seq)
    send(stream, changelog, b'{"id":"a"}', b'{"id":"a","total":1}', seq)
    send(stream, changelog, b'{"id":"b"}', None, seq)
    send(stream, f"{stream.topic}.balances", b"c", None)
    record = next(
        read_messages(stream.config.bootstrap_servers, stream.paths(second).versioned(f"{stream.topic}.story"))
    )
    send(stream, record.topic() or "", record.key() or b"", record.value())
    named, topic, own = sorted(counted(stream, kafka, second).problems)
    assert named.startswith(
        f"changelog {changelog} is not what table balances holds: 1 keys of the table are not in it, 1 keys have"
    )
    assert "1 keys are not in the table" in named and named.endswith(f"kappa replay {stream.name}")
    assert topic.startswith(
        f"topic {stream.topic}.balances is not what table balances holds: 1 keys of the table are not in it"
    )
    assert own.startswith(f"topic {record.topic()} holds 1 records more than once.")

    lost = list(read_messages(stream.config.bootstrap_servers, story))[1:]
    kafka.delete_topics([story])
    kafka.create_topic(story, 2)
    for message in lost:
        send(stream, story, message.key() or b"", message.value())
    (problem,) = counted(stream, kafka, first).problems
    assert problem.startswith(f"topic {story} lacks 1 of 8 records that the ledger says were sent.")
    kafka.delete_topics([story])
    kafka.create_topic(story, 2, {"cleanup.policy": "compact"})
    for message in lost:
        send(stream, story, message.key() or b"", message.value())
    report = counted(stream, kafka, first)
    assert report.problems == ()
    assert f"Topic {story}: 1 of 8 records, which may have gone with retention or compaction." in report.unread
    kafka.delete_topics([story])
    (problem,) = counted(stream, kafka, first).problems
    assert problem.startswith(f"topic {story} is gone.")


def test_rows_of_a_seed_count_in_a_versioned_topic(stream: Mortal, kafka: Broker) -> None:
    first = stream.live_first([("a", 1), ("a", -1)])
    second = stream.verified(start=FromSavepoint(seq=stream.ledger(first).state().seq))
    stream.tell([("a", 1), ("a", -1)], minute=1)  # the same records again
    stream.settle(second)
    report = counted(stream, kafka, second)
    assert report.problems == ()
    story = stream.paths(second).versioned(f"{stream.topic}.story")
    assert f"topic {story}: 4 rows sent, 4 found, 0 other records" in report.read


def test_a_running_stream_is_counted_as_of_its_ledger(
    stream: Mortal, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = stream.live_first()
    ends = type(kafka).decided_ends

    def later(broker: Broker, topics: list[str]) -> object:
        """Another slice between the look at the ledger and that at the topic."""
        stream.tell([("a", 1), ("new", 5)], minute=stream.ledger(epoch).state().seq)
        return ends(broker, topics)

    monkeypatch.setattr(type(kafka), "decided_ends", later)
    assert counted(stream, kafka, epoch).problems == ()
    assert control.certify(stream.config, stream.name).complete
