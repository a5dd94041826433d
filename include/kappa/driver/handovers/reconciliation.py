"""The records that bring a table's topic up to a new live epoch: rows that differ, and null values for removed keys.

A fold of the topic, the newest record of each key, then gives the table of the live epoch. The differences are written
once, before the pointer moves, while both epochs stand at the same offsets; then they are sent in one Kafka transaction
with a marker that names the handover, before the new epoch sends its first slice. Most of the comparison is made
earlier: :mod:`kappa.verify.key_comparison`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kappa.delta import queries, tables
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState, LedgerState
from kappa.record.merge_on_read import frame_at
from kappa.replay.rules.topic import has_same_key, other_form
from kappa.slices.run import EpochRun
from kappa.slices.topics.changelog import keys_in
from kappa.slices.topics.registered_topics import encoder_of
from kappa.slices.topics.sending import marker
from kappa.store.stores import store_of
from kappa.topology import Source, Table, Topic, Topology
from kappa.topology.ddl import Column, quoted
from kappa.topology.shapes import SentForm, Shape, sent_forms
from kappa.verify import key_comparison
from kappa.verify.key_comparison import ComparedSide
from kappa.wire.decoders import key_decoder
from kappa.wire.encoding import Record, topic_records
from kappa.wire.parsing import layout_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Rows that are in memory at a time while they are sent.
CHUNK_ROWS = 100_000

HANDOVER = Column(name="_handover", type="BIGINT", nullable=False, delta="long")


@dataclass(frozen=True, kw_only=True)
class ReconciledRecords:
    """How many records a topic gets.

    Attributes:
        upserts: rows that are new or changed.
        tombstones: null values for keys that are gone.
    """

    upserts: int
    tombstones: int


@dataclass(frozen=True, kw_only=True)
class Predecessor:
    """The live epoch where it stopped.

    Attributes:
        paths: where it is.
        state: its ledger; its last commit is at the offsets at which the next epoch takes over.
        shapes: keys and columns of its tables, by place.
        topics: names of the topics that it sends to.
        reconciled: topic -> table, for those that hold what the table holds.
        sent_forms: the form of their values; not of those whose plan does not say it.
        unsent: number of the handover whose differences it has written and not sent: it never began to send.
    """

    paths: EpochPaths
    state: BegunState
    shapes: Mapping[str, Shape]
    topics: tuple[str, ...]
    reconciled: Mapping[str, str]
    sent_forms: Mapping[str, SentForm]
    unsent: int | None

    @property
    def committed(self) -> LedgerRow:
        """Its last commit."""
        return self.state.committed

    @property
    def side(self) -> ComparedSide:
        """The epoch as one of two that are compared."""
        return ComparedSide(paths=self.paths, state=self.state)

    def holds(self, topic: Topic, table: Table, form: SentForm) -> bool:
        """Whether a topic holds what its table of this name holds, by the same key and in the form that it gets now:
        only differing rows are sent.
        """
        is_there = topic.name in self.topics and is_alike(self.shapes, table)
        is_current = is_there and self.reconciled.get(topic.name) == table.name and self.unsent is None
        before = self.shapes.get(f"tables/{table.name}")
        return is_current and not other_form(self.sent_forms.get(topic.name), form, before, Shape.of(table))


def is_due(topology: Topology, record: TopologyRecord, state: LedgerState) -> bool:
    """Whether the live epoch has sent nothing since it went live, by its ledger: its topics may lack what differs."""
    return bool(topology.reconciled_topics) and state.resumed_for != record.last_handover


def predecessor(lake: str, record: TopologyRecord, state: LedgerState) -> Predecessor | None:
    """The live epoch, by its ledger; None when there is none."""
    if record.live is None or not isinstance(state, BegunState):
        return None
    epoch = record.epoch(record.live)
    is_unsent = bool(epoch.reconciled) and state.resumed_for != record.last_handover
    return Predecessor(
        paths=EpochPaths(lake=lake, topology=record.topology, epoch=record.live),
        state=state,
        shapes=state.shapes,
        topics=epoch.sends_to,
        reconciled=epoch.reconciled,
        sent_forms=epoch.sent_forms,
        unsent=record.last_handover if is_unsent else None,
    )


def get_ready(run: EpochRun, before: Predecessor | None) -> None:
    """Compare the tables while the epoch follows the other: at the handover only what changed since is compared.

    To be called between two slices, now and then. Idempotent.

    Raises:
        StaleWriterError: another driver claimed the epoch.
    """
    if before is None:
        return
    forms = sent_forms(run.topology)
    topics = [(topic, as_sent(run.topology, topic.of)) for topic in run.topology.reconciled_topics]
    held = {table.name: table for topic, table in topics if before.holds(topic, table, forms[topic.name])}
    for table in held.values():
        key_comparison.compare(run, before.side, table)


def write_differences(
    run: EpochRun, before: Predecessor | None, handover: int, *, is_sent: bool = False
) -> dict[str, dict[str, int]]:
    """Compare the tables of both epochs at the same offsets and write once what their topics have to get.

    To be called by the epoch that goes live, before the pointer moves. Idempotent by the handover's number: what is
    written is never computed again, and needs the other epoch's files no more. A crash leaves the differences of some
    topics.

    Args:
        run: the epoch.
        before: the epoch that is live.
        handover: its number on record.
        is_sent: whether the topics are taken to hold the tables' rows without an epoch before: nothing differs then.

    Returns:
        Topic -> numbers of records, as :class:`ReconciledRecords` has them.

    Raises:
        StaleWriterError: another driver claimed the epoch.
    """
    committed = run.ledger.begun().committed
    topic_counts = {}
    for topic in run.topology.reconciled_topics:
        table = as_sent(run.topology, topic.of)
        path = run.paths.reconciled(topic.name)
        loose = [
            Column(name=c.name, type=c.type, nullable=c.name not in table.key, delta=c.delta) for c in table.columns
        ]
        tables.create(path, (HANDOVER, tables.DELETED, *loose))
        if not tables.is_written(path, handover):
            run.ledger.check_claim(run.writer)
            rows = differences(run, topic, table, committed, before, handover)
            tables.append_frame(path, rows.limit(0) if is_sent else rows, handover)
            crash_point("reconcile.differences", committed.seq)
        topic_counts[topic.name] = asdict(_counted(path, handover))
    return topic_counts


def written(paths: EpochPaths, topics: Iterable[str], handover: int) -> dict[str, dict[str, int]] | None:
    """What :func:`write_differences` wrote for an epoch's topics, on any request; None until all of it is there."""
    there = {topic: paths.reconciled(topic) for topic in topics}
    if not all(tables.exists(path) and tables.is_written(path, handover) for path in there.values()):
        return None
    return {topic: asdict(_counted(path, handover)) for topic, path in there.items()}


