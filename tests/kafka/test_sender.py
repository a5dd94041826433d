from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kappa.errors import BrokerUnreachableError, RecordRefusedError, StaleWriterError, TopologyError
from kappa.kafka.broker import Broker
from kappa.kafka.connection import producer_settings
from kappa.kafka.producer import Sender
from kappa.offsets.vector import Offsets
from kappa.wire.encoding import Record

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa_local.kafka import KafkaProcess

pytestmark = pytest.mark.broker

INPUT = Offsets({"pos": {0: 5, 1: 7}})


def values(kafka: Broker, topic: str) -> list[bytes | None]:
    """The records for read_committed, after every commit is settled."""
    with Sender(kafka.bootstrap_servers, f"{topic}.id", f"{topic}.group") as sender:
        sender.init()
    return [value for batch in kafka.fold(topic) for _, value in batch]


@pytest.fixture
def out(topic: TopicFactory) -> str:
    return topic()


@pytest.fixture
def sender(kafka: Broker, out: str) -> Iterator[Sender]:
    with Sender(kafka.bootstrap_servers, f"{out}.id", f"{out}.group") as sender:
        sender.init()
        yield sender


def test_records_and_group_offsets_appear_together(
    kafka: Broker, sender: Sender, out: str, topic: TopicFactory
) -> None:
    source = topic(2)
    read = Offsets({source: {0: 5, 1: 7}})
    sender.begin()
    assert sender.extend([Record(out, b"a", b"1")]) == 1
    assert sender.extend([Record(out, b"b", None), Record(out, None, b"3")]) == 2
    assert kafka.group_offsets(sender.group) == Offsets()
    sender.commit(read)
    sender.init()
    assert [pair for batch in kafka.fold(out) for pair in batch] == [(b"a", b"1"), (b"b", None), (b"", b"3")]
    assert kafka.group_offsets(sender.group) == read


def test_a_sender_sends_one_transaction_after_another(kafka: Broker, sender: Sender, out: str) -> None:
    for n in range(3):
        assert sender.send([Record(out, b"k", b"%d" % n)], None) == 1
    assert sender.send([], None) == 0
    assert values(kafka, out) == [b"0", b"1", b"2"]


def test_headers_and_times_are_kept(kafka: Broker, sender: Sender, out: str) -> None:
    sender.send([Record(out, b"k", b"v", [("seq", b"7")], 1234)], None)
    sender.init()
    [[message]] = kafka.read(Offsets(), kafka.stable_offsets([out]))
    assert message.headers() == [("seq", b"7")]
    assert message.timestamp()[1] == 1234


def murmur2(key: bytes) -> int:
    """Source: org.apache.kafka.common.utils.Utils.murmur2."""
    size, mask, mixer = len(key), 0xFFFFFFFF, 0x5BD1E995
    digest = 0x9747B28C ^ size
    for at in range(0, size - size % 4, 4):
        word = int.from_bytes(key[at : at + 4], "little") * mixer & mask
        digest = (digest * mixer & mask) ^ ((word ^ word >> 24) * mixer & mask)
    if rest := key[size - size % 4 :]:
        digest = (digest ^ int.from_bytes(rest, "little")) * mixer & mask
    digest = (digest ^ digest >> 13) * mixer & mask
    return digest ^ digest >> 15


def test_a_key_goes_to_the_partition_that_java_clients_choose(
    kafka: Broker, sender: Sender, topic: TopicFactory
) -> None:
    assert murmur2(b"foobar") - 2**32 == -790332482  # from Kafka's own UtilsTest
    name = topic(5)
    keys = [b"STR%d" % n for n in range(50)]
    sender.send([Record(name, key, b"") for key in keys], None)
    sender.init()
    for batch in kafka.read(Offsets(), kafka.stable_offsets([name])):
        for message in batch:
            key = message.key()
            assert isinstance(key, bytes)
            assert message.partition() == (murmur2(key) & 0x7FFFFFFF) % 5


def test_law_4_a_paused_writer_that_wakes_up_is_fenced(kafka: Broker, sender: Sender, out: str) -> None:
    sender.begin()
    sender.extend([Record(out, b"k", b"zombie")])
    with Sender(kafka.bootstrap_servers, sender.transactional_id, sender.group) as successor:
        successor.init()
        successor.send([Record(out, b"k", b"successor")], INPUT.only([]))
        with pytest.raises(StaleWriterError, match="another writer initialised the same id"):
            sender.commit(None)
        successor.send([Record(out, b"k", b"again")], None)
    assert values(kafka, out) == [b"successor", b"again"]


