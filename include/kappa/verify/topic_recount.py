"""Topics of an epoch, counted again: its changelogs and topic outputs on Kafka, compared with its Delta tables.

A stream may go on meanwhile: the state after one slice is counted, and keys that change after it are left out on both
sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kappa.config import Config
from kappa.delta import queries
from kappa.errors import CodeError, ConfigError, DamagedTableError, DataLossError, LedgerError, Transient, first_line
from kappa.kafka.broker import Broker
from kappa.kafka.changelogs import changelog_records
from kappa.names import EpochPaths
from kappa.record import schemas
from kappa.record.code import extract
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState, begun
from kappa.record.merge_on_read import chunks, contents_of
from kappa.record.rollup import runs_of
from kappa.topology import Append, Table, Topic, Topology, registry
from kappa.topology.schemas.value_schemas import value_schema
from kappa.verify.recount import Recount
from kappa.verify.topic_comparison import (
    KeyDifferences,
    RecordDifferences,
    TopicSpan,
    key_differences,
    record_differences,
    span_of,
)
from kappa.wire.avro_values import Encode
from kappa.wire.encoding import Record, topic_records
from kappa.wire.wire_values import by_digits, decoder, encoder

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that are in memory at a time.
_ROWS = 50_000


def recount_topics(
    config: Config, paths: EpochPaths, broker: Broker, progress: Callable[[str], None] = lambda _: None
) -> Recount:
    """Count again the records that an epoch sent.

    Args:
        broker: Kafka.
        progress: called with the next topic to be read.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
        DataLossError: records went while they were counted: try again.
    """
    record = epochs_of(config.lake).record(paths.topology)
    try:
        state = Ledger(paths.ledger).state()
        folder = extract(config.lake, record.epoch(paths.epoch).code, config.home) / "topologies"
        topology = registry.load_stored(folder, paths.topology)
    except (CodeError, DamagedTableError, LedgerError) as error:
        return Recount(epoch=paths.epoch, problems=(), read=(), unread=(f"Topics on Kafka: {error}",))
    present = frozenset(broker.topics(""))
    epoch = _Epoch(paths=paths, topology=topology, broker=broker, record=record, state=state, present=present)
    counts = [(f"changelog of {table.name}", partial(_changelog, epoch, table)) for table in topology.tables]
    counts += [(f"topic {topic.name}", partial(_output, epoch, topic)) for topic in topology.topics]
    total = epoch.outcome()
    for name, count in counts:
        progress(name)
        total = total.with_more(_readable(epoch, name, count))
    return total


@dataclass(frozen=True, kw_only=True)
class _Epoch:
    """An epoch whose topics are counted.

    Attributes:
        topology: its code.
        state: its ledger; the state after its last commit is counted.
        present: all topics on Kafka.
    """

    paths: EpochPaths
    topology: Topology
    broker: Broker
    record: TopologyRecord
    state: LedgerState
    present: frozenset[str]

    @property
    def committed(self) -> LedgerRow:
        """The slice after which it is counted."""
        return begun(self.state).committed

    @property
    def way_back(self) -> str:
        """The command after which a topic is right again."""
        return f"Compute it anew in another epoch: kappa replay {self.paths.topology}"

    @property
    def backfills(self) -> list[int]:
        """Slices that were backfills; the ledger has the last one before the record of epochs."""
        past = {event.detail["seq"] for event in self.record.epoch(self.paths.epoch).backfilled}
        return sorted(past | {row.seq for row in self.state.commits if row.is_replacement})

    def outcome(self, *, problems: Sequence[str] = (), read: Sequence[str] = (), unread: Sequence[str] = ()) -> Recount:
        """The outcome for one topic."""
        return Recount(epoch=self.paths.epoch, problems=tuple(problems), read=tuple(read), unread=tuple(unread))

    def rows(self, table: Table) -> Iterator[pa.Table]:
        """The rows of a table after the counted slice."""
        columns = [column.name for column in table.columns]
        return chunks(contents_of(self.paths, self.committed, table.name), columns, _ROWS)


def _readable(epoch: _Epoch, name: str, count: Callable[[], Recount]) -> Recount:
    """The outcome of a count; rows that cannot be read are a problem like any other."""
    try:
        return count()
    except (Transient, DataLossError):
        raise
    except Exception as error:  # a file may be damaged in any way, and each library has errors of its own
        reason = f"{type(error).__name__}: {first_line(error)}"
        return epoch.outcome(
            problems=[f"{name} cannot be compared with its rows: {reason} {epoch.way_back}"],
            unread=[f"{name}, after what is wrong with its rows"],
        )


def _changelog(epoch: _Epoch, table: Table) -> Recount:
    """Compare a changelog with its table."""
    name = epoch.paths.changelog(table.name)
    if epoch.state.baseline_seq is None:
        return epoch.outcome(unread=[f"Changelog {name}: the epoch has not written one yet."])
    if name not in epoch.present:
        problem = f"changelog {name} is gone: the epoch cannot be rebuilt from it. {epoch.way_back}"
        return epoch.outcome(problems=[problem])
    seq = epoch.committed.seq

    def records() -> Iterator[Record]:
        for rows in epoch.rows(table):
            yield from changelog_records(name, table, rows, seq)

    span = span_of(epoch.broker, name, upto_seq=seq)
    return _of_keys(epoch, f"changelog {name}", table, span, key_differences(span, records))


def _output(epoch: _Epoch, topic: Topic) -> Recount:
    """Compare a topic output with its rows, as far as the lake still has them."""
    name = epoch.paths.versioned(topic.name) if topic.is_versioned else topic.name
    if name not in epoch.present:
        was_sent = any(run.facts.sends == "live" or topic.is_versioned for run in runs_of(epoch.state) if run.facts.seq)
        return epoch.outcome(problems=[f"topic {name} is gone. {epoch.way_back}"] if was_sent else [])
    wire, rows = _wire_of(epoch, topic, name), epoch.topology.rows_of(topic)
    if wire is None:
        return epoch.outcome(unread=[f"Topic {name}: the lake has no schema with which its values were written."])
    if isinstance(rows, Append):
        return _append_topic(epoch, wire, rows)
    is_reconciled = topic.on_replay == "reconcile" and epoch.record.live == epoch.paths.epoch
    if is_reconciled and epoch.state.resumed_for != epoch.record.last_handover:
        return epoch.outcome(unread=[f"Topic {name}: what it gets at the last move is not sent yet."])
    if topic.is_versioned or is_reconciled:
        return _table_topic(epoch, wire, rows)
    return epoch.outcome(
        unread=[f"Topic {name}: it holds changes of table {rows.name}, of which the lake keeps only the last ones."]
    )


@dataclass(frozen=True, kw_only=True)
class _Wire:
    """The way of rows to a topic output.

    Attributes:
        name: the topic on Kafka.
        columns: names of the columns in a value.
        decode: reads a value.
        encode: makes values; None for JSON.
    """

    topic: Topic
    name: str
    columns: Sequence[str]
    decode: Callable[[bytes], Any] = by_digits
    encode: Encode | None = None

    def records(self, rows: pa.Table) -> Iterator[Record]:
        """The records of rows."""
        return topic_records(self.topic, self.columns, rows, name=self.name, encode=self.encode)


def _wire_of(epoch: _Epoch, topic: Topic, name: str) -> _Wire | None:
    """The way of rows to a topic output; None where the lake lacks the schema of its values."""
    columns = epoch.topology.sent_columns(topic)
    names = [column.name for column in columns]
    if topic.format == "json":
        return _Wire(topic=topic, name=name, columns=names)
    registered = [one for one in schemas.load(epoch.paths.lake, topic.name).values() if one.subject]
    schema = value_schema(topic.format, topic.name, columns)
    number = next((one.id for one in registered if schemas.is_same(one.schema, schema)), None)
    if number is None:
        return None
    decode = decoder({one.id: one.schema for one in registered})
    return _Wire(topic=topic, name=name, columns=names, decode=decode, encode=encoder(number, schema, names))


def _table_topic(epoch: _Epoch, wire: _Wire, table: Table) -> Recount:
    """Compare a topic of a table's newest rows with the table."""

    def records() -> Iterator[Record]:
        for rows in epoch.rows(table):
            yield from wire.records(rows)

    sent = {column.name: column.delta for column in epoch.topology.sent_columns(wire.topic)}
    columns = None if wire.topic.is_versioned else sent
    span = span_of(epoch.broker, wire.name, decode=wire.decode, columns=columns)
    differences = key_differences(span, records, partial(_changed_keys, epoch, wire, table))
    return _of_keys(epoch, f"topic {wire.name}", table, span, differences)


