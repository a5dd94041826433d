"""Changelogs: the whole state written once, and folded back into tables.

A changelog is a compacted topic with every update of a table; a null value deletes its key. Each record names the slice
that changed the key in header ``seq``; the marker of a slice, sent in the same transaction, vouches for all up to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kappa import clock, stored, versioned
from kappa.decoding import decoded
from kappa.encoding import changelog_records
from kappa.errors import DataLossError, LedgerError
from kappa.lake import EpochPaths
from kappa.replay.offsets import Offsets
from kappa.runtime.contents import chunks, contents_of
from kappa.runtime.faults import crash_point
from kappa.runtime.ledger import LedgerRow, Sends
from kappa.slices import EpochRun, marker, sent_ends
from kappa.topology import Table, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa.runtime.broker import Broker

#: Rows of the baseline that go into one Kafka transaction.
BASELINE_ROWS = 100_000

_TOPIC = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    # A fold that takes a day must still see every tombstone.
    "delete.retention.ms": str(7 * 24 * 3600 * 1000),
    "segment.ms": str(3600 * 1000),
    "max.message.bytes": str(8 << 20),
}


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The last marker of an epoch.

    Attributes:
        seq: the slice up to which the changelog is complete.
        end: offsets from which the next slice is read.
        max_timestamps: topic -> partition -> running maximum of timestamps, epoch milliseconds.
        topic_ids: ids of the source topics.
        shapes: keys and columns of the tables, by place, as JSON values.
        code: content hash of the code that ran the slice.
        topology_version: its author's word for it.
        sends: which topic outputs the slice sent.
        reconciled: the handover whose differences were sent with it; None for the marker of a slice.
        roots: the end in offsets of root topics, of an epoch that reads own topics of others.
        lake: id of the lake whose driver sent it; empty in markers of before lakes had one.
    """

    seq: int
    end: Offsets
    max_timestamps: dict[str, dict[int, int]]
    topic_ids: dict[str, str]
    shapes: dict[str, Any]
    code: str
    topology_version: str
    sends: Sends
    reconciled: int | None = None
    roots: dict[str, dict[str, int]] | None = None
    lake: str = ""

    @property
    def standing(self) -> Offsets:
        """The end in offsets of root topics, in which markers of different epochs can be compared."""
        return self.end if self.roots is None else Offsets.from_json(self.roots)


def read_marker(broker: Broker, paths: EpochPaths) -> Marker | None:
    """The last marker of an epoch; None when it has none. Fence its writer first, or another may follow.

    Fields are read as :mod:`kappa.stored` says.
    """
    if paths.markers not in broker.topics(paths.markers):
        return None
    found = broker.last_record(paths.markers, 0)
    if found is None or found[1] is None:
        return None
    content: dict[str, Any] = json.loads(found[1])
    times = {t: {int(p): ms for p, ms in parts.items()} for t, parts in content.pop("max_timestamps").items()}
    return stored.read(Marker, {**content, "end": Offsets.from_json(content["end"]), "max_timestamps": times})


def create_topics(broker: Broker, topology: Topology, paths: EpochPaths, partitions: int) -> None:
    """Create the changelogs and the markers topic of an epoch; does nothing for those that are there."""
    wanted = {**{paths.changelog(table.name): partitions for table in topology.tables}, paths.markers: 1}
    present = broker.topics(f"{paths.name}.")
    for name, count in wanted.items():
        if name not in present:
            broker.create_topic(name, partitions=count, config=_TOPIC)