def test_a_fenced_writer_cannot_begin(kafka: Broker, sender: Sender, out: str) -> None:
    with Sender(kafka.bootstrap_servers, sender.transactional_id, sender.group) as successor:
        successor.init()
        with pytest.raises(StaleWriterError):
            sender.send([Record(out, b"k", b"zombie")], None)
    assert values(kafka, out) == []


def test_a_record_too_large_aborts_the_whole_transaction(
    kafka: Broker, topic: TopicFactory, sender: Sender, out: str
) -> None:
    small = topic(max_message_bytes="1000")
    kafka.set_group_offsets(sender.group, Offsets({out: {0: 1}}))
    records = [
        Record(out, b"k", b"first"),
        Record(small, b"k", random.Random(1).randbytes(5000)),
        Record(out, b"k", b"last"),
    ]
    with pytest.raises(RecordRefusedError, match=r"5001 bytes is refused.*\(max\.message\.bytes=1000\)") as refused:
        sender.send(records, Offsets({out: {0: 2}}))
    assert (refused.value.data["topic"], refused.value.data["code"]) == (small, "MSG_SIZE_TOO_LARGE")
    assert sender.refused is not None
    assert sender.refused.value == records[1].value
    assert kafka.group_offsets(sender.group) == Offsets({out: {0: 1}})
    assert values(kafka, out) == []
    sender.init()
    assert sender.send([records[0], records[2]], Offsets({out: {0: 2}})) == 2
    assert values(kafka, out) == [b"first", b"last"]
    assert kafka.group_offsets(sender.group) == Offsets({out: {0: 2}})


HOUR = 3600 * 1000


@pytest.mark.parametrize(
    ("settings", "bad", "setting"),
    [
        (
            {"message_timestamp_before_max_ms": "1000"},
            Record("", b"k", b"v", None, 5),
            "message.timestamp.before.max.ms",
        ),
        (
            {"message_timestamp_after_max_ms": "1000"},
            Record("", b"k", b"v", None, 1000 * HOUR * 1000),
            "message.timestamp.after.max.ms",
        ),
        (
            {"message_timestamp_after_max_ms": "1000"},
            Record("", b"k", b"v", None, 1_772_323_200_000_000),
            "message.timestamp.after.max.ms",
        ),
        ({"cleanup_policy": "compact"}, Record("", None, b"v"), "cleanup.policy"),
        ({"cleanup_policy": "compact,delete"}, Record("", None, None), "cleanup.policy"),
        ({"max_message_bytes": "3000"}, Record("", b"k", random.Random(2).randbytes(4000)), "max.message.bytes"),
        ({"segment_bytes": str(1 << 20)}, Record("", b"k", random.Random(3).randbytes(1 << 21)), "max.message.bytes"),
        (
            {"segment_bytes": str(1 << 20), "max_message_bytes": str(1 << 22)},
            Record("", b"k", random.Random(3).randbytes(1 << 21)),
            "segment.bytes",
        ),
    ],
    ids=["before", "after", "after the calendar", "no key", "null key and value", "large", "larger", "segment"],
)
@pytest.mark.parametrize("again", [0, 2])  # the client words a batch with several of them otherwise
def test_a_record_that_a_topic_never_accepts_is_reported_with_the_setting(
    sender: Sender, topic: TopicFactory, settings: dict[str, str], bad: Record, setting: str, again: int
) -> None:
    name = topic(**settings)
    good = [Record(name, b"%d" % n, b"secret") for n in range(3)]
    with pytest.raises(RecordRefusedError) as refused:
        sender.send([*good, bad._replace(topic=name), *good, *again * [bad._replace(topic=name)]], None)
    error = refused.value
    assert (error.data["topic"], error.data["setting"]) == (name, setting)
    assert f"{setting}={error.data['value']}" in str(error)
    assert f"--entity-name {name} --alter --add-config {setting}=" in str(error)
    assert "secret" not in str(error)
    assert sender.refused is not None
    assert sender.refused == bad._replace(topic=name)


def test_a_record_too_large_for_the_client_is_refused(sender: Sender, out: str) -> None:
    with pytest.raises(RecordRefusedError, match=f"A record of {1 + (65 << 20)} bytes is refused by topic '{out}'"):
        sender.send([Record(out, b"k", b"first"), Record(out, b"k", b"x" * (65 << 20))], None)


