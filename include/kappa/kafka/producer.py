"""Sending a slice: records and input offsets in one Kafka transaction."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kappa.errors import BrokerUnreachableError, KappaError, StaleWriterError
from kappa.kafka.broker import Broker
from kappa.kafka.connection import NOT_ALLOWED, bounded, client_settings, explained, producer_settings, unreachable
from kappa.kafka.refusals import REFUSED, Undelivered, refusal, size_of
from kappa.offsets.vector import Offsets
from kappa.wire.encoding import Record

#: The longest one, of all differences of a topic that reconciles; brokers allow fifteen minutes unless told otherwise.
LONGEST_TRANSACTION = timedelta(minutes=10)
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
#: A fatal error that comes up while delivery reports are served reaches Python as a SystemError caused by Kafka's
#: error.
_KAFKA = (KafkaException, SystemError)
_CONNECT_SECONDS = 8.0
_INIT_SECONDS = 30.0
_COMMIT_SECONDS = 60.0
_FLUSH_SECONDS = 0.5
#: How long the client may take to add the offsets of a group; after one and a half times this it counts as hanging.
OFFSETS_SECONDS = 20.0
_ABORT_SECONDS = 10.0
_POLL_EVERY = 2_000
#: The client's number for a partition that the key selects.
_BY_KEY = -1
#: Largest batch, before it is compressed, unless a topic only accepts smaller ones.
_BATCH_BYTES = 1_000_000
_LEAST_BATCH_BYTES = 1_000


def append(bootstrap_servers: str, record: Record) -> None:
    """Send one record outside any transaction, and wait until it is acknowledged; it may be there twice.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    failures: list[KafkaError] = []
    # An idempotent producer waits half a second for its id, and spares no repetition by another process.
    producer = Producer(producer_settings(bootstrap_servers) | {"enable.idempotence": False})
    producer.produce(
        record.topic,
        record.value,
        record.key,
        _BY_KEY if record.partition is None else record.partition,
        on_delivery=lambda error, _: failures.append(error) if error else None,
    )
    if producer.flush(_COMMIT_SECONDS):
        raise unreachable(
            bootstrap_servers, f"a record for {record.topic!r} not acknowledged in {_COMMIT_SECONDS:.0f} s"
        )
    if failures:
        raise explained(failures[0], bootstrap_servers, f"sending a record to {record.topic!r}")


