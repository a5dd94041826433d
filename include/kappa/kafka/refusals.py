"""Records that a broker will never accept: the record, the topic, and the setting that refuses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message

from kappa import clock
from kappa.errors import KappaError, RecordRefusedError, Transient
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import creator_options
from kappa.topology.times.event_time import shown

if TYPE_CHECKING:
    from kappa.wire.encoding import Record

_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
#: Errors of a record itself; a missing right is not among them, since it affects every record.
REFUSED = {
    *_TOO_LARGE,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
    KafkaError.POLICY_VIOLATION,
}
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
#: The code of the other records, if several of a batch are refused.
_BESIDE_ANOTHER = KafkaError._INVALID_DIFFERENT_RECORD
#: Greatest time that is always accepted.
_ANY = 2**63 - 1
#: Bytes of a batch and its record besides key and value.
_FRAME = 200


class Undelivered:
    """Records of a transaction that were not delivered.

    A broker refuses a batch as a whole, for one record of it: the whole batch is here, and :func:`refusal` looks for
    that record.

    Attributes:
        count: their number.
        error: why the first one was not; None if all were delivered.
        records: records of its topic that failed for the same reason, in the order in which they were sent.
    """

    def __init__(self) -> None:
        self.count = 0
        self.error: KafkaError | None = None
        self.records: list[Record] = []

    def add(self, error: KafkaError | None, message: Message) -> None:
        """Note the delivery report of a record that has the time of sending."""
        if error is not None:  # every record has a report
            self.add_at(None, error, message)

    def add_at(self, timestamp_ms: int | None, error: KafkaError | None, message: Message) -> None:
        """Note the delivery report of a record with a time of its own, which the report does not contain."""
        if error is None or error.code() in _PURGED:
            return
        self.count += 1
        if self.error is None or self.error.code() == _BESIDE_ANOTHER != error.code():
            self.error, self.records = error, []
        if error.code() == self.error.code() and (not self.records or self.records[0].topic == message.topic()):
            self.records.append(_record_of(message, timestamp_ms))

    def too_large(self, error: KafkaError, record: Record) -> None:
        """Note a record that is too large for the client, which does not even try to send it."""
        if self.error is None:
            self.count, self.error, self.records = 1, error, [record]


def size_of(record: Record) -> int:
    """Bytes of key and value."""
    return len(record.key or b"") + len(record.value or b"")


def least_batch(broker: Broker, topics: Iterable[str]) -> int:
    """Largest batch that all of these topics accept, in bytes, by their settings; missing topics do not count."""
    present = set(broker.topics())
    settings = broker.topic_configs(sorted(present & set(topics))).values()
    return min((int(one[name]) for one in settings for name in ("max.message.bytes", "segment.bytes")), default=_ANY)


def refusal(
    cause: KafkaError, records: Sequence[Record], bootstrap_servers: str
) -> tuple[RecordRefusedError, Record | None]:
    """Why a broker refuses a record, by the present settings of its topic, and the record.

    Args:
        cause: the error of the broker, or of the client.
        records: the refused batch; its keys and values are in no message.
        bootstrap_servers: the brokers.

    Returns:
        The error, and the record; None if it may be any of the batch.

    Raises:
        Transient: each record is small enough, but a batch of them was not.
    """
    topic = records[0].topic
    settings = _settings(bootstrap_servers, topic)
    name, record = _reason(cause.code(), records, settings)
    is_batch = len(records) > 1 and record is not None and cause.code() in _TOO_LARGE
    if is_batch and record is not None and size_of(record) + _FRAME < int(settings.get(name, 0)):
        raise Transient(
            f"Topic {topic!r} accepts batches of {settings[name]} bytes ({name}), but {len(records)} records in one "
            "were larger. The transaction was not sent; the next one has smaller batches.",
            topic=topic,
        )
    what, why, better = _words(cause, name, record, len(records))
    options = f"{creator_options(bootstrap_servers)} --entity-type topics --entity-name {topic}"
    alter = (
        f"Change it: kafka-configs.sh {options} --alter --add-config {name}={better}"
        if better
        else f"See its settings: kafka-configs.sh {options} --describe --all"
    )
    by = f" ({name}={settings[name]})" if name in settings else ""
    error = RecordRefusedError(
        f"{what} is refused by topic {topic!r}{by}: {why}. Its transaction was not sent. {alter}",
        topic=topic,
        setting=name,
        value=settings.get(name, ""),
        code=cause.name(),
        origin=None,
    )
    return error, record


def _reason(code: int, records: Sequence[Record], settings: Mapping[str, str]) -> tuple[str, Record | None]:
    """The setting that refuses a batch, empty if it is unknown, and the record that violates it."""
    largest = max(records, key=size_of)
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return "max.message.bytes", largest
    if code == KafkaError.RECORD_LIST_TOO_LARGE:
        return "segment.bytes", largest
    excess, name, record = max(_excesses(records, settings), key=lambda one: one[0])
    if code == KafkaError.INVALID_TIMESTAMP or excess > 0:  # of several such records the client says INVALID_RECORD
        return name, record
    keyless = next((record for record in records if record.key is None), None)
    if "compact" in settings.get("cleanup.policy", "") and keyless is not None:
        return "cleanup.policy", keyless
    return "", records[0] if len(records) == 1 else None


def _excesses(records: Sequence[Record], settings: Mapping[str, str]) -> list[tuple[float, str, Record]]:
    """The milliseconds by which times exceed the limits of a topic, with each limit and record; negative within the
    limit.
    """
    timed = [record for record in records if record.timestamp_ms is not None] or records
    now = clock.now().timestamp() * 1000
    excesses = []
    for name, pick in (("message.timestamp.before.max.ms", min), ("message.timestamp.after.max.ms", max)):
        record = pick(timed, key=lambda one: one.timestamp_ms or now)
        excesses.append((abs((record.timestamp_ms or now) - now) - int(settings.get(name, _ANY)), name, record))
    return excesses


def _words(cause: KafkaError, name: str, record: Record | None, count: int) -> tuple[str, str, str]:
    """The refused record, the reason, and a value of the setting that would accept it; empty if there is none."""
    if record is None:
        return f"One of {count} records", f"{cause.name()}, {cause.str()}", ""
    what = f"A record of {size_of(record)} bytes"
    match name:
        case "max.message.bytes":
            return what, "it is larger", str(2 * size_of(record) + _FRAME)
        case "segment.bytes":
            return what, "it is larger", str(1 << 30)
        case "cleanup.policy":
            return what, "it has no key, and compaction works by keys", "delete"
        case "":
            return what, f"{cause.name()}, {cause.str()}", ""
        case _:
            return what, f"its timestamp is {shown(record.timestamp_ms or 0)}", str(_ANY)


def _settings(bootstrap_servers: str, topic: str) -> dict[str, str]:
    """A topic's settings; empty if they cannot be read: the refusal is reported anyway."""
    try:
        with Broker(bootstrap_servers) as broker:
            return broker.topic_configs([topic]).get(topic, {})
    except KappaError:
        return {}


def _record_of(message: Message, timestamp_ms: int | None) -> Record:
    from kappa.wire.encoding import Record

    key, value = message.key(), message.value()
    return Record(
        message.topic() or "",
        key.encode() if isinstance(key, str) else key,
        value.encode() if isinstance(value, str) else value,
        None,
        timestamp_ms,
    )