def test_many_small_records_fit_a_topic_with_a_small_limit(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(max_message_bytes="5000")
    records = [Record(name, b"%d" % n, random.Random(n).randbytes(900)) for n in range(200)]
    with Sender(kafka.bootstrap_servers, f"{name}.id", f"{name}.group", batch_bytes=5000) as sender:
        sender.init()
        assert sender.send(records, None) == 200
    assert len(values(kafka, name)) == 200


def test_a_missing_topic_is_named_and_nothing_is_sent(kafka: Broker, sender: Sender, out: str) -> None:
    with pytest.raises(TopologyError, match=f"'{out}.missing' does not exist"):
        sender.send([Record(out, b"k", b"first"), Record(f"{out}.missing", b"k", b"second")], None)
    assert values(kafka, out) == []


def test_an_error_while_making_records_aborts(kafka: Broker, sender: Sender, out: str) -> None:
    def broken() -> Iterator[Record]:
        yield Record(out, b"k", b"first")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sender.send(broken(), None)
    with pytest.raises(RuntimeError, match="Call init"):
        sender.begin()
    sender.init()
    sender.send([Record(out, b"k", b"second")], None)
    assert values(kafka, out) == [b"second"]


def test_more_records_than_the_queue_holds_are_one_transaction(
    kafka: Broker, sender: Sender, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"queue.buffering.max.messages": 100}
    monkeypatch.setattr("kappa.kafka.producer.producer_settings", lambda servers: producer_settings(servers) | small)
    sender.init()
    name, count = topic(3), 5_000
    assert sender.send((Record(name, b"%d" % n, None) for n in range(count)), None) == count
    sender.init()
    assert sorted(int(key) for batch in kafka.fold(name) for key, _ in batch) == list(range(count))


def test_law_4_a_writer_killed_in_its_transaction_leaves_nothing(kafka: Broker, sender: Sender, out: str) -> None:
    sender.close()
    script = textwrap.dedent(f"""
        from kappa.kafka.producer import Sender
        from kappa.wire.encoding import Record
        sender = Sender({kafka.bootstrap_servers!r}, {sender.transactional_id!r}, {sender.group!r})
        sender.init()
        sender.begin()
        sender.extend(Record({out!r}, b"k", b"%d" % n) for n in range(1000))
        sender._producer.flush(10)
        print("written", flush=True)
        input()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.kill()
    assert kafka.high_watermarks([out]) == Offsets({out: {0: 1000}})
    assert kafka.stable_offsets([out]) == Offsets({out: {0: 0}})
    sender.init()
    sender.send((Record(out, b"k", b"%d" % n) for n in range(1000)), None)
    assert values(kafka, out) == [b"%d" % n for n in range(1000)]


def test_a_transaction_survives_a_killed_and_restarted_broker(
    mortal_broker: KafkaProcess, kafka: Broker, sender: Sender, out: str
) -> None:
    sender.send([Record(out, b"k", b"before")], None)
    sender.begin()
    sender.extend(Record(out, b"k", b"%d" % n) for n in range(100))
    mortal_broker.kill()
    sender.extend(Record(out, b"k", b"%d" % n) for n in range(100, 200))
    mortal_broker.restart()
    try:
        sender.commit(None)
    except BrokerUnreachableError:  # allowed; then it is known to be aborted, and sent again
        sender.init()
        assert [value for batch in kafka.fold(out) for _, value in batch] == [b"before"]
        sender.send((Record(out, b"k", b"%d" % n) for n in range(200)), None)
    assert values(kafka, out) == [b"before", *(b"%d" % n for n in range(200))]


class Hanging(Producer):  # type: ignore[misc]
    """A producer whose group coordinator went away: the client never comes back from adding offsets."""

    def __init__(self, settings: dict[str, Any], until: threading.Event) -> None:
        super().__init__(settings)
        self._until = until

    def send_offsets_to_transaction(self, *_: object) -> None:
        self._until.wait(30)

    def abort_transaction(self, *_: object) -> None:
        raise AssertionError("it would hang, too")


def test_adding_offsets_times_out_and_the_next_init_goes_on(
    kafka: Broker, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, position = threading.Event(), Offsets({out: {0: 1}})
    monkeypatch.setattr("kappa.kafka.producer.OFFSETS_SECONDS", 0.1)
    monkeypatch.setattr("kappa.kafka.producer.Producer", lambda settings: Hanging(settings, released))
    with Sender(kafka.bootstrap_servers, f"{out}.id", f"{out}.group") as sender:
        sender.init()
        sender.begin()
        sender.extend([Record(topic=out, key=b"k", value=b"lost")])
        with pytest.raises(BrokerUnreachableError, match="were not accepted") as refused:
            sender.commit(position)
        assert refused.value.data["outcome"] == "aborted"
        monkeypatch.undo()
        sender.init()
        sender.send([Record(topic=out, key=b"k", value=b"kept")], position)
    released.set()
    assert values(kafka, out) == [b"kept"]
    assert kafka.group_offsets(f"{out}.group") == position