def write_baseline(run: EpochRun) -> LedgerRow:
    """Write the whole state to the changelogs, close it with a marker, and put it on record.

    The epoch's own topics get what it was seeded with, in the same way: they hold all that the epoch ever computed.

    Idempotent. A crash in the middle leaves records without a marker; the topics are then made anew, since a key that
    was deleted in between would otherwise stay in them, and a row would be in them twice.

    Raises:
        LedgerError: the epoch has no sender, or has own topics and computed slices that are not in them.
        StaleWriterError: another driver claimed the epoch.
    """
    state = run.ledger.state()
    committed = state.committed
    if committed is None or run.sender is None:
        raise LedgerError("A baseline needs a seeded epoch and a sender.")
    if run.topology.versioned_topics and committed.seq > 0:
        raise LedgerError(
            f"The epoch has computed {committed.seq} slices that are not in its own topics: they cannot be filled any more. Replay into a new epoch.",
            seq=committed.seq,
        )
    if run.marker_seq < committed.seq:
        partitions = max(run.broker.partitions(topic) for topic in run.topic_ids)
        filled = {run.paths.changelog(table.name) for table in run.topology.tables}
        filled |= {run.paths.versioned(topic.name) for topic in run.topology.versioned_topics}
        begun = sorted(filled & set(run.broker.topics()))
        if any(offset for _, offset in run.broker.high_watermarks(begun).items()):
            run.ledger.check_claim(run.writer)
            run.broker.delete_topics(begun)
            crash_point("baseline.deleted", committed.seq)
            run.sender.init()  # forgets the topics that are gone
        create_topics(run.broker, run.topology, run.paths, partitions)  # a crash may have left them deleted
        versioned.create_topics(run.broker, run.topology, run.paths, partitions)
        for table in run.topology.tables:
            names = [column.name for column in table.columns]
            for rows in chunks(contents_of(run.paths, committed, table.name), names, BASELINE_ROWS):
                run.ledger.check_claim(run.writer)
                run.sender.send(
                    changelog_records(run.paths.changelog(table.name), table, rows, committed.seq), state.position
                )
                crash_point("baseline.chunk", committed.seq)
        for records in versioned.seeded(run, committed, BASELINE_ROWS):
            run.ledger.check_claim(run.writer)
            run.sender.send(records, state.position)
            crash_point("baseline.topics", committed.seq)
        closing = marker(
            run, committed.seq, state.position, committed.max_timestamps, "held", roots=committed.detail.get("roots")
        )
        run.sender.send([closing], state.position)
        run.marker_seq = committed.seq
        crash_point("baseline.marker", committed.seq)
    return run.ledger.append(
        LedgerRow(
            kind="baseline", seq=committed.seq, writer=run.writer, at=clock.now(), code=run.code,
            detail=sent_ends(run, "versioned", None),
        )
    )  # fmt: skip


def fold(
    session: SparkSession, bootstrap_servers: str, broker: Broker, paths: EpochPaths, table: Table, upto_seq: int
) -> DataFrame:
    """The rows that a changelog holds, in the table's schema: the newest of each key, deleted keys left out.

    Time and memory grow with the changelog, which compaction keeps near the size of the state, not with history.

    Args:
        session: Spark.
        bootstrap_servers: Kafka brokers.
        broker: Kafka's administration.
        paths: the epoch whose changelog it is.
        table: the table.
        upto_seq: slice of the marker; records of later slices are not vouched for.

    Raises:
        DataLossError: the changelog does not exist, or holds records after the marker (its writer was not fenced).
    """
    from pyspark.sql import functions as F

    topic = paths.changelog(table.name)
    if topic not in broker.topics(topic):
        raise DataLossError(
            f"Changelog {topic!r} does not exist: table {table.name!r} cannot be rebuilt from it.", topic=topic
        )
    start, end = broker.low_watermarks([topic]), broker.stable_offsets([topic])
    raw = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: list(end.partitions(topic))}))
        .option("startingOffsets", start.to_json())
        .option("endingOffsets", end.to_json())
        .option("includeHeaders", "true")
        .load()
        .select(
            "key",
            "value",
            "offset",
            F.expr("CAST(CAST(element_at(filter(headers, h -> h.key = 'seq'), 1).value AS STRING) AS BIGINT)").alias(
                "seq"
            ),
        )
    )
    late = raw.where(F.col("seq") > upto_seq).count()
    if late:
        raise DataLossError(
            f"Changelog {topic!r} holds {late} records after slice {upto_seq}, the last marker's: its driver is still writing. Try again.",
            topic=topic,
        )
    newest = raw.groupBy("key").agg(F.max_by("value", "offset").alias("value")).where("value IS NOT NULL")
    return newest.select(decoded(F.col("value").cast("string"), table.columns).alias("row")).select("row.*")
