"""Facts about log, lake and code at the time of a plan. Edges gather them; nothing here looks anything up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kappa.offsets.coverage import ArchiveFacts
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.adoption import Adoption, ExistingColumns
from kappa.replay.chains import ChainFacts, Key
from kappa.replay.epoch_topics import NeededTopic
from kappa.replay.findings import Finding
from kappa.replay.proof.certificate import Sends
from kappa.replay.stages import Stage
from kappa.replay.topic_retention import FoldFacts, RetentionFacts
from kappa.topic_overrides import Overrides
from kappa.topology import Source, Topic, Topology
from kappa.topology.shapes import SentForm, Shape, sent_forms, shapes_of


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """A source of a topology.

    Attributes:
        topic: its topic.
        keyed: whether records of one key must stay in one partition.
        of: the topology whose versioned topic output it is, if any.
        is_wall_clock: whether a record's event time is the time at which its slice was planned.
        has_event_time: whether records can be late.
        follows: the column by whose time that topology says which rows are final; None where the source does not rely
            on it.
        has_idle: whether its windows do not wait for partitions without new records.
        time_in_ms: the column whose number is the event time in epoch milliseconds, if there is one.
    """

    topic: str
    keyed: bool = True
    of: str | None = None
    is_wall_clock: bool = False
    has_event_time: bool = False
    follows: str | None = None
    has_idle: bool = False
    time_in_ms: str | None = None


@dataclass(frozen=True, kw_only=True)
class OutputFacts:
    """A topic output that readers know by its name.

    Attributes:
        topic: its topic.
        of: the table or append output that it is made from.
        is_append: whether that is an append output.
        is_reconciled: whether it is reconciled with the table's rows.
        time: the column that becomes the timestamp, if any.
        nullable_key: the key column, if it may be null.
    """

    topic: str
    of: str
    is_append: bool = False
    is_reconciled: bool = False
    time: str | None = None
    nullable_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class SchemaFacts:
    """The schemas of a topology's topics.

    Attributes:
        without_schema: Avro topics for which the lake has no schema, while no schema registry is set.
        refused: Avro topic outputs whose schema the registry would refuse.
        avro: JSON sources whose topics get Avro from an epoch of this lake.
        json: JSON sources whose topics get JSON with a schema id from one.
    """

    without_schema: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    avro: tuple[str, ...] = ()
    json: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TopologyFacts:
    """The deployed topology that is to be replayed.

    Attributes:
        version: its author's name for this state of the code.
        code: content hash of the code.
        sources: what it reads.
        tables: names of its tables.
        appends: names of its append outputs.
        topics: names of the topics that it sends to.
        versioned: those of which each epoch has its own, with the table or append output that they are made from.
        reconciled: those that are reconciled with a table when the epoch goes live, with that table.
        sent_forms: those topics, with the form of their values.
        shapes: keys and columns of its tables and append outputs, by place.
        measures: full names of what a threshold may limit.
        error: why the code does not import, if it does not; the other fields then hold what could be read.
        is_sensitive: whether a source may hold values that no table may.
        mask: fingerprint of the key under which its values would be masked; empty where none is set.
        schemas: the schemas of its topics.
        outputs: the topics that all epochs share.
        own_outputs: the versioned ones, by the names that readers know.
    """

    name: str
    version: str = ""
    code: str = ""
    sources: tuple[SourceFacts, ...] = ()
    tables: tuple[str, ...] = ()
    appends: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    versioned: Mapping[str, str] = field(default_factory=dict)
    reconciled: Mapping[str, str] = field(default_factory=dict)
    sent_forms: Mapping[str, SentForm] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    error: str | None = None
    is_sensitive: bool = False
    mask: str = ""
    schemas: SchemaFacts = SchemaFacts()
    outputs: tuple[OutputFacts, ...] = ()
    own_outputs: tuple[OutputFacts, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LogFacts:
    """The log at the moment of planning.

    Attributes:
        low: low watermark of every partition.
        high: high watermark of every partition.
        stable: last stable offset of every partition: where a reader under ``read_committed`` ends.
        topic_ids: topic -> Kafka's id of it; a topic that was recreated has another one.
        cleanup: topic -> its ``cleanup.policy``.
        future_ms: topic -> how far ahead of the broker's clock the timestamp of a record may lie; absent where the
            broker sets it.
        last_times: time of the last record, where known.
        largest: topic -> its ``max.message.bytes``.
        outputs: topic -> its settings, for topic outputs that exist.
    """

    low: Offsets
    high: Offsets
    stable: Offsets
    topic_ids: Mapping[str, str]
    cleanup: Mapping[str, str] = field(default_factory=dict)
    future_ms: Mapping[str, int] = field(default_factory=dict)
    last_times: Mapping[TopicPartition, datetime] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SavepointFacts:
    """A commit of the live epoch whose files are kept.

    Attributes:
        seq: its number in the ledger.
        offsets: where its slice ended.
        finished_at: when it was committed.
        shapes: keys and columns of the tables and append outputs that it kept, by place.
    """

    seq: int
    offsets: Offsets
    finished_at: datetime
    shapes: Mapping[str, Shape]


@dataclass(frozen=True, kw_only=True)
class NamedSavepoint:
    """A commit that has a name.

    Attributes:
        name: the name, unique in its topology.
        epoch: the epoch that was live then.
        seq: the commit in its ledger.
    """

    name: str
    epoch: int
    seq: int


@dataclass(frozen=True, kw_only=True)
class LiveFacts:
    """The live epoch at its last commit.

    Attributes:
        seq: the last commit of its ledger.
        position: where that commit's slice ended.
        origin: where the history in its tables begins: its own start, or that of what it was seeded from.
        version: the topology's version that it runs.
        code: content hash of the code that it runs.
        topic_ids: topic -> Kafka's id when its ledger began.
        savepoints: commits to which tables can go back.
        topics: names of the topics that it sends to.
        versioned: those of which each epoch has its own.
        reconciled: those that it reconciled with a table when it went live, with that table.
        sent_forms: those topics, with the form of their values; not of a plan of earlier code.
        shapes: keys and columns of its tables and append outputs, by place.
        group: where its consumer group stands, if that is not a place where a slice ended; ``None`` otherwise.
        is_cut_by_arrival: whether slices of it were cut as records arrived.
        upstreams: epochs of other topologies whose versioned topics it reads.
        root_origin: the offsets in the root topics at which the history in its tables begins.
        is_behind: whether no epoch that the plan reads ever stood where it stands, or before.
        mask: fingerprint of the key under which it masks values; empty where it masks none.
        begin: where its first slice began.
        has_lost_releases: whether it does not know which partitions were idle before it began.
        set_aside: records that it set aside, or that an epoch that it began with did.
        has_lost_set_asides: whether it does not know all that was set aside before it began.
        adoption: the tables of another job with which the history in its tables begins, if it does.
    """

    epoch: int
    seq: int
    position: Offsets
    origin: Offsets
    version: str
    code: str
    topic_ids: Mapping[str, str]
    savepoints: tuple[SavepointFacts, ...] = ()
    topics: tuple[str, ...] = ()
    versioned: tuple[str, ...] = ()
    reconciled: Mapping[str, str] = field(default_factory=dict)
    sent_forms: Mapping[str, SentForm] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    group: Offsets | None = None
    is_cut_by_arrival: bool = False
    upstreams: tuple[Key, ...] = ()
    root_origin: Offsets | None = None
    is_behind: bool = False
    mask: str = ""
    begin: Offsets | None = None
    has_lost_releases: bool = False
    set_aside: SetAsides = ()
    has_lost_set_asides: bool = False
    adoption: Adoption | None = None


@dataclass(frozen=True, kw_only=True)
class MarkerFacts:
    """The last marker that an epoch left in Kafka.

    Attributes:
        seq: the slice that the marker closes.
        position: where that slice ended.
        topic_ids: topic -> Kafka's id of it at that time.
        shapes: keys and columns of the tables that have a changelog, by place.
        sends: whether that slice sent (``live``), or belongs to an epoch that was not live.
        is_growing: whether a driver of that epoch runs, so that more slices will follow this one.
        turn: number of the turn in which the epoch sent last; 0 where that is not known.
        owner: the other lake that the epoch belongs to; empty for one of this lake, and where that is not known.
        set_aside_unnamed: how many records were set aside that the marker does not name.
    """

    epoch: int
    seq: int
    position: Offsets
    topic_ids: Mapping[str, str]
    shapes: Mapping[str, Shape]
    sends: Sends = "live"
    is_growing: bool = False
    turn: int = 0
    owner: str = ""
    set_aside_unnamed: int = 0


@dataclass(frozen=True, kw_only=True)
class ActiveFacts:
    """A replay that is not finished.

    Attributes:
        epoch: the candidate.
        stage: how far it is.
        plan: id of its plan.
    """

    epoch: int
    stage: Stage
    plan: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything that a plan is made from, besides the request.

    Attributes:
        topology: the deployed topology; ``None`` if no topology has that name.
        log: its sources in the log.
        next_epoch: the number that a new epoch gets.
        live: the live epoch, if there is one.
        active: a replay of the topology that is not finished, if there is one.
        markers: the last marker of each epoch that left one.
        named_savepoints: savepoints that have a name, by name, of all epochs.
        first_records: for a start by time: each partition's first offset whose timestamp is not before it, ``None``
            where no record is that late.
        topologies: names of all deployed topologies, for the message about an unknown one.
        archives: archives of the sources' topics, by topic; also those of topics that were recreated since.
        records_per_second: rate of the last replay that was measured.
        records_per_offset: how many of the sources' offsets are records; the others are holes.
        bytes_per_record: size of a record of the sources, if it was measured.
        disk_per_record: bytes that the lake takes for a record of the sources, if it was measured.
        measured_epoch: the epoch whose replay gave the rate.
        measured_records: how many records that replay read.
        live_bytes: size of the live epoch's tables and outputs.
        lake: where the lake is.
        free_bytes: free space on the lake's disk; ``None`` where it is unknown.
        retention: retention of the topics that do not keep everything, with records of the span that the plan reads
            from Kafka.
        fold: the changelog that seeds the tables, if any.
        colliding_topics: topics on the broker whose names the new epoch would take for its own.
        needed: the topics that the new epoch needs besides its sources; empty where these are not all there.
        tool_options: with which the tools of Kafka reach the brokers, for commands in messages.
        topic_settings: the settings that go over those of new topics, for values in messages.
        chain: how sources are bound that are versioned topics of other topologies; the facts name topics as Kafka does.
        spread: tables with a key that was seen in several partitions of keyed sources.
        step: findings in the step's plans, if they were inspected: that takes Spark.
        existing: place -> the columns of the table of another job that an epoch begins with.
        in_seconds: topic -> a record's own time and its Kafka timestamp, where most sampled records hold epoch seconds.
        occupied: paths of published tables at which another program has a table.
        unversioned: installed distributions whose version says nothing of their content.
    """

    topology: TopologyFacts | None
    log: LogFacts
    next_epoch: int
    live: LiveFacts | None = None
    active: ActiveFacts | None = None
    markers: tuple[MarkerFacts, ...] = ()
    named_savepoints: Mapping[str, NamedSavepoint] = field(default_factory=dict)
    first_records: Mapping[TopicPartition, int | None] | None = None
    topologies: tuple[str, ...] = ()
    archives: Mapping[str, ArchiveFacts] = field(default_factory=dict)
    records_per_second: float | None = None
    records_per_offset: float | None = None
    bytes_per_record: float | None = None
    disk_per_record: float | None = None
    measured_epoch: int | None = None
    measured_records: int | None = None
    live_bytes: int | None = None
    lake: str = ""
    free_bytes: int | None = None
    retention: tuple[RetentionFacts, ...] = ()
    fold: FoldFacts | None = None
    colliding_topics: tuple[str, ...] = ()
    needed: tuple[NeededTopic, ...] = ()
    tool_options: str = ""
    topic_settings: Overrides = field(default_factory=dict)
    chain: ChainFacts = field(default_factory=ChainFacts)
    spread: tuple[str, ...] = ()
    step: tuple[Finding, ...] = ()
    in_seconds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    existing: Mapping[str, ExistingColumns] = field(default_factory=dict)
    occupied: tuple[str, ...] = ()
    unversioned: tuple[str, ...] = ()


