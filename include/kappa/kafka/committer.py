"""Offsets of consumer groups, read and written by a consumer that is not a member of them.

The admin client is not used: after an outage it no longer answers questions about groups, or aborts the process
(librdkafka issue 4605, seen with 2.16.0).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kappa.kafka.connection import bounded, client_settings, explained, unreachable

#: Errors for the first group of a broker, or for one whose coordinator moves: the client does not retry them
#: automatically.
_COORDINATOR_SETTLING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def is_settling(error: KafkaException | KafkaError) -> bool:
    """Whether a broker that has just started, or a new group, will have its coordinator soon."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    return bool(cause.code() in _COORDINATOR_SETTLING)


class Committer:
    """A consumer of one group at a time.

    Args:
        bootstrap_servers: brokers, ``host:port`` separated by commas.
        timeout_seconds: how long one question may take.
    """

    def __init__(self, bootstrap_servers: str, timeout_seconds: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._timeout = timeout_seconds
        self._consumer: Consumer | None = None
        self._group: str | None = None

    def ask(self, group: str, doing: str, question: Callable[[Consumer], list[TopicPartition]]) -> list[TopicPartition]:
        """The answer of a consumer of the group; waits for a broker that just started to find its coordinators.

        Raises:
            BrokerUnreachableError: no answer in time.
            ConflictError: the group has members, and the question moves it.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            consumer = self._of(group)
            try:
                positions = bounded(partial(question, consumer), 1.5 * self._timeout, doing)
                error = next((item.error for item in positions if item.error is not None), None)
            except KafkaException as raised:
                positions, error = [], raised.args[0]
            except TimeoutError as hangs:  # a commit whose coordinator disappeared; its consumer hangs in close() too
                self._consumer = self._group = None
                raise unreachable(self._bootstrap_servers, hangs) from hangs
            if error is None:
                return positions
            self.close()
            if not is_settling(error) or time.monotonic() > deadline:
                raise explained(error, self._bootstrap_servers, doing)
            time.sleep(0.05)

    def close(self) -> None:
        """Disconnect; a later question connects again."""
        consumer, self._consumer, self._group = self._consumer, None, None
        if consumer is not None:
            with contextlib.suppress(TimeoutError):  # without a broker it may ask for its coordinator forever
                bounded(consumer.close, self._timeout, "closing a consumer")

    def _of(self, group: str) -> Consumer:
        consumer = self._consumer
        if consumer is None or self._group != group:
            self.close()
            settings = {"group.id": group, "enable.auto.commit": False, "session.timeout.ms": int(1000 * self._timeout)}
            self._consumer = consumer = Consumer(client_settings(self._bootstrap_servers) | settings)
            self._group = group
        return consumer
