"""Questions to Kafka's admin client, with the answers and errors of Kappa."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kappa.errors import KappaError
from kappa.kafka.connection import client_settings, explained, unknown_topic, unreachable
from kappa.offsets.vector import TopicPartition as At

#: How long it may take until each broker shows a change.
SETTLE_SECONDS = 8.0
#: Errors of a topic that was just created, or whose leader moves: it exists, since it was described before.
_SETTLING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError._NOENT,
)
#: Errors while the coordinator of a group moves or loads its state.
_WITHOUT_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)


class Admin:
    """An admin client that is made on the first question.

    Args:
        bootstrap_servers: brokers, ``host:port`` separated by commas.
        timeout_seconds: how long one question may take.
    """

    def __init__(self, bootstrap_servers: str, timeout_seconds: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._timeout = timeout_seconds
        self._client: AdminClient | None = None

    @property
    def client(self) -> AdminClient:
        """The client of the library."""
        if self._client is None:
            self._client = AdminClient(client_settings(self._bootstrap_servers) | {"socket.timeout.ms": 10_000})
        return self._client

    def close(self) -> None:
        """Disconnect; a later question connects again."""
        self._client = None

    def metadata(self, doing: str) -> Any:
        """Topics and brokers as the cluster lists them."""
        try:
            return self.client.list_topics(timeout=self._timeout)
        except KafkaException as error:
            raise self.explained(error, doing) from error

    def described(self, topics: Iterable[str]) -> dict[str, Any]:
        """Topic -> its description.

        Raises:
            TopologyError: there is no such topic; the message names similar ones.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        if not names[0]:  # the client takes no empty name
            raise unknown_topic(self._bootstrap_servers, "", ())
        answers = self.client.describe_topics(TopicCollection(names), request_timeout=self._timeout)
        descriptions = {}
        for name in names:
            try:
                descriptions[name] = answers[name].result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    listing = [n for n in self.metadata("listing topics").topics if not n.startswith("__")]
                    raise unknown_topic(self._bootstrap_servers, name, sorted(listing)) from error
                raise self.explained(error, f"describing topic {name!r}") from error
        return descriptions

    def offsets(
        self, described: Mapping[str, Any], spec: OffsetSpec, isolation: IsolationLevel, doing: str
    ) -> dict[At, int]:
        """One offset of each partition; asked again while leaders move.

        Args:
            described: the topics, from :meth:`described`.
            spec: the kind of offset.
            isolation: whether records of open transactions count.
            doing: the attempt, for errors.
        """
        requests = {TopicPartition(name, part.id): spec for name, one in described.items() for part in one.partitions}
        offsets: dict[At, int] = {}
        deadline = time.monotonic() + self._timeout
        while requests:
            seconds = max(1.0, deadline - time.monotonic())
            answers = self.client.list_offsets(requests, isolation_level=isolation, request_timeout=seconds)
            for at, answer in answers.items():
                settling = _SETTLING if time.monotonic() < deadline else ()
                offset = self.answer(answer, f"{doing} of {at.topic}[{at.partition}]", but=settling)
                if offset is not None:
                    offsets[at.topic, at.partition] = offset.offset
            requests = {at: spec for at in requests if (at.topic, at.partition) not in offsets}
            if requests:
                time.sleep(0.02)
        return offsets

    def answer(self, answer: Future[Any], doing: str, but: Iterable[int] = ()) -> Any:
        """The result of a future of the client; None for the error codes in ``but``."""
        try:
            return answer.result()
        except KafkaException as error:
            if error.args[0].code() in but:
                return None
            raise self.explained(error, doing) from error

    def has_coordinator(self, group: str) -> bool:
        """Whether a broker answers for a consumer group.

        Without one, a question for the group's offsets ends the process: librdkafka (2.16) looks for a coordinator
        again through the group of its client, and a client for administration has none.
        """
        answers = self.client.describe_consumer_groups([group], request_timeout=self._timeout)
        try:
            answers[group].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code not in (*_WITHOUT_COORDINATOR, KafkaError.GROUP_ID_NOT_FOUND):
                raise self.explained(error, f"describing group {group!r}") from error
            return code not in _WITHOUT_COORDINATOR
        return True

    def wait(self, is_done: Callable[[], bool], what: str) -> None:
        """Wait until a change that the cluster has accepted becomes visible.

        Raises:
            BrokerUnreachableError: it does not become visible within some seconds.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while not is_done():
            if time.monotonic() > deadline:
                raise unreachable(self._bootstrap_servers, f"{what} after {SETTLE_SECONDS:.0f} s")
            time.sleep(0.02)

    def explained(self, error: KafkaException | KafkaError, doing: str) -> KappaError:
        """An error of the client in Kappa's words."""
        return explained(error, self._bootstrap_servers, doing)
