"""Reading a bounded part of topics, committed records only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kappa.errors import DataLossError
from kappa.kafka.connection import client_settings, explained, unreachable
from kappa.offsets.vector import Offsets
from kappa.offsets.vector import TopicPartition as At

#: Seconds without any record or end of partition after which the broker counts as gone.
PATIENCE_SECONDS = 30.0

_BATCH = 10_000


def check_readable(start: Offsets, end: Offsets, stable: Offsets, low: Offsets) -> None:
    """Refuse a span that is not in the log with these last stable offsets and low watermarks.

    Raises:
        DataLossError: ``end`` is beyond the last stable offset, or records of the span were removed.
    """
    for (topic, partition), offset in end.items():
        readable, first = stable.get(topic, partition), low.get(topic, partition) or 0
        begin = start.get(topic, partition) or 0
        if readable is None or readable < offset:
            raise DataLossError(
                f"{topic}[{partition}] is readable up to offset {readable}, but records up to {offset} were requested: "
                "the topic was truncated or recreated, or a transaction is still open. Check the topic's id and its "
                "writers.",
                topic=topic,
                partition=partition,
                readable=readable,
                end=offset,
            )
        if begin < min(first, offset):
            raise DataLossError(
                f"{topic}[{partition}] starts at offset {first}, but records from {begin} on were requested: "
                f"{first - begin} offsets are no longer in the log. Start at the low watermark.",
                topic=topic,
                partition=partition,
                low_watermark=first,
                start=begin,
            )


def last_record(
    bootstrap_servers: str, at: At, low: int, end: int, key: bytes | None
) -> tuple[bytes | None, bytes | None, int] | None:
    """Key, value and offset of the last committed record of a partition, or of the last one with a key; None if there
    is none.

    Raises:
        DataLossError: the topic lost records while it was read.
    """
    reader = Reader(bootstrap_servers, fetch_kbytes=256)
    try:
        # Markers, aborted records and compaction leave any number of holes at the end: look back further each time.
        upper, span = end, 16
        while upper > low:
            lower = max(low, upper - span)
            last = None
            for batch in reader.read(Offsets.of([(at, lower)]), Offsets.of([(at, upper)])):
                last = next((message for message in reversed(batch) if key in (None, message.key())), last)
            if last is not None:
                return last.key(), last.value(), last.offset() or 0
            upper, span = lower, span * 16
    finally:
        reader.close()
    return None


class _Assigned:
    """One consumer that belongs to no group and commits nothing."""

    def __init__(self, bootstrap_servers: str, group: str, *, fetch_kbytes: int, queue_kbytes: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topics: set[str] = set()
        self._consumer = _consumer(bootstrap_servers, group, fetch_kbytes=fetch_kbytes, queue_kbytes=queue_kbytes)

    def close(self) -> None:
        """Disconnect. Safe twice."""
        self._consumer.close()

    def _assign(self, starts: Mapping[At, int]) -> None:
        """Fetch these partitions from these offsets on, and no others.

        Topics that are new to the consumer are looked up first: by itself it asks for them once a second.
        """
        for topic in {topic for topic, _ in starts} - self._topics:
            try:
                self._consumer.list_topics(topic, PATIENCE_SECONDS)
            except KafkaException as error:
                raise explained(error, self._bootstrap_servers, f"looking for topic {topic!r}") from error
            self._topics.add(topic)
        self._consumer.assign([TopicPartition(*at, offset) for at, offset in starts.items()])


class Reader(_Assigned):
    """Reads all records of spans.

    Args:
        bootstrap_servers: the brokers.
        fetch_kbytes: largest fetch per partition; small if only the next record is needed.
    """

    def __init__(self, bootstrap_servers: str, *, fetch_kbytes: int = 4096) -> None:
        queue_kbytes = max(64, fetch_kbytes * 8)
        super().__init__(bootstrap_servers, "kappa.reader", fetch_kbytes=fetch_kbytes, queue_kbytes=queue_kbytes)

    def read(self, start: Offsets, end: Offsets) -> Iterator[list[Message]]:
        """Batches of the committed records from ``start`` to ``end``, ordered within each partition.

        Markers, aborted records and holes left by compaction are skipped. A partition that ``start`` does not name is
        read from 0. One reading at a time: the next one ends it.

        Raises:
            DataLossError: records of the span were removed, or the log ends before ``end``.
            TopologyError: a topic does not exist.
            BrokerUnreachableError: nothing came for 30 seconds.
        """
        self._ends = {at: offset for at, offset in end.items() if (start.get(*at) or 0) < offset}
        self._assign({at: start.get(*at) or 0 for at in self._ends})
        heard = time.monotonic()
        while self._ends:
            first = self._consumer.poll(0.2)
            if first is None:
                if time.monotonic() - heard > PATIENCE_SECONDS:
                    raise unreachable(
                        self._bootstrap_servers, f"no record of {sorted(self._ends)} in {PATIENCE_SECONDS:.0f} s"
                    )
                continue
            heard = time.monotonic()
            batch = self._records([first, *self._consumer.consume(_BATCH, 0)], start)
            if batch:
                yield batch
        self._consumer.unassign()

    def skip(self, topic: str, partition: int) -> None:
        """Read no further in one partition of the current reading."""
        if self._ends.pop((topic, partition), None) is not None:
            self._consumer.incremental_unassign([TopicPartition(topic, partition)])

    def _records(self, messages: list[Message], start: Offsets) -> list[Message]:
        records: list[Message] = []
        ends = self._ends
        for message in messages:
            at, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            if (end := ends.get(at)) is None:
                continue
            if (error := message.error()) is not None:
                self._check(error, at, offset, start.get(*at) or 0, end)
                self.skip(*at)
                continue
            if offset < end:
                records.append(message)
            if offset >= end - 1:
                self.skip(*at)
        return records

    def _check(self, error: KafkaError, at: tuple[str, int], offset: int, start: int, end: int) -> None:
        """Accept the end of a partition, and raise any other error."""
        where = f"{at[0]}[{at[1]}]"
        if error.code() == KafkaError._PARTITION_EOF:
            if offset >= end:
                return
            raise DataLossError(
                f"{where} is readable up to offset {offset}, but records up to {end} were requested: the topic was "
                "truncated or recreated, or a transaction is still open. Check the topic's id and its writers.",
                topic=at[0],
                partition=at[1],
                readable=offset,
                end=end,
            )
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise DataLossError(
                f"{where} no longer has records from offset {start} on: retention or a recreated topic removed them "
                f"({error.str()}). Compare with its low watermark.",
                topic=at[0],
                partition=at[1],
                start=start,
                end=end,
            )
        raise explained(KafkaException(error), self._bootstrap_servers, f"reading {where} from {start} to {end}")


class Sampler(_Assigned):
    """Reads a few records here and there, and fetches little more than those.

    Args:
        bootstrap_servers: the brokers.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers, "kappa.sampler", fetch_kbytes=16, queue_kbytes=256)

    def sample(self, start: Offsets, end: Offsets, most: int) -> dict[tuple[str, int], list[Message]]:
        """The first records of each partition, at most this many, from ``start`` to ``end``.

        Partitions without records, or with removed ones, are left out.

        Raises:
            BrokerUnreachableError: nothing came for 30 seconds.
        """
        ends = {at: end[at] for at in start if at in end and start[at] < end[at]}
        samples: dict[tuple[str, int], list[Message]] = {}
        self._assign({at: start[at] for at in ends})
        heard = time.monotonic()
        while ends:
            # A wait for `most` lasts its full time if there are fewer, so this waits only for the first one.
            first = self._consumer.consume(1, 0.05)
            messages = [*first, *(self._consumer.consume(most, 0) if first else ())]
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE_SECONDS:
                raise unreachable(self._bootstrap_servers, f"no record of {sorted(ends)} in {PATIENCE_SECONDS:.0f} s")
            full = set()
            for message in messages:
                at, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
                if at not in ends or at in full:
                    continue
                # An error is the end of the partition, or its records are gone.
                if message.error() is None and offset < ends[at]:
                    samples.setdefault(at, []).append(message)
                if message.error() is not None or offset >= ends[at] - 1 or len(samples.get(at, ())) >= most:
                    full.add(at)
            if full:
                self._consumer.incremental_unassign([TopicPartition(*at) for at in sorted(full)])
                ends = {at: last for at, last in ends.items() if at not in full}
        self._consumer.unassign()
        return samples


def _consumer(bootstrap_servers: str, group: str, *, fetch_kbytes: int, queue_kbytes: int) -> Consumer:
    """A consumer of committed records that belongs to no group and commits nothing."""
    return Consumer(
        client_settings(bootstrap_servers)
        | {
            "group.id": group,  # required by the client, never joined: partitions are assigned
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 5,  # a full queue would otherwise rest for a second
            "fetch.message.max.bytes": fetch_kbytes * 1024,
            "queued.max.messages.kbytes": queue_kbytes,
        }
    )