def differences(
    run: EpochRun, topic: Topic, table: Table, committed: LedgerRow, before: Predecessor | None, handover: int
) -> DataFrame:
    """Rows that a topic has to get: the table's columns, ``_deleted`` and ``_handover``; one row per key, in no order.

    Where the topic held what the other epoch's table holds, the rows that differ in a column of the new table; a column
    that one side lacks is null there. Otherwise every row, and null values for other keys: those of the other epoch's
    table if it kept the topic by this key, else those in the topic, whoever sent them.
    """
    from pyspark.sql import functions as F

    place, key = f"tables/{table.name}", list(table.key)
    names = [column.name for column in table.columns]
    after = frame_at(run.engines.session, run.paths, committed, place).select(*quoted(names))
    if before is None:
        return _marked(after, handover)
    if not is_alike(before.shapes, table) or before.reconciled.get(topic.name) != table.name:
        removed_keys = _keys_in(run, topic, table).join(after, on=key, how="left_anti")
        return _marked_with(after, removed_keys, handover)
    earlier_rows = frame_at(run.engines.session, before.paths, before.committed, place)
    if not before.holds(topic, table, sent_forms(run.topology)[topic.name]):
        keys = earlier_rows.select(*quoted(key))
        if before.unsent is not None:
            # It never sent them: keys that it lacks, and that the epoch before it had, are still in the topic.
            unsent = run.engines.session.read.format("delta").load(before.paths.reconciled(topic.name))
            keys = keys.union(unsent.where(F.col(HANDOVER.name) == before.unsent).select(*quoted(key))).distinct()
        return _marked_with(after, keys.join(after, on=key, how="left_anti"), handover)
    candidates = key_comparison.candidate_keys(run, before.side, table)
    ours, theirs = (key_comparison.among(rows, candidates, table) for rows in (after, earlier_rows))
    return _marked_by(ours, theirs, table, handover)


