from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kappa.errors import BrokerUnreachableError, ConflictError, DataLossError, TopologyError
from kappa.kafka import committer, offsets_for_times
from kappa.kafka.broker import Broker
from kappa.kafka.connection import explained
from kappa.kafka.producer import Sender
from kappa.offsets.vector import Offsets
from kappa.wire.encoding import Record

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa_local.kafka import KafkaProcess

pytestmark = pytest.mark.broker


def until(is_true: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def send(kafka: Broker, topic: str, *values: bytes, times_ms: Iterable[int] | None = None) -> None:
    """Plain records, no transaction: no markers in between."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value, at in zip(values, times_ms or [0] * len(values), strict=True):
        producer.produce(topic, value, b"k", partition=0, timestamp=at)
    assert producer.flush(10) == 0


def transact(kafka: Broker, topic: str, *times_ms: int, abort: bool = False) -> None:
    with Sender(kafka.bootstrap_servers, f"{topic}.writer", f"{topic}.group") as sender:
        sender.init()
        sender.begin()
        sender.extend(Record(topic, b"k", b"%d" % at, timestamp_ms=at) for at in times_ms)
        if abort:
            assert sender._producer is not None
            sender._producer.flush(10)  # an abort drops what is still queued: the log shall hold aborted records
            sender.abort()
        else:
            sender.commit(None)
        sender.init()  # returns when the markers are written


def end_of(kafka: Broker, topic: str) -> int:
    return kafka.stable_offsets([topic])[topic, 0]


def test_an_empty_topic_starts_and_ends_at_zero(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(2)
    zero = Offsets({name: {0: 0, 1: 0}})
    assert kafka.low_watermarks([name]) == kafka.high_watermarks([name]) == kafka.stable_offsets([name]) == zero
    assert kafka.last_record(name, 1) is None
    assert list(kafka.fold(name)) == []
    assert kafka.partitions(name) == 2


def test_an_open_transaction_holds_the_stable_end_back(kafka: Broker, topic: TopicFactory) -> None:
    name = topic()
    send(kafka, name, b"a", b"b")
    with Sender(kafka.bootstrap_servers, name, name) as sender:
        sender.init()
        sender.begin()
        sender.extend([Record(name, b"k", b"open")])
        until(lambda: kafka.high_watermarks([name])[name, 0] == 3)
        assert end_of(kafka, name) == 2
        assert [pair for batch in kafka.fold(name) for pair in batch] == [(b"k", b"a"), (b"k", b"b")]
        with pytest.raises(
            DataLossError, match=r"readable up to offset 2, but records up to 3 .* a transaction is still open"
        ):
            list(kafka.fold(name, Offsets({name: {0: 3}})))
        sender.commit(None)
        until(lambda: end_of(kafka, name) == 4)  # the record and the marker


def test_records_below_the_low_watermark_are_refused_with_the_numbers(kafka: Broker, topic: TopicFactory) -> None:
    name = topic()
    send(kafka, name, b"a", b"b", b"c")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.delete_records([TopicPartition(name, 0, 2)]).values():
        answer.result()
    assert kafka.low_watermarks([name]) == Offsets({name: {0: 2}})
    with pytest.raises(
        DataLossError, match=r"starts at offset 2, but records from 1 on were requested: 1 offsets"
    ) as caught:
        list(kafka.read(Offsets({name: {0: 1}}), Offsets({name: {0: 3}})))
    assert caught.value.data["low_watermark"] == 2
    assert kafka.last_record(name, 0) == (b"k", b"c", 2)
    assert [
        message.value()
        for batch in kafka.read(Offsets({name: {0: 2}}), kafka.stable_offsets([name]))
        for message in batch
    ] == [b"c"]


def test_a_time_is_the_first_record_that_reaches_it(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(2)
    send(kafka, name, b"a", b"b", b"c", b"d", times_ms=[100, 300, 200, 400])
    at = (name, 0)
    assert [kafka.offsets_for_time([name], ms)[at] for ms in (0, 100, 101, 300, 301, 400)] == [0, 0, 1, 1, 3, 3]
    assert kafka.offsets_for_time([name], 401) == Offsets({name: {0: 4, 1: 0}})
    assert kafka.first_at_or_after([name], 400) == {at: 3, (name, 1): None}
    assert kafka.first_at_or_after([name], 401) == {at: None, (name, 1): None}


@pytest.mark.parametrize("grain", [1, 3, 1000])
def test_markers_and_aborted_records_have_no_time(
    kafka: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, grain: int
) -> None:
    monkeypatch.setattr(offsets_for_times, "GRAIN", grain)
    name, draw = topic(), random.Random(grain)
    for _ in range(6):
        transact(kafka, name, *(draw.randrange(100, 200) for _ in range(draw.randrange(1, 6))))
        transact(kafka, name, 10**6, abort=True)
    log = [
        (m.offset(), m.timestamp()[1]) for batch in kafka.read(Offsets(), kafka.stable_offsets([name])) for m in batch
    ]
    times = list(range(98, 203))
    draw.shuffle(times)
    for ms in times:
        expected = next((offset for offset, at in log if at >= ms), None)
        assert kafka.first_at_or_after([name], ms)[name, 0] == expected
        assert kafka.offsets_for_time([name], ms)[name, 0] == (end_of(kafka, name) if expected is None else expected)


def test_records_between_two_answers_are_not_assumed_known(
    kafka: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_for_times, "GRAIN", 1)
    name = topic()
    with Sender(kafka.bootstrap_servers, name, name) as sender:
        sender.init()
        sender.begin()
        for aborted, committed in ((100, [60, 250, 300]), (400, [150])):
            sender.extend([Record(name, b"k", b"", timestamp_ms=aborted)])
            assert sender._producer is not None
            sender._producer.flush(10)
            send(kafka, name, *[b"" for _ in committed], times_ms=committed)
        sender.abort()
        sender.init()
    answers = [kafka.first_at_or_after([name], ms)[name, 0] for ms in (100, 400, 200, 61, 260)]
    assert answers == [2, None, 2, 2, 3]


@pytest.mark.parametrize("grain", [1, 3, 1000])
def test_records_before_an_offset_do_not_count_on_request(
    kafka: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, grain: int
) -> None:
    monkeypatch.setattr(offsets_for_times, "GRAIN", grain)
    name, draw = topic(), random.Random(grain)
    transact(kafka, name, 100, 10**12, 120)  # the second one is of the future
    for _ in range(6):
        transact(kafka, name, *(draw.randrange(100, 200) for _ in range(draw.randrange(1, 6))))
    log = [
        (m.offset(), m.timestamp()[1]) for batch in kafka.read(Offsets(), kafka.stable_offsets([name])) for m in batch
    ]
    began = log[2][0]
    for since, _ in log[2:]:  # as slices ask, one after the other
        reached = max((at for offset, at in log if began <= offset < since), default=-1)
        for ms in draw.sample(range(reached + 1, 205), min(6, 204 - reached)):
            expected = next((offset for offset, at in log if at >= ms and offset >= since), end_of(kafka, name))
            assert kafka.offsets_for_time([name], ms, Offsets({name: {0: since}}))[name, 0] == expected
    assert kafka.first_at_or_after([name], 10**9)[name, 0] == log[1][0]  # where nothing is said, everything counts


def test_the_last_record_is_found_before_trailing_markers_and_aborted_records(
    kafka: Broker, topic: TopicFactory
) -> None:
    name = topic()
    transact(kafka, name, *range(40), abort=True)
    assert kafka.last_record(name, 0) is None
    transact(kafka, name, 1, 2)
    transact(kafka, name, *range(500), abort=True)
    record = kafka.last_record(name, 0)
    assert record is not None
    assert record[:2] == (b"k", b"2")


def test_a_compacted_topic_is_read_across_its_gaps(kafka: Broker, topic: TopicFactory) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    eager = ConfigEntry("log.cleaner.backoff.ms", "50", incremental_operation=AlterConfigOpType.SET)
    everywhere = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[eager])
    for answer in admin.incremental_alter_configs([everywhere]).values():
        answer.result()
    name = topic(cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0")
    sent = 0

    def is_compacted() -> bool:
        nonlocal sent
        sent += 1
        transact(kafka, name, sent)
        values = [value for batch in kafka.fold(name) for _, value in batch]
        assert values[-1] == b"%d" % sent
        return len(values) < sent

    until(is_compacted, 60)
    assert kafka.topic_configs([name])[name]["cleanup.policy"] == "compact"
    record = kafka.last_record(name, 0)
    assert record is not None
    assert record[:2] == (b"k", b"%d" % sent)


def test_a_fold_gives_pairs_in_order_up_to_its_end(kafka: Broker, topic: TopicFactory) -> None:
    name = topic()
    with Sender(kafka.bootstrap_servers, name, name) as sender:
        sender.init()
        sender.send([Record(name, b"a", b"1"), Record(name, b"b", b"2"), Record(name, b"a", None)], None)
        sender.init()
        end = kafka.stable_offsets([name])
        sender.send([Record(name, b"b", None)], None)
    assert [pair for batch in kafka.fold(name, end) for pair in batch] == [(b"a", b"1"), (b"b", b"2"), (b"a", None)]
    first = Offsets({name: {0: 1}, "another": {0: 9}})
    assert [pair for batch in kafka.fold(name, first) for pair in batch] == [(b"a", b"1")]


def test_group_offsets_are_set_read_and_deleted(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(2)
    assert kafka.group_offsets(name) == Offsets()
    kafka.set_group_offsets(name, Offsets({name: {0: 5, 1: 7}}))
    kafka.set_group_offsets(name, Offsets({name: {1: 3}}))
    assert kafka.group_offsets(name) == Offsets({name: {0: 5, 1: 3}})
    assert kafka.group_position(name, [(name, 1)]) == Offsets({name: {1: 3}})
    assert kafka.groups(name) == (name,)
    kafka.delete_group(name)
    kafka.delete_group(name)
    assert kafka.group_offsets(name) == Offsets()
    assert kafka.groups(name) == ()


def test_group_offsets_are_set_again_after_failing_in_an_outage(
    mortal_broker: KafkaProcess, topic: TopicFactory
) -> None:
    name = topic()
    partitions = [(name, 0)]
    with Broker(mortal_broker.bootstrap_servers, timeout_seconds=2.0) as client:
        for number in range(3):
            client.set_group_offsets(name, Offsets({name: {0: number}}))
            assert client.group_position(name, partitions) == Offsets({name: {0: number}})
            mortal_broker.kill()
            with pytest.raises(BrokerUnreachableError):
                client.set_group_offsets(name, Offsets({name: {0: 100}}))
            mortal_broker.restart()
            either = [Offsets({name: {0: offset}}) for offset in (number, 100)]
            # The broker may take longer than the client waits. A commit without an answer may still be made.
            with Broker(mortal_broker.bootstrap_servers) as another:
                assert another.group_position(name, partitions) in either
            assert client.group_position(name, partitions) in either


class Hanging(Consumer):  # type: ignore[misc]
    """A consumer whose group coordinator went away: the client comes back neither from a commit nor from closing."""

    def __init__(self, settings: dict[str, Any], until: threading.Event) -> None:
        super().__init__(settings)
        self._until = until

    def commit(self, **_: object) -> list[TopicPartition]:
        self._until.wait(60)
        return []

    def close(self) -> None:
        self._until.wait(60)


def test_a_hanging_commit_times_out_and_the_next_one_succeeds(
    broker: KafkaProcess, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, released = topic(), threading.Event()
    with Broker(broker.bootstrap_servers, timeout_seconds=2.0) as client:
        monkeypatch.setattr(committer, "Consumer", lambda settings: Hanging(settings, released))
        with pytest.raises(BrokerUnreachableError, match="did not end in 3 s"):
            client.set_group_offsets(name, Offsets({name: {0: 1}}))
        with monkeypatch.context() as again:
            again.setattr(committer, "Consumer", Consumer)
            client.set_group_offsets(name, Offsets({name: {0: 2}}))
            assert client.group_position(name, [(name, 0)]) == Offsets({name: {0: 2}})
        client.group_position(f"{name}.other", [(name, 0)])  # its consumer hangs when it is closed
    released.set()


def test_a_group_with_members_is_left_alone(kafka: Broker, topic: TopicFactory) -> None:
    name = topic()
    member = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name})
    member.subscribe([name])
    try:
        until(lambda: member.poll(0.05) is None and bool(member.assignment()))
        with pytest.raises(ConflictError, match="has members"):
            kafka.set_group_offsets(name, Offsets({name: {0: 0}}))
        with pytest.raises(ConflictError, match="has members"):
            kafka.delete_group(name)
    finally:
        member.close()


def test_configured_settings_override_those_of_a_created_topic(kafka: Broker) -> None:
    name = "test.settings.over"
    over = {"retention.ms": "1000000", "segment.ms": ""}
    with Broker(kafka.bootstrap_servers, topic_settings=over) as client:
        client.create_topic(name, 1, {"retention.ms": "-1", "segment.ms": "3600000", "cleanup.policy": "compact"})
    try:
        config = kafka.topic_configs([name])[name]
        assert (config["retention.ms"], config["segment.ms"], config["cleanup.policy"]) == (
            "1000000",
            "604800000",
            "compact",
        )
    finally:
        kafka.delete_topics([name])
    refused = explained(KafkaError(KafkaError.POLICY_VIOLATION, "too long"), "here:9092", f"creating topic {name!r}")
    assert isinstance(refused, TopologyError)
    assert "KAPPA_TOPIC_SETTINGS" in str(refused) and "too long" in str(refused)


def test_a_recreated_topic_has_another_id(kafka: Broker, topic: TopicFactory) -> None:
    name = topic()
    before = kafka.topic_ids([name])
    kafka.delete_topics([name])
    assert kafka.create_topic(name, 1)
    assert kafka.topic_ids([name])[name] != before[name]


def test_creating_a_topic_is_idempotent_and_never_changes_one(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(2)
    assert not kafka.create_topic(name, 2)
    with pytest.raises(TopologyError, match="exists with 2 partitions; 3 were requested"):
        kafka.create_topic(name, 3)
    with pytest.raises(TopologyError, match="exists"):
        kafka.create_topic(name, 2, exists_ok=False)
    with pytest.raises(TopologyError, match=r"no\.such\.setting"):
        kafka.create_topic(name + ".new", 1, {"no.such.setting": "1"})
    assert kafka.topics(name) == (name,)


def test_deleted_topics_are_gone_and_missing_ones_are_ignored(kafka: Broker, topic: TopicFactory) -> None:
    name = topic()
    kafka.delete_topics([name, name + ".never"])
    assert kafka.topics(name) == ()
    assert not [other for other in kafka.topics() if other.startswith("__")]


@pytest.mark.parametrize(
    "ask",
    [
        lambda kafka, name: kafka.low_watermarks([name]),
        lambda kafka, name: kafka.offsets_for_time([name], 5),
        lambda kafka, name: kafka.partitions(name),
        lambda kafka, name: kafka.topic_ids([name]),
        lambda kafka, name: kafka.topic_configs([name]),
        lambda kafka, name: kafka.last_record(name, 0),
        lambda kafka, name: list(kafka.fold(name)),
    ],
)
def test_an_unknown_topic_is_named_with_similar_ones(
    kafka: Broker, topic: TopicFactory, ask: Callable[[Broker, str], Any]
) -> None:
    name = topic()
    with pytest.raises(TopologyError, match="does not exist") as caught:
        ask(kafka, name + "x")
    assert name in caught.value.data["near"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda kafka: kafka.topics(),
        lambda kafka: kafka.stable_offsets(["pos"]),
        lambda kafka: kafka.group_offsets("g"),
        lambda kafka: kafka.group_position("g", [("pos", 0)]),
        lambda kafka: kafka.set_group_offsets("g", Offsets({"pos": {0: 1}})),
        lambda kafka: kafka.create_topic("pos", 1),
        lambda kafka: kafka.delete_topics(["pos"]),
    ],
)
def test_every_request_to_unreachable_brokers_times_out(ask: Callable[[Broker], Any]) -> None:
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1 does not answer .*kappa up"):
        ask(Broker("127.0.0.1:1", timeout_seconds=0.5))


@pytest.mark.parametrize(
    "ask", [lambda address: Broker(address).stable_offsets(["pos"]), lambda address: Sender(address, "t", "g").init()]
)
def test_unreachable_brokers_are_an_error_without_any_setting(ask: Callable[[str], Any]) -> None:
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1 does not answer .*kappa up"):
        ask("127.0.0.1:1")


def test_a_sample_is_the_first_few_records_of_each_nonempty_partition(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, count in ((0, 300), (1, 2)):
        for number in range(count):
            producer.produce(name, b"%d" % number, b"k", partition=partition, timestamp=number)
    assert producer.flush(10) == 0
    end = kafka.stable_offsets([name])
    starts = [Offsets({name: {0: 150, 1: 0, 2: 0}}), Offsets({name: {0: 299, 1: 2}}), Offsets({name: {0: 0}})]
    offsets = [
        {at[1]: [message.offset() for message in messages] for at, messages in sample.items()}
        for sample in kafka.sample(starts, end, most=20)
    ]
    assert offsets == [{0: list(range(150, 170)), 1: [0, 1]}, {0: [299]}, {0: list(range(20))}]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for answer in admin.delete_records([TopicPartition(name, 0, 200)]).values():
        answer.result()
    assert kafka.sample([Offsets({name: {0: 150, 1: 1}})], end)[0].keys() == {(name, 1)}
    transact(kafka, name, 1, 2, abort=True)
    ends = kafka.stable_offsets([name])
    assert kafka.sample([Offsets({name: {0: 300}})], ends)[0] == {}, "aborted records and markers are none"


def test_records_that_go_after_kafkas_answer_about_a_time_are_no_failure(
    kafka: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    send(kafka, name, *[b"v"] * 300, times_ms=range(300))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    confirmed, removals = offsets_for_times.Confirmer.first_records, [200, 250]

    def removed_first(confirmer: offsets_for_times.Confirmer, *arguments: Any) -> dict[tuple[str, int], int]:
        if removals:
            for answer in admin.delete_records([TopicPartition(name, 0, removals.pop(0))]).values():
                answer.result()
        return confirmed(confirmer, *arguments)

    monkeypatch.setattr(offsets_for_times.Confirmer, "first_records", removed_first)
    assert kafka.first_at_or_after(iter([name]), 100) == {(name, 0): 250}
    assert removals == []


def test_the_settings_of_a_broker_are_read_with_their_defaults(kafka: Broker) -> None:
    config = kafka.broker_config()
    assert config["log.retention.check.interval.ms"] == "300000"
    assert config["auto.create.topics.enable"] == "false"