def topology_facts(topology: Topology, code: str, mask: str = "", schemas: SchemaFacts | None = None) -> TopologyFacts:
    """Facts of a topology that imports; ``code`` is the content hash of its code, ``mask`` the fingerprint of its
    key.
    """
    return TopologyFacts(
        name=topology.name,
        version=topology.version,
        code=code,
        sources=tuple(
            SourceFacts(
                topic=source.topic,
                keyed=source.keyed,
                of=source.of,
                is_wall_clock=source.is_wall_clock,
                has_event_time=source.has_event_time and not source.is_wall_clock,
                follows=source.time if source.follows_upstream else None,
                has_idle=source.idle_after is not None,
                time_in_ms=_time_in_ms(source),
            )
            for source in topology.sources
        ),
        tables=tuple(table.name for table in topology.tables),
        appends=tuple(append.name for append in topology.appends),
        topics=tuple(topic.name for topic in topology.topics),
        versioned={topic.name: topic.of for topic in topology.versioned_topics},
        reconciled={topic.name: topic.of for topic in topology.reconciled_topics},
        sent_forms=sent_forms(topology),
        shapes=shapes_of(topology),
        measures=topology.measures,
        is_sensitive=topology.is_sensitive,
        mask=mask,
        schemas=schemas or SchemaFacts(),
        outputs=tuple(_output(topology, topic) for topic in topology.shared_topics),
        own_outputs=tuple(_output(topology, topic) for topic in topology.versioned_topics),
    )


def _output(topology: Topology, topic: Topic) -> OutputFacts:
    columns = {column.name: column for column in topology.rows_of(topic).columns}
    key = topic.key[0] if len(topic.key) == 1 else None  # several are a JSON array, which is never null
    return OutputFacts(
        topic=topic.name,
        of=topic.of,
        is_append=topic.of in {append.name for append in topology.appends},
        is_reconciled=topic.on_replay == "reconcile",
        time=topic.time,
        nullable_key=key if key is not None and columns[key].nullable else None,
    )


def _time_in_ms(source: Source) -> str | None:
    types = {column.name: column.type for column in source.columns}
    return source.time if source.has_event_time and types.get(source.time or "") == "BIGINT" else None