def send(run: EpochRun, handover: int) -> None:
    """Send the differences of a handover, in one Kafka transaction with a marker that names it.

    Idempotent: skipped when that marker is there. A crash leaves all of it sent, or nothing that a reader sees.

    Raises:
        StaleWriterError: another driver took the epoch over, or the transaction took longer than Kafka allows.
    """
    state, sender = run.ledger.begun(), run.sent.opened()
    if run.sent.handover == handover:
        return
    run.ledger.check_claim(run.writer)
    sender.begin()
    sender.extend(_records(run, handover))
    crash_point("reconcile.open", state.seq)
    # "live": from here on the topics hold what this epoch's tables hold.
    last = state.committed
    closing = marker(run, last.seq, state.position, last, "live", handover, roots=last.detail.get("roots"))
    sender.extend([closing])
    sender.commit(state.position)
    run.sent.handover = handover
    crash_point("reconcile.send", state.seq)


def forget(paths: EpochPaths) -> None:
    """Remove the sent differences and the rows compared for them; their number is on record.

    Idempotent.
    """
    folder = paths.reconciled("x").rpartition("/")[0]
    store_of(folder).delete_folder(folder)
    key_comparison.forget(paths)


def as_sent(topology: Topology, name: str) -> Table:
    """A table whose columns are not internal where its topics send them."""
    table = topology.table(name)
    topics = [topic for topic in topology.topics if topic.of == name]
    sent = {column for topic in topics for column in (*topic.key, *topic.columns, topic.time)}
    return replace(table, internal=tuple(column for column in table.internal if column not in sent))


def is_alike(shapes: Mapping[str, Shape], table: Table) -> bool:
    """Whether an epoch, by its shapes, has the table with the same key."""
    return has_same_key(shapes.get(f"tables/{table.name}"), Shape.of(table))


def _marked(rows: DataFrame, handover: int, *, deleted: bool = False) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.withColumn("_deleted", F.lit(deleted)).withColumn(HANDOVER.name, F.lit(handover).cast("bigint"))


def _marked_with(rows: DataFrame, removed_keys: DataFrame, handover: int) -> DataFrame:
    gone = _marked(removed_keys, handover, deleted=True)
    return _marked(rows, handover).unionByName(gone, allowMissingColumns=True)


def _keys_in(run: EpochRun, topic: Topic, table: Table) -> DataFrame:
    """Keys with a value in a topic, as the table's columns; without those that no row of the table could have."""
    columns = {column.name: column for column in table.columns}
    ddl = ", ".join(columns[name].ddl() for name in topic.key)
    source = Source(topic=topic.name, schema=ddl, key_schema=ddl, key_format="text" if len(topic.key) == 1 else "json")
    kind = layout_of(source).key_kind
    decode = key_decoder(source, kind, {})
    assert decode is not None
    parts = [pa.schema(list(kind)).empty_table()]
    if run.engines.broker.has_topic(topic.name):
        with keys_in(run.engines, topic.name) as keys:
            for batch in keys.batches(CHUNK_ROWS):
                rows, _ = decode(pa.array(batch, pa.binary()))
                parts.append(pa.Table.from_struct_array(rows.filter(rows.is_valid())))
    return run.engines.session.createDataFrame(pa.concat_tables(parts)).dropna()


def _marked_by(after: DataFrame, earlier_rows: DataFrame, table: Table, handover: int) -> DataFrame:
    from pyspark.sql import functions as F

    key, names = list(table.key), [column.name for column in table.columns if column.name not in table.key]
    columns = [F.col(f"_new.{q}").alias(name) for name, q in zip(names, quoted(names), strict=True)]
    differing_keys = key_comparison.differing(after, earlier_rows, table)
    return _marked(
        differing_keys.select(*quoted(key), *columns, F.col("_new").isNull().alias("_gone")), handover
    ).select(*quoted([*key, *names]), F.col("_gone").alias("_deleted"), HANDOVER.name)


def _counted(path: str, handover: int) -> ReconciledRecords:
    counts = 'COUNT(*) AS "all", COALESCE(SUM(CASE WHEN "_deleted" THEN 1 ELSE 0 END), 0) AS "gone"'
    (row,) = queries.query(path, None, select=counts, where=f"{HANDOVER.name} = {handover}").to_pylist()
    return ReconciledRecords(upserts=row["all"] - row["gone"], tombstones=row["gone"])


def _records(run: EpochRun, handover: int) -> Iterator[Record]:
    for topic in run.topology.reconciled_topics:
        columns = [column.name for column in run.topology.rows_of(topic).columns]
        sent = [column.name for column in run.topology.sent_columns(topic)]
        path, condition = run.paths.reconciled(topic.name), f"{HANDOVER.name} = {handover}"
        for rows in queries.chunks(path, None, [*columns, "_deleted"], CHUNK_ROWS, where=condition):
            yield from topic_records(topic, sent, rows, encode=encoder_of(run, topic))
