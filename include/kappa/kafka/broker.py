"""Kafka as Kappa sees it: watermarks, times, topics, consumer groups, and bounded reads. Nothing here starts Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, OffsetSpec

from kappa.errors import DataLossError, TopologyError
from kappa.kafka import topic_creation
from kappa.kafka.admin import Admin
from kappa.kafka.committer import Committer, is_settling
from kappa.kafka.offsets_for_times import Confirmer
from kappa.kafka.reader import Reader, Sampler, check_readable, last_record
from kappa.offsets.vector import Offsets
from kappa.offsets.vector import TopicPartition as At
from kappa.replay.epoch_topics import EpochTopic, TopicRefusal, overridden
from kappa.topic_overrides import Overrides

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_COMMITTED, _ALL = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
_URL_SAFE = str.maketrans("+/", "-_")


class Broker:
    """A connection to Kafka, made on the first question; use it as a context manager. Not for several threads at once.

    Every method raises BrokerUnreachableError when Kafka does not answer in time, and TopologyError when a topic that
    it names does not exist.

    Args:
        bootstrap_servers: brokers, ``host:port`` separated by commas.
        timeout_seconds: how long one question may take.
        topic_settings: settings that override those of topics that it creates.
    """

    def __init__(
        self, bootstrap_servers: str, *, timeout_seconds: float = 8.0, topic_settings: Overrides | None = None
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._timeout = timeout_seconds
        self._topic_settings = topic_settings or {}
        self._admin = Admin(bootstrap_servers, timeout_seconds)
        self._committer = Committer(bootstrap_servers, timeout_seconds)
        self._confirmer: Confirmer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Safe to repeat; a later question connects again."""
        if self._confirmer:
            self._confirmer.close()
        self._confirmer = None
        self._admin.close()
        self._committer.close()

    # Offsets

    def low_watermarks(self, topics: Iterable[str]) -> Offsets:
        """First readable offset of every partition."""
        return self._offsets(topics, _EARLIEST, _ALL, "asking for the low watermarks")

    def high_watermarks(self, topics: Iterable[str]) -> Offsets:
        """First offset not yet written of every partition, open transactions included."""
        return self._offsets(topics, _LATEST, _ALL, "asking for the high watermarks")

    def stable_offsets(self, topics: Iterable[str]) -> Offsets:
        """Last stable offset of every partition: where ``read_committed`` ends.

        A transaction that was just committed may become visible a few milliseconds later: Kafka writes its markers
        after its answer. To see its own writes, a caller initialises its :class:`~kappa.kafka.producer.Sender` first:
        that waits.
        """
        return self._offsets(topics, _LATEST, _COMMITTED, "asking for the last stable offsets")

    def settled_ends(self, topics: Iterable[str]) -> Offsets:
        """Ends of topics to which no process is sending, once no transaction in them is open any more.

        Raises:
            BrokerUnreachableError: one stays open, so another process is sending.
        """
        names, ends = list(topics), Offsets()

        def is_settled() -> bool:
            nonlocal ends
            high = self.high_watermarks(names)  # read first: a transaction may end in between
            ends = self.stable_offsets(names)
            return ends.dominates(high)

        self._admin.wait(is_settled, f"a transaction in {', '.join(names)} is open")
        return ends

    def decided_ends(self, topics: Iterable[str]) -> Offsets:
        """The present ends of topics, once every transaction with records before them has ended; others may continue.

        Raises:
            BrokerUnreachableError: one stays open.
        """
        names = list(topics)
        ends = self.high_watermarks(names)
        self._admin.wait(
            lambda: self.stable_offsets(names).dominates(ends), f"a transaction in {', '.join(names)} is open"
        )
        return ends

    def offsets_for_time(self, topics: Iterable[str], timestamp_ms: int, since: Offsets | None = None) -> Offsets:
        """The offset of the first committed record at or after a time, for each partition; its stable end if there is
        none.

        Always a prefix of the total order, whatever the times: every record before it is earlier.

        Args:
            topics: the topics.
            timestamp_ms: the time.
            since: offsets from which records count, for partitions where these are after the beginning. The caller
                knows that all earlier records are before the time.
        """
        end, first_offsets = self._first_records(topics, timestamp_ms, since or Offsets())
        return end.merge(Offsets.of(first_offsets.items()))

    def first_at_or_after(self, topics: Iterable[str], timestamp_ms: int) -> dict[At, int | None]:
        """Like :meth:`offsets_for_time`, with None if no record reaches the time."""
        end, first_offsets = self._first_records(topics, timestamp_ms, Offsets())
        return {at: first_offsets.get(at) for at in end}

    # Topics

    def topics(self, prefix: str = "") -> tuple[str, ...]:
        """Names that begin with ``prefix``, sorted; Kafka's internal topics only if the prefix is one of theirs."""
        names = self._admin.metadata("listing topics").topics
        is_shown = prefix.startswith("__")
        return tuple(sorted(n for n in names if n.startswith(prefix) and (is_shown or not n.startswith("__"))))

    def has_topic(self, name: str) -> bool:
        """Whether there is such a topic.

        Raises:
            ConfigError: this user may not see it; :meth:`topics` does not list such a topic.
        """
        try:
            self._admin.described([name])
        except TopologyError as error:
            if error.data.get("topic") != name:  # Kafka said something else of it
                raise
            return False
        return True

    def partitions(self, topic: str) -> int:
        """Number of partitions."""
        return len(self._admin.described([topic])[topic].partitions)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Kafka's id of each topic, in the form of its own tools: another id under the same name is another topic."""
        described = self._admin.described(topics)
        return {name: str(one.topic_id).translate(_URL_SAFE) for name, one in described.items()}

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """All settings of each topic, defaults included."""
        names = list(self._admin.described(topics))
        if not names:
            return {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        answers = self._admin.client.describe_configs(resources, request_timeout=self._timeout)
        return {
            resource.name: {
                key: entry.value
                for key, entry in self._admin.answer(answer, f"reading settings of {resource.name!r}").items()
            }
            for resource, answer in answers.items()
        }

    def broker_config(self) -> dict[str, str]:
        """All settings of the first broker of the cluster, defaults included."""
        brokers = self._admin.metadata("listing brokers").brokers
        resource = ConfigResource(ConfigResource.Type.BROKER, str(min(brokers)))
        (answer,) = self._admin.client.describe_configs([resource], request_timeout=self._timeout).values()
        return {key: entry.value for key, entry in self._admin.answer(answer, "reading settings of a broker").items()}

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str] | None = None, *, exists_ok: bool = True
    ) -> bool:
        """As :meth:`create`, of a topic that no epoch needs.

        Raises:
            TopologyError: as there; or it exists with other partitions, or at all without ``exists_ok``.
        """
        topic = self.adapted(EpochTopic(name=name, partitions=partitions, settings=config or {}))
        if self.create(topic):
            return True
        count = self.partitions(name)
        if count == topic.partitions and exists_ok:
            return False
        raise TopologyError(
            f"Topic {name!r} exists with {count} partitions; {topic.partitions} were requested. Use it as it is, or "
            "another name.",
            topic=name,
            partitions=count,
            wanted=topic.partitions,
        )

    def create(self, topic: EpochTopic) -> bool:
        """Create a topic as it is and wait until it can be written; returns whether it was created.

        Idempotent: an existing topic stays as it is.

        Raises:
            TopologyError: Kafka refuses the name or the settings.
        """
        if not topic_creation.create(self._admin, topic, self._timeout):
            return False
        name = topic.name
        self._admin.wait(lambda: self._has_leaders(name, topic.partitions), f"topic {name!r} has no leader yet")
        self.low_watermarks([name])  # answers when the leaders do
        return True

    def adapted(self, topic: EpochTopic) -> EpochTopic:
        """The topic with the settings that go over those of topics that it creates."""
        return overridden(topic, self._topic_settings)

    def refusals(self, topics: Iterable[EpochTopic]) -> dict[str, TopicRefusal]:
        """Name -> why the brokers would not create a topic as it is, for those that they would not; creates none."""
        return topic_creation.refusals(self._admin, topics, self._timeout)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and wait until they are no longer listed. Idempotent: missing ones are ignored."""
        topics = list(names)
        if not topics:
            return
        answers = self._admin.client.delete_topics(
            topics, operation_timeout=self._timeout, request_timeout=self._timeout
        )
        for name, answer in answers.items():
            self._admin.answer(answer, f"deleting topic {name!r}", but={KafkaError.UNKNOWN_TOPIC_OR_PART})
        self._admin.wait(lambda: not set(topics) & set(self.topics()), f"{topics} are still listed")

    # Consumer groups

    def groups(self, prefix: str = "") -> tuple[str, ...]:
        """Consumer groups whose names begin with ``prefix``, sorted; waits for a broker to find its coordinators."""
        doing, deadline = "listing consumer groups", time.monotonic() + self._timeout
        while True:
            listed = self._admin.answer(self._admin.client.list_consumer_groups(request_timeout=self._timeout), doing)
            if not listed.errors:
                return tuple(sorted(group.group_id for group in listed.valid if group.group_id.startswith(prefix)))
            # A partial list of groups must not be mistaken for a complete one.
            if not is_settling(listed.errors[0]) or time.monotonic() > deadline:
                raise self._admin.explained(listed.errors[0], doing)
            time.sleep(0.05)

    def group_offsets(self, group: str) -> Offsets:
        """The committed offsets of the group; empty for an unknown group. Those of an open transaction are not
        visible.
        """
        self._admin.wait(lambda: self._admin.has_coordinator(group), f"group {group!r} has no coordinator")
        request = [ConsumerGroupTopicPartitions(group)]
        answers = self._admin.client.list_consumer_group_offsets(request, request_timeout=self._timeout)
        positions = self._admin.answer(answers[group], f"reading offsets of group {group!r}").topic_partitions
        return Offsets.of(((item.topic, item.partition), item.offset) for item in positions if item.offset >= 0)

    def group_position(self, group: str, partitions: Iterable[At]) -> Offsets:
        """The committed offsets of the group in these partitions.

        As :meth:`group_offsets`, and for drivers: it outlives an outage.
        """
        request = [TopicPartition(*at) for at in partitions]
        positions = self._committer.ask(
            group, f"reading offsets of group {group!r}", lambda c: c.committed(request, timeout=self._timeout)
        )
        return Offsets.of(((item.topic, item.partition), item.offset) for item in positions if item.offset >= 0)

    def group_members(self, group: str) -> int:
        """Number of active members of the group; 0 for a group that does not exist."""
        return len(self.group_member_names(group) or ())

    def group_member_names(self, group: str) -> list[str] | None:
        """Client id and host of each active member of the group; None where Kafka's client finds no such group.

        It finds none of the groups of Kafka Streams with ``group.protocol=streams`` either.
        """
        answers = self._admin.client.describe_consumer_groups([group], request_timeout=self._timeout)
        missing = {KafkaError.GROUP_ID_NOT_FOUND}
        description = self._admin.answer(answers[group], f"describing group {group!r}", but=missing)
        if description is None or description.state is ConsumerGroupState.DEAD:
            return None
        return [f"client {one.client_id!r} on {one.host}" for one in description.members]

    def set_group_offsets(self, group: str, offsets: Offsets) -> None:
        """Commit offsets for a group without members; creates the group. Idempotent. Other partitions keep their
        offsets.

        Raises:
            BrokerUnreachableError: no answer in time. The commit may still be made, even later: set them again.
            ConflictError: the group has members.
        """
        if not len(offsets):
            return
        positions = [TopicPartition(*at, offset) for at, offset in offsets.items()]

        def commit(consumer: Consumer) -> list[TopicPartition]:
            return consumer.commit(offsets=positions, asynchronous=False)

        self._committer.ask(group, f"setting offsets of group {group!r}", commit)

    def delete_group(self, group: str) -> None:
        """Delete a group without members. Idempotent: a missing group is ignored.

        Raises:
            ConflictError: the group has members.
        """
        answers = self._admin.client.delete_consumer_groups([group], request_timeout=self._timeout)
        self._admin.answer(answers[group], f"deleting group {group!r}", but={KafkaError.GROUP_ID_NOT_FOUND})

    # Records

    def read(self, start: Offsets, end: Offsets) -> Iterator[list[Message]]:
        """Batches of the committed records from ``start`` to ``end``, ordered within each partition.

        Raises:
            DataLossError: ``end`` is beyond the last stable offset, or records of the span were removed.
        """
        check_readable(start, end, self.stable_offsets(end.topics), self.low_watermarks(end.topics))
        reader = Reader(self.bootstrap_servers)
        try:
            yield from reader.read(start, end)
        finally:
            reader.close()

    def sample(self, starts: Iterable[Offsets], end: Offsets, most: int = 50) -> list[dict[At, list[Message]]]:
        """The first few committed records of each partition, for each start; partitions without any are left out.

        Records that retention removes meanwhile are skipped: a sample is not worth a failure.
        """
        sampler = Sampler(self.bootstrap_servers)
        try:
            return [sampler.sample(start, end, most) for start in starts]
        finally:
            sampler.close()

    def fold(self, topic: str, upto: Offsets | None = None) -> Iterator[list[tuple[bytes, bytes | None]]]:
        """Batches of (key, value) of a changelog from its beginning: the last pair per key counts, None deletes.

        Args:
            topic: the changelog.
            upto: its ends; None reads all committed records.

        Raises:
            DataLossError: as :meth:`read`.
        """
        end = self.stable_offsets([topic]) if upto is None else upto.only([topic])
        for batch in self.read(self.low_watermarks([topic]), end):
            yield [(message.key() or b"", message.value()) for message in batch]

    def last_record(
        self, topic: str, partition: int, *, key: bytes | None = None
    ) -> tuple[bytes | None, bytes | None, int] | None:
        """Key, value and offset of the last committed record, or of the last one with a key; None if there is none.

        Raises:
            DataLossError: the topic lost records while it was read.
        """
        end = self.stable_offsets([topic]).get(topic, partition)
        low = self.low_watermarks([topic]).get(topic, partition)
        if end is None or low is None:
            raise TopologyError(f"Topic {topic!r} has no partition {partition}.", topic=topic, partition=partition)
        return last_record(self.bootstrap_servers, (topic, partition), low, end, key)

    # How it asks

    def _offsets(self, topics: Iterable[str], spec: OffsetSpec, isolation: IsolationLevel, doing: str) -> Offsets:
        return Offsets.of(self._admin.offsets(self._admin.described(topics), spec, isolation, doing).items())

    def _first_records(self, topics: Iterable[str], timestamp_ms: int, since: Offsets) -> tuple[Offsets, dict[At, int]]:
        described = self._admin.described(topics)
        # The end first: a record that arrives in between may reach the time, and must then be after the end.
        end = Offsets.of(
            self._admin.offsets(described, _LATEST, _COMMITTED, "asking for the last stable offsets").items()
        )
        spec = OffsetSpec.for_timestamp(max(0, timestamp_ms))
        answers = self._admin.offsets(described, spec, _COMMITTED, f"asking for time {timestamp_ms}")
        if self._confirmer is None:
            self._confirmer = Confirmer(self.bootstrap_servers)
        candidates = {at: o for at, o in answers.items() if o >= 0}
        try:
            return end, self._confirmer.first_records(candidates, end, timestamp_ms, since)
        except DataLossError:
            low = self.low_watermarks(described)
            if all(offset >= (low.get(*at) or 0) for at, offset in candidates.items()):
                raise
            return self._first_records(described, timestamp_ms, since)  # retention removed records since the answer

    def _has_leaders(self, name: str, partitions: int) -> bool:
        if name not in self.topics(name):
            return False
        parts = self._admin.described([name])[name].partitions
        return len(parts) == partitions and all(part.leader is not None and part.leader.id >= 0 for part in parts)
