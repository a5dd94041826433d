"""An epoch's versioned topics: each epoch sends all that it computes for a versioned topic output to a topic of its
own.

A reader follows the live pointer from one epoch's topic to the next; every move says at which offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kappa.delta import queries, table_files
from kappa.errors import RefusedError
from kappa.faults import crash_point
from kappa.kafka import topic_settings
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import chunks, contents_of, read_table
from kappa.replay.rules.topic import colliding
from kappa.slices.run import EpochRun
from kappa.slices.topics.registered_topics import encoder_of
from kappa.topology import ORDER, Table, Topology
from kappa.wire.encoding import Record, topic_records

if TYPE_CHECKING:
    import pyarrow as pa

    from kappa.kafka.broker import Broker


def put_names_on_record(epochs: Epochs, broker: Broker, topology: Topology, paths: EpochPaths) -> bool:
    """Take the names of an epoch's versioned topics before the topics are made; whether the epoch may make them.

    Removing the epoch removes topics of these names, those too that were there and empty. Idempotent.

    Raises:
        RefusedError: a topic of such a name exists and is not empty, or belongs to an epoch of another topology.
    """
    names = {topic.name: paths.versioned(topic.name) for topic in topology.versioned_topics}
    if not names:
        return True

    def decide(now: Now) -> Sequence[Event]:
        epoch = now.record.epoch(paths.epoch)
        if epoch.topics or epoch.stage.is_ended:
            return []
        owned = needed_topics(now.records)
        conflicts = sorted({*colliding(names.values(), owned), *foreign(broker, names.values())})
        if conflicts:
            raise RefusedError(
                f"Epoch {paths.epoch} of {topology.name!r} would send to {sorted(names.values())}, and {conflicts} "
                "exist or belong to another epoch: they are not this epoch's. Remove or rename them, or: kappa abort "
                f"{topology.name} {paths.epoch} --execute",
                findings=(),
                topics=conflicts,
            )
        return [now.event("own_topics", paths.epoch, actor="driver", detail={"topics": names})]

    if epochs.change(topology.name, decide):
        crash_point("rewind.names")
    return not epochs.record(topology.name).epoch(paths.epoch).stage.is_ended


def foreign(broker: Broker, own: Iterable[str]) -> list[str]:
    """Topics on the broker that bear names of an epoch's own and that it may not take.

    It takes an empty one of exactly such a name: whoever may not create topics has them made. Nothing tells one of
    another application from these, so that a plan names those that its epoch takes (``versioned-topic-adopted``).
    """
    names = set(own)
    taken = colliding(names, broker.topics())
    ends = broker.high_watermarks(names.intersection(taken))
    empty = {name for name in ends.topics if not any(ends[name, partition] for partition in ends.partitions(name))}
    return [name for name in taken if name not in empty]


def needed_topics(records: Iterable[TopologyRecord]) -> set[str]:
    """Own topics of epochs that have not ended."""
    return {
        name
        for record in records
        for epoch in record.recent.values()
        if not epoch.stage.is_ended
        for name in epoch.topics.values()
    }


def create_topics(broker: Broker, topology: Topology, paths: EpochPaths, partitions: int) -> None:
    """Create an epoch's versioned topics; does nothing for those that are there."""
    topic_settings.create_missing(broker, topic_settings.versioned_of(topology, paths, partitions))


def seeded(run: EpochRun, committed: LedgerRow, rows: int) -> Iterator[Iterator[Record]]:
    """What an epoch's versioned topics hold of its seed, about this many records at a time, in the total order of their
    sources.

    Of an append output the rows that were copied; of a table, its rows.
    """
    for topic in run.topology.versioned_topics:
        member, name = run.topology.rows_of(topic), run.paths.versioned(topic.name)
        columns, sent = ([column.name for column in of] for of in (member.columns, run.topology.sent_columns(topic)))
        if isinstance(member, Table):
            parts = chunks(contents_of(run.paths, committed, member.name), columns, rows)
        else:
            parts = _in_order(
                run, run.paths.output(member.name), committed.delta_versions[f"outputs/{member.name}"], rows
            )
        for part in parts:
            yield topic_records(topic, sent, part, name=name, encode=encoder_of(run, topic))


def boundaries(broker: Broker, record: TopologyRecord, epoch: int) -> dict[str, Any]:
    """Where readers leave the topics of the live epoch and where they go on in those of the next, for the row of a
    move.

    To be asked while neither sends. Only of topic outputs that are versioned in one of both epochs.

    Returns:
        Topic output -> ``from`` and ``to``, each a topic with its next offset by partition; empty where there is none.
    """
    before = record.epochs.get(record.live) if record.live is not None else None
    after = record.epoch(epoch)
    names = sorted({*after.topics, *(before.topics if before else ())})

    def end(name: str | None) -> dict[str, Any]:
        # Not the stable end: that shows a committed transaction a moment late. An open one belongs to no slice.
        present = [] if name is None or not broker.has_topic(name) else [name]
        return broker.high_watermarks(present).as_dict()

    return {name: {"from": end(before.topic(name) if before else None), "to": end(after.topic(name))} for name in names}


def _in_order(run: EpochRun, path: str, delta_version: int, rows: int) -> Iterator[pa.Table]:
    count = table_files.count(path, delta_version)
    if count <= rows:
        yield queries.query(path, delta_version)
        return
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    parts = -(-count // rows)
    frame = read_table(run.engines.session, path, delta_version).repartitionByRange(parts, *ORDER)
    numbered_rows = frame.withColumn("_part", F.spark_partition_id()).persist(StorageLevel.DISK_ONLY)
    try:
        for part in range(parts):
            yield numbered_rows.where(F.col("_part") == part).drop("_part").toArrow()
    finally:
        numbered_rows.unpersist()