def _changed_keys(epoch: _Epoch, wire: _Wire, table: Table) -> Set[bytes]:
    """Keys that slices after the counted one have changed so far: a slice writes them before it sends them."""
    columns = [*(column.name for column in table.columns), "_deleted"]
    since = f"_seq > {epoch.committed.seq}"
    parts = queries.chunks(epoch.paths.changes(table.name), None, columns, _ROWS, where=since)
    return {record.key or b"" for rows in parts for record in wire.records(rows)}


def _of_keys(epoch: _Epoch, what: str, table: Table, span: TopicSpan, differences: KeyDifferences) -> Recount:
    """The outcome of a comparison by keys, in words."""
    missing, different, extra = differences.missing, differences.different, differences.extra
    phrases = [
        text.format(count)
        for count, text in (
            (missing, "{} keys of the table are not in it"),
            (different, "{} keys have other values"),
            (extra, "{} keys are not in the table"),
        )
        if count
    ]
    problems, unread = [], []
    if missing and not different and not extra and span.is_cut:
        unread = [f"{what[:1].upper()}{what[1:]}: {missing:,} keys whose records may have gone with retention."]
    elif phrases:
        example = differences.example.decode(errors="replace")
        problems = [
            f"{what} is not what table {table.name} holds: {', '.join(phrases)}; key {example} is one. {epoch.way_back}"
        ]
    read = f"{what}: {span.offsets:,} offsets, {differences.keys:,} keys of table {table.name}"
    return epoch.outcome(problems=problems, read=[read], unread=unread)


