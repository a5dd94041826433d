"""Changelogs: the whole state written once; :mod:`kappa.slices.folding` has the way back.

A changelog is a compacted topic with every update of a table; a null value deletes its key. Each record names the slice
that changed the key in header ``seq``; the marker of a slice, sent in the same transaction, vouches for all up to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kappa import clock
from kappa.errors import LedgerError
from kappa.faults import crash_point
from kappa.kafka import changelogs, topic_settings
from kappa.kafka.changelogs import changelog_records
from kappa.names import EpochPaths
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.record.merge_on_read import chunks, contents_of
from kappa.slices.run import Engines, EpochRun
from kappa.slices.topics import versioned_topics
from kappa.slices.topics.paged_keys import PagedKeys, digest
from kappa.slices.topics.sending import marker, sent_ends
from kappa.topology import Table, Topology
from kappa.wire.encoding import Record

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker

#: Rows of the baseline that go into one Kafka transaction.
BASELINE_ROWS = 100_000


def create_topics(broker: Broker, topology: Topology, paths: EpochPaths, partitions: int) -> None:
    """Create the changelogs and the markers topic of an epoch, as far as they are missing."""
    topics = (*topic_settings.changelogs_of(topology, paths, partitions), topic_settings.markers_of(paths))
    topic_settings.create_missing(broker, topics)


def create_markers(broker: Broker, paths: EpochPaths) -> None:
    """Create an epoch's markers topic unless it is there."""
    topic_settings.create_missing(broker, [topic_settings.markers_of(paths)])


def write_baseline(run: EpochRun) -> LedgerRow:
    """Write the whole state to the changelogs, close it with a marker, and put it on record.

    The epoch's versioned topics get what it was seeded with, in the same way: they hold all that the epoch ever
    computed.

    Idempotent, and nothing is ever deleted for it: a driver that was frozen here would delete what its successor wrote.
    A crash in the middle leaves records without a marker. The next attempt reads them: a key that is no longer in the
    table gets a tombstone, and a record of a versioned topic that is there is not sent again.

    Raises:
        LedgerError: the epoch has no sender, or has versioned topics and computed slices that are not in them.
        StaleWriterError: another driver claimed the epoch.
    """
    state = run.ledger.begun()
    committed = state.committed
    sender = run.sent.opened()
    if run.topology.versioned_topics and committed.seq > 0:
        raise LedgerError(
            f"The epoch has computed {committed.seq} slices that are not in its versioned topics: they cannot be "
            "filled any more. Replay into a new epoch.",
            seq=committed.seq,
        )
    if run.sent.seq < committed.seq:
        partitions = max(run.engines.broker.partitions(topic) for topic in run.topic_ids)
        create_topics(run.engines.broker, run.topology, run.paths, partitions)
        versioned_topics.create_topics(run.engines.broker, run.topology, run.paths, partitions)
        # The sender is initialised: from here on no earlier driver can add to what is read now.
        with EarlierAttempts(run.engines.broker, run.engines.scratch) as attempts:
            crash_point("baseline.begun", committed.seq)
            for table in run.topology.tables:
                _write_table(run, state, table)
            for records in versioned_topics.seeded(run, committed, BASELINE_ROWS):
                run.ledger.check_claim(run.writer)
                sender.send(attempts.missing(records), state.position)
                crash_point("baseline.topics", committed.seq)
        closing = marker(run, committed.seq, state.position, committed, "held", roots=committed.detail.get("roots"))
        sender.send([closing], state.position)
        run.sent.seq, run.sent.plan = committed.seq, None
        crash_point("baseline.marker", committed.seq)
    return run.ledger.append(
        LedgerRow(
            kind="baseline",
            seq=committed.seq,
            writer=run.writer,
            at=clock.now(),
            code=run.code,
            detail=sent_ends(run, "versioned", committed, None),
        )
    )


def keys_in(engines: Engines, topic: str, *, with_deleted: bool = False) -> PagedKeys:
    """Keys that a topic holds; to be closed. No process may send to the topic.

    Args:
        engines: broker, and the folder for the keys on this host's disk.
        topic: its name.
        with_deleted: whether keys with a null value count: one may be alive in another partition.
    """
    broker, keys = engines.broker, PagedKeys(engines.scratch)
    for batch in broker.fold(topic, broker.settled_ends([topic])):
        newest = dict(batch)
        keys.add(key for key, value in newest.items() if with_deleted or value is not None)
        if not with_deleted:
            keys.discard(key for key, value in newest.items() if value is None)
    return keys


def _write_table(run: EpochRun, state: BegunState, table: Table) -> None:
    """Write a table's rows to its changelog, then tombstones for the keys that it has no more."""
    committed, position, sender = state.committed, state.position, run.sent.opened()
    name, names = run.paths.changelog(table.name), [column.name for column in table.columns]
    with keys_in(run.engines, name, with_deleted=True) as stale_keys:
        for rows in chunks(contents_of(run.paths, committed, table.name), names, BASELINE_ROWS):
            run.ledger.check_claim(run.writer)
            part = list(changelog_records(name, table, rows, committed.seq))
            stale_keys.discard(record.key for record in part if record.key is not None)
            sender.send(part, position)
            crash_point("baseline.chunk", committed.seq)
        for keys in stale_keys.batches(BASELINE_ROWS):
            run.ledger.check_claim(run.writer)
            sender.send(changelogs.tombstones(name, keys, committed.seq), position)


class EarlierAttempts:
    """What attempts at a baseline left in topics, before the one at hand.

    Args:
        broker: Kafka; no other process may send to the topics.
        scratch: folder for the keys on this host's disk.
    """

    def __init__(self, broker: Broker, scratch: str = "") -> None:
        self._broker = broker
        self._scratch = scratch
        self._sent: dict[str, PagedKeys] = {}
        self._open = ExitStack()

    def __enter__(self) -> EarlierAttempts:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def missing(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records that are not in their topic yet; of equal ones, as many as it lacks."""
        for record in records:
            if record.topic not in self._sent:
                self._sent[record.topic] = self._open.enter_context(self._counted(record.topic))
            if not self._sent[record.topic].take(digest(record.key, record.value)):
                yield record

    def _counted(self, topic: str) -> PagedKeys:
        start, end = self._broker.low_watermarks([topic]), self._broker.settled_ends([topic])
        sent = PagedKeys(self._scratch)
        for batch in self._broker.read(start, end):
            sent.add(digest(message.key(), message.value()) for message in batch)
        return sent