class Sender:
    """The only writer under its transactional id; use it as a context manager.

    :meth:`init` first, then read the last marker that was committed, then send. An error in a transaction aborts it and
    makes the sender unusable: no record of the transaction will ever be read under ``read_committed``. To continue, the
    caller makes sure that it still owns the epoch, calls :meth:`init` again and reads the marker again, because a
    commit whose answer was lost may have happened.

    Args:
        bootstrap_servers: the brokers.
        transactional_id: the id whose earlier producers :meth:`init` fences.
        group: consumer group whose offsets are part of the transaction.
        transaction_timeout: time after which Kafka aborts a transaction that its writer left open. Readers wait for
            that, unless a successor's :meth:`init` ends it sooner.
        batch_bytes: the least ``max.message.bytes`` of its topics, which limits a batch of small records as well as a
            large record.

    Attributes:
        refused: the record for which the last transaction was refused; None if it failed for another reason, or did not
            fail.
    """

    refused: Record | None = None

    def __init__(
        self,
        bootstrap_servers: str,
        transactional_id: str,
        group: str,
        *,
        transaction_timeout: timedelta = timedelta(minutes=2),
        batch_bytes: int = _BATCH_BYTES,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.transactional_id = transactional_id
        self.group = group
        self._timeout = transaction_timeout
        self._batch_bytes = max(_LEAST_BATCH_BYTES, min(_BATCH_BYTES, batch_bytes))
        self._producer: Producer | None = None
        self._group_metadata: Any = None
        self._is_open = False
        self._topics: frozenset[str] = frozenset()
        self._undelivered = Undelivered()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def init(self) -> None:
        """Fence every other writer of this id, and end its open transaction; returns when its fate is readable.

        May be called again at any time: this object then fences its former self.

        Raises:
            BrokerUnreachableError: Kafka does not answer.
            TopologyError: the brokers do not allow transactions of that length.
        """
        self.close()
        timeout_ms = self._timeout // timedelta(milliseconds=1)
        producer = Producer(
            producer_settings(self.bootstrap_servers)
            | {
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(60_000, timeout_ms),
                "batch.size": self._batch_bytes,
            }
        )
        try:
            self._topics = frozenset(producer.list_topics(timeout=_CONNECT_SECONDS).topics)
            producer.init_transactions(_INIT_SECONDS)
        except KafkaException as error:
            doing = f"initialising transactions of {self.transactional_id!r} for up to {timeout_ms} ms"
            raise explained(error, self.bootstrap_servers, doing) from error
        # A consumer that never subscribes: only its metadata of the group is needed.
        consumer = Consumer(client_settings(self.bootstrap_servers) | {"group.id": self.group})
        self._group_metadata = consumer.consumer_group_metadata()
        consumer.close()
        self._producer = producer

    def send(self, records: Iterable[Record], offsets: Offsets | None) -> int:
        """Send records and commit the group's offsets, all or nothing, and return the number of records.

        A crash at any point leaves either everything or nothing to be read.

        Args:
            records: taken one by one, order kept within a key.
            offsets: next offsets to read of the input; None leaves the group as it is.

        Raises:
            StaleWriterError: another writer took over.
            TopologyError: a topic does not exist.
            RecordRefusedError: a topic will never accept a record, for example one that is too large.
            BrokerUnreachableError: Kafka does not answer; ``data["outcome"]`` is ``aborted`` or ``unknown``.
        """
        self.begin()
        count = self.extend(records)
        self.commit(offsets)
        return count

    def begin(self) -> None:
        """Open a transaction, for :meth:`extend` in portions and one :meth:`commit`.

        Raises:
            StaleWriterError: another writer took over.
        """
        if self._is_open:
            raise RuntimeError(f"{self.transactional_id!r} has an open transaction: commit or abort it first.")
        self._undelivered, self.refused = Undelivered(), None
        try:
            self._ready.begin_transaction()
        except KafkaException as error:
            raise self._spent(error, "opening a transaction") from error
        self._is_open = True

    def extend(self, records: Iterable[Record]) -> int:
        """Add records to the open transaction, and return their number. Any error, even in ``records`` itself, aborts
        it.

        Raises:
            StaleWriterError: as :meth:`send`.
            TopologyError: as :meth:`send`.
            RecordRefusedError: as :meth:`send`.
            BrokerUnreachableError: as :meth:`send`.
        """
        producer, count = self._in_transaction(), 0
        produce, undelivered = (
            producer.produce,
            self._undelivered.add,
        )  # looked up once for up to half a million records
        try:
            for topic, key, value, headers, timestamp_ms, partition in records:
                if topic not in self._topics:
                    self._look_for(topic)
                at, to = timestamp_ms or 0, _BY_KEY if partition is None else partition
                failed = undelivered if timestamp_ms is None else partial(self._undelivered.add_at, timestamp_ms)
                while True:
                    try:
                        if headers is None:
                            produce(topic, value, key, to, on_delivery=failed, timestamp=at)
                        else:
                            produce(topic, value, key, to, on_delivery=failed, timestamp=at, headers=list(headers))
                        break
                    except BufferError:  # the queue is full; records that wait too long in it fail, so this ends
                        producer.poll(0.05)
                        self._raise_failure()
                count += 1
                if count % _POLL_EVERY == 0:
                    producer.poll(0)
                    self._raise_failure()
            producer.poll(0)
            self._raise_failure()
        except _KAFKA as error:
            if (cause := _cause(error)) is not None and cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                self._undelivered.too_large(cause, Record(topic, key, value, headers, timestamp_ms))
            raise self._spent(error, f"sending record {count + 1} of the transaction") from error
        except BaseException as error:
            self._give_up(type(error).__name__)
            raise
        return count

    def commit(self, offsets: Offsets | None) -> None:
        """Commit the added records, with the group's offsets.

        Raises:
            StaleWriterError: as :meth:`send`.
            TopologyError: as :meth:`send`.
            RecordRefusedError: as :meth:`send`.
            BrokerUnreachableError: as :meth:`send`; with ``outcome`` ``unknown`` the commit may have happened.
        """
        producer = self._in_transaction()
        step = "delivering the records"
        try:
            self._flush(producer)
            if offsets is not None and len(offsets):
                step = f"adding offsets of group {self.group!r}"
                self._add_offsets(producer, offsets)
            step = "committing"
            producer.commit_transaction(_COMMIT_SECONDS)
        except _KAFKA as error:
            raise self._spent(error, step) from error
        except BaseException as error:
            self._give_up(type(error).__name__, is_unknown=step == "committing")
            raise
        self._is_open = False

    def abort(self) -> None:
        """Drop the open transaction, if there is one; :meth:`init` comes next."""
        self._give_up("asked")

    def close(self) -> None:
        """Disconnect; an open transaction is aborted. Safe to repeat."""
        if self._is_open:
            self._give_up("closed")
        self._producer = None

    def _flush(self, producer: Producer) -> None:
        """Wait until everything is delivered; after a refused batch the client keeps later batches forever."""
        deadline = time.monotonic() + _COMMIT_SECONDS
        while producer.flush(_FLUSH_SECONDS):
            self._raise_failure()
            if time.monotonic() > deadline:
                raise unreachable(
                    self.bootstrap_servers, f"{len(producer)} records not acknowledged in {_COMMIT_SECONDS:.0f} s"
                )
        self._raise_failure()

    def _add_offsets(self, producer: Producer, offsets: Offsets) -> None:
        """Add the group's offsets in a thread of its own, because the client may never return from this call.

        It ignores its timeout if the group's coordinator disappeared (librdkafka's issue 5456). The producer is then
        abandoned with an open transaction, which only the next :meth:`init` ends.
        """
        positions = [TopicPartition(*at, offset) for at, offset in offsets.items()]
        limit = OFFSETS_SECONDS * 1.5

        def call() -> None:
            producer.send_offsets_to_transaction(positions, self._group_metadata, OFFSETS_SECONDS)

        try:
            bounded(call, limit, "offsets of a transaction")
        except TimeoutError as hangs:
            self._give_up("adding offsets hangs", is_unknown=True)
            error = unreachable(
                self.bootstrap_servers, f"offsets of group {self.group!r} were not accepted in {limit:.0f} s"
            )
            error.data |= {"outcome": "aborted"}
            raise error from hangs

    @property
    def _ready(self) -> Producer:
        if self._producer is None:
            raise RuntimeError(
                f"Sender {self.transactional_id!r} is not initialised, or unusable after an error. Call init()."
            )
        return self._producer

    def _in_transaction(self) -> Producer:
        if not self._is_open:
            raise RuntimeError(f"{self.transactional_id!r} has no open transaction. Call begin().")
        return self._ready

    def _look_for(self, topic: str) -> None:
        with Broker(self.bootstrap_servers) as broker:
            broker.topic_ids([topic])  # raises where it is missing, or may not be seen
        self._topics |= {topic}

    def _raise_failure(self) -> None:
        if self._undelivered.error is not None:
            raise self._not_delivered(self._undelivered.error)

    def _not_delivered(self, error: KafkaError) -> KappaError:
        """Why records were not delivered; the open transaction will not be committed."""
        count, records = self._undelivered.count, self._undelivered.records
        if error.code() in REFUSED:
            reason: KappaError
            reason, self.refused = refusal(error, records, self.bootstrap_servers)
        else:
            first = f"the first one a record of {size_of(records[0])} bytes for topic {records[0].topic!r}"
            reason = self._meaning(error, f"{count} records were not delivered, {first}")
        reason.data |= {"failures": count, "outcome": "aborted"}
        return reason

    def _spent(self, error: Exception, step: str) -> Exception:
        """Give up the transaction; Kafka's error as one of Kappa's."""
        cause = _cause(error)
        if cause is None:
            return error
        if self._producer is not None:
            with contextlib.suppress(*_KAFKA):  # a fatal error is raised here again
                self._producer.poll(0)
        is_unknown = step == "committing" and not cause.txn_requires_abort() and cause.code() not in _FENCED
        self._give_up(cause.name(), is_unknown=is_unknown)
        if self._undelivered.error is not None and cause.code() not in _FENCED:
            return self._not_delivered(self._undelivered.error)
        meaning = self._meaning(cause, step)
        meaning.data |= {"failures": self._undelivered.count, "outcome": "unknown" if is_unknown else "aborted"}
        return meaning

    def _meaning(self, cause: KafkaError, step: str) -> KappaError:
        if cause.code() in _FENCED:
            return StaleWriterError(
                f"Transaction of {self.transactional_id!r} was refused while {step} ({cause.str()}): another writer "
                f"initialised the same id, or it was open for more than {self._timeout.total_seconds():.0f} s. None of "
                "its records will be read.",
                transactional_id=self.transactional_id,
            )
        if (cause.fatal() or cause.txn_requires_abort()) and cause.code() not in NOT_ALLOWED:
            return BrokerUnreachableError(
                f"Transaction of {self.transactional_id!r} was aborted, nothing was sent: {step} ({cause.name()}: "
                f"{cause.str()}). Initialise the sender and send the slice again.",
                transactional_id=self.transactional_id,
            )
        return explained(cause, self.bootstrap_servers, f"transaction of {self.transactional_id!r}: {step}")

    def _give_up(self, reason: str, *, is_unknown: bool = False) -> None:
        # This client cannot continue after a rejected batch (the next transaction fails with gaps in its sequence
        # numbers), so no producer outlives an abort. The next init() ends a transaction that cannot be aborted now.
        producer, self._producer = self._producer, None
        if producer is not None and self._is_open:
            if not is_unknown:
                with contextlib.suppress(*_KAFKA):
                    producer.abort_transaction(_ABORT_SECONDS)
            import structlog

            structlog.get_logger(__name__).warning(
                "transaction given up", transactional_id=self.transactional_id, reason=reason, is_unknown=is_unknown
            )
        self._is_open = False


def _cause(error: BaseException) -> KafkaError | None:
    origin = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(origin, KafkaException):
        return None
    cause: KafkaError = origin.args[0]
    return cause