def _append_topic(epoch: _Epoch, wire: _Wire, output: Append) -> Recount:
    """Look for each sent row of an append output among the records of its topic."""
    columns = [column.name for column in output.columns]
    path, version = epoch.paths.output(output.name), epoch.committed.delta_versions[f"outputs/{output.name}"]
    where = _sent_rows(epoch, wire.topic)

    def records() -> Iterator[Record]:
        for rows in queries.chunks(path, version, columns, _ROWS, where=where):
            yield from wire.records(rows)

    span = span_of(epoch.broker, wire.name, decode=wire.decode)
    return _of_records(epoch, wire, span, record_differences(span, records))


def _sent_rows(epoch: _Epoch, topic: Topic) -> str:
    """Condition on the rows of an append output that were sent, by the ledger.

    Those of the seed are in versioned topics once these have the baseline. Rows of backfills were not sent, or as the
    rows that they replaced.
    """
    has_seed = topic.is_versioned and epoch.state.baseline_seq is not None
    runs = [
        run.facts
        for run in runs_of(epoch.state)
        if run.facts.sends == "live"
        or (topic.is_versioned and run.facts.sends == "versioned")
        or (has_seed and run.facts.seq == 0)
    ]
    condition = " OR ".join(f"(_seq >= {run.seq} AND _seq <= {run.last})" for run in runs) or "FALSE"
    backfills = ", ".join(map(str, epoch.backfills))
    return f"({condition}) AND _seq NOT IN ({backfills})" if backfills else condition


def _of_records(epoch: _Epoch, wire: _Wire, span: TopicSpan, differences: RecordDifferences) -> Recount:
    """The outcome of a comparison by records, in words."""
    name, rows, missing, repeated = wire.name, differences.rows, differences.missing, differences.repeated
    problems, unread = [], []
    if missing and (span.is_cut or _may_be_compacted(epoch, name)):
        unread.append(
            f"Topic {name}: {missing:,} of {rows:,} records, which may have gone with retention or compaction."
        )
    elif missing:
        problems.append(
            f"topic {name} lacks {missing:,} of {rows:,} records that the ledger says were sent. {epoch.way_back}"
        )
    if repeated and epoch.backfills:
        unread.append(
            f"Topic {name}: {repeated:,} records equal others. They are repeated, or of rows that a backfill has "
            "replaced."
        )
    elif repeated and _is_only_sender(epoch, wire.topic):
        problems.append(f"topic {name} holds {repeated:,} records more than once. {epoch.way_back}")
    others = differences.foreign + repeated
    read = f"topic {name}: {rows:,} rows sent, {rows - missing:,} found, {others:,} other records"
    return epoch.outcome(problems=problems, read=[read], unread=unread)


def _may_be_compacted(epoch: _Epoch, name: str) -> bool:
    """Whether Kafka may have dropped earlier records of a key; so, too, where this user may not read the settings."""
    try:
        return "compact" in epoch.broker.topic_configs([name])[name]["cleanup.policy"]
    except ConfigError:
        return True


def _is_only_sender(epoch: _Epoch, topic: Topic) -> bool:
    """Whether only this epoch sent to a topic, and nothing since the commit that is counted."""
    is_sole = topic.is_versioned or {move.epoch for move in epoch.record.moves} <= {epoch.paths.epoch}
    return is_sole and Ledger(epoch.paths.ledger).state().last == epoch.state.last
