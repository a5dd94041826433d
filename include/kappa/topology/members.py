"""The members of a topology: sources, tables, outputs, checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from kappa.errors import TopologyError
from kappa.topology import reserved
from kappa.topology.ddl import Column, columns_of, is_numeric, keyed_otherwise, names_of
from kappa.topology.emission import Cuts, Emission
from kappa.topology.partitions import check_partitions
from kappa.topology.schemas.envelopes import CHANGE_COLUMNS, Decimals, Envelope, check_envelope
from kappa.topology.schemas.record_keys import check_key, check_table_key
from kappa.topology.schemas.record_types import check_record
from kappa.topology.schemas.wire_schemas import (
    BY_SCHEMA_ID,
    FORMATS,
    OF_COLUMNS,
    TOPIC_FORMATS,
    Format,
    KeyFormat,
    Timestamps,
    TopicFormat,
)
from kappa.topology.thresholds import OUTPUT_MEASURES, TABLE_MEASURES
from kappa.topology.times.durations import milliseconds
from kappa.topology.times.event_time import WALL_CLOCK, Reach, check_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MEMBER_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")

#: Kafka allows 249 characters; an epoch's number with ``.e`` takes six, and may later take more.
_LONGEST_VERSIONED = 240
#: The effect of a replay on readers of a topic output.
OnReplay = Literal["hold", "versioned", "reconcile"]
#: Columns that every record of a source has besides its schema, with their types. Only if the source declares them:
#: ``_headers``, ``_tombstone`` (whether the record has no value), and the columns of changes for an envelope.
#: ``_order_timestamp`` is the running maximum of ``_timestamp`` within the partition (UTC, milliseconds); records are
#: totally ordered by (_order_timestamp, _topic, _partition, _offset).
RECORD_COLUMNS = {
    "_key": "STRING",
    "_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "_topic": "STRING",
    "_partition": "INT",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMP",
    "_order_timestamp": "TIMESTAMP",
    "_tombstone": "BOOLEAN",
    **CHANGE_COLUMNS,
}


ORDER = ("_order_timestamp", "_topic", "_partition", "_offset")
_MEMBER = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A Kafka topic, read under ``read_committed``.

    Attributes:
        topic: the topic's name.
        schema: Spark DDL of the value. A column declared ``NOT NULL`` that is absent from a record makes it a dead
            letter. Ignored if ``format`` is ``string`` or ``bytes``.
        format: ``json``, ``avro`` and ``json_schema`` give the schema's columns, the last two from values in a schema
            registry's wire format; ``string`` and ``bytes`` give one column ``value``.
        record: names of the accepted record types of ``avro`` values, with or without their namespace; other types are
            dead letters. Empty: any.
        defaults: for ``avro``, column -> its value, as JSON, if the schema that wrote a value does not have the field:
            ``{"currency": "EUR"}``. Without a default it is null.
        keyed: whether records of one key must stay in one partition; a changed partition count then refuses a replay.
        key_schema: Spark DDL of the record's key, for example ``id BIGINT``. A column that the value's schema also has
            is taken from the key if the value does not have it; other columns are added to the row. A record without
            one of these columns, in its value and in its key, is a dead letter. Empty: the step has ``_key``.
        key_format: how the key is encoded: ``text`` (one column), ``json``, ``avro`` and ``json_schema`` (in a schema
            registry's wire format), or ``int`` and ``long``, the four and eight bytes of Kafka's own serializers.
        tombstones: whether a null value is a row that deletes its key: it has the columns of ``key_schema``, nulls in
            all others, and ``_tombstone`` true. Otherwise a null value is a dead letter.
        envelope: ``debezium``: values are change records of a database. A row is the state after the change; for a
            deletion it has the columns of the key. The records also have the columns of
            :data:`kappa.topology.schemas.envelopes.CHANGE_COLUMNS`; :func:`kappa.operators.cdc_table` makes a table
            from them. Keys then have the format of the values, unless ``key_format`` names another.
        decimals: for an envelope, the meaning of text in a DECIMAL column without a schema beside it: ``precise``
            (base64 of the digits; the column has the source's scale), ``string`` or ``double``, like
            ``decimal.handling.mode``.
        timestamps: the meaning of a number in a TIMESTAMP column: ``epoch_seconds``, ``epoch_ms`` or ``epoch_us``.
            ``text``: times are text with a date, and a number makes a dead letter.
        headers: whether the step gets the column ``_headers``. Reading then takes several times as long.
        of: the topology whose versioned topic output it is. Each epoch then reads the versioned topic of one epoch of
            that topology; the step uses the name of the output.
        time: column that holds the event time, TIMESTAMP or BIGINT in epoch milliseconds; None for Kafka's timestamp. A
            record without it is a dead letter. ``wall clock`` is the time at which the slice was planned; a replay is
            then refused.
        grace: how late a record may be, for example ``10 seconds``. With it the step gets ``_event_time`` and
            ``_frontier``, and the topology an output ``late_records``. None for a source without event time, and for
            one that is ``of`` a topology and has a ``time``: that topology's operator then determines its frontier, no
            record is late, and ``_frontier`` is null.
        ahead: how far the event time may be after Kafka's timestamp. A record beyond that is a dead letter: one record
            of a distant year would make all later ones late.
        idle_after: by how much the event time of a partition without new records may be behind the greatest one of the
            topology, for example ``10 minutes``. Beyond it a live stream no longer waits for the partition. None: its
            windows wait for every partition.
        sensitive: whether values and keys may hold data that no table may: for a dead or late record the lake then
            keeps only the length and a keyed hash.

    Examples:
        >>> from kappa import Source
        >>> Source(topic="orders", schema="id STRING NOT NULL, amount BIGINT").row_columns[:3]
        ['id', 'amount', '_key']
    """

    topic: str
    schema: str = ""
    format: Format = "json"
    record: str | tuple[str, ...] | list[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    keyed: bool = True
    key_schema: str = ""
    key_format: KeyFormat = "text"
    tombstones: bool = False
    envelope: Envelope = "none"
    decimals: Decimals = "precise"
    timestamps: Timestamps = "text"
    headers: bool = False
    of: str | None = None
    time: str | None = None
    grace: str | None = None
    ahead: str = "1 hour"
    idle_after: str | None = None
    sensitive: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise TopologyError(f"Source {self.topic!r}: format {self.format!r} is not one of {', '.join(FORMATS)}.")
        if self.of is not None and not MEMBER_NAME.fullmatch(self.of):
            raise TopologyError(
                f"Source {self.topic!r}: of={self.of!r} is not a name of a topology; name the topology whose versioned "
                "topic output it is."
            )
        if self.format in OF_COLUMNS and not self.schema:
            raise TopologyError(
                f"Source {self.topic!r} reads {'Avro' if self.format == 'avro' else 'JSON'} and has no schema. Give it "
                "as Spark DDL: schema='id STRING NOT NULL'."
            )
        odd = [column.name for column in self.columns if keyed_otherwise(column.delta)]
        if odd:
            raise TopologyError(
                f"Source {self.topic!r}: columns {odd} contain a MAP whose keys are not STRING, which "
                f"{'Avro' if self.format == 'avro' else 'JSON'} does not support. Use STRING, or ARRAY<STRUCT<key: "
                "..., value: ...>>, which is how Kappa writes such a MAP."
            )
        object.__setattr__(self, "record", names_of(self.record))
        if self.envelope != "none" and self.key_schema and self.key_format == "text":
            object.__setattr__(self, "key_format", self.format)
        check_envelope(self)
        check_record(self)
        check_key(self)
        check_source(self)
        names = [column.name for column in self.columns]
        if len({name.lower() for name in names}) < len(names):
            raise TopologyError(
                f"Source {self.topic!r}: columns of schema and key_schema, {names}, differ only by case, which does "
                "not count. Write a common column in the same way."
            )
        reserved.check_names(
            f"Source {self.topic!r}",
            names,
            "Remove them from the schema; if you need one, read the value with format='string' and extract it: "
            "get_json_object(value, '$._key') AS doc_key.",
        )

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """Columns that the value is parsed into."""
        if self.format in OF_COLUMNS:
            return columns_of(self.schema, f"source {self.topic!r}")
        return columns_of(f"value {'STRING' if self.format == 'string' else 'BINARY'}", f"source {self.topic!r}")

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Columns that the key is parsed into."""
        return columns_of(self.key_schema, f"the keys of source {self.topic!r}") if self.key_schema else ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of value and key: those of the value, then those that only the key has."""
        values = self.value_columns
        return (*values, *(column for column in self.key_columns if column.name not in {c.name for c in values}))

    @property
    def grace_ms(self) -> int | None:
        """How late a record may be, in milliseconds; None if the source has no event time."""
        if self.follows_upstream:
            return 0
        return None if self.grace is None else milliseconds(self.grace, f"Source {self.topic!r}: grace")

    @property
    def follows_upstream(self) -> bool:
        """Whether its upstream topology determines which of its rows are final."""
        return self.of is not None and self.time is not None and self.grace is None and not self.is_wall_clock

    @property
    def has_event_time(self) -> bool:
        """Whether its records have event time."""
        return self.grace is not None or self.follows_upstream

    @property
    def idle_after_ms(self) -> int | None:
        """By how much the event time of a partition without new records may be behind, in milliseconds."""
        return None if self.idle_after is None else milliseconds(self.idle_after, f"Source {self.topic!r}: idle_after")

    @property
    def is_wall_clock(self) -> bool:
        """Whether a record's event time is the time at which its slice was planned."""
        return self.time == WALL_CLOCK

    @property
    def has_schema_ids(self) -> bool:
        """Whether its keys or values begin with the id of a schema."""
        return not {self.format, self.key_format}.isdisjoint(BY_SCHEMA_ID)

    @property
    def ahead_ms(self) -> int:
        """How far the event time may be after Kafka's timestamp, in milliseconds."""
        return milliseconds(self.ahead, f"Source {self.topic!r}: ahead")

    @property
    def record_columns(self) -> tuple[str, ...]:
        """The columns of :data:`RECORD_COLUMNS` that its records have."""
        asked_for = {"_headers": self.headers, "_tombstone": self.tombstones}
        asked_for |= dict.fromkeys(CHANGE_COLUMNS, self.envelope != "none")
        return tuple(name for name in RECORD_COLUMNS if asked_for.get(name, True))

    @property
    def row_columns(self) -> list[str]:
        """All columns of its rows: those of the value, then those of the record."""
        return [*(column.name for column in self.columns), *self.record_columns]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Keyed state: the newest row of each key (a KTable).

    The step's effect of this name holds at most one row for each key of the slice. A row whose boolean column
    ``_deleted`` is true removes its key.

    Attributes:
        name: name within the topology.
        key: key column or columns, ``NOT NULL`` in the schema.
        schema: Spark DDL of the row, key columns included.
        masked: columns whose values never appear in a report, which shows ``***`` instead, and a hash for key columns.
        made_by: the operator whose state it is, with its parameters; empty for a table of the author's own. State with
            other parameters is not reused. A topology adds the joins for which versions are kept.
        expires: whether rows are removed when their time is over, which is not a deletion; no topic is made from such a
            table.
        reach: how far in event time rows from this state reach; None if no interval of time bounds them.
        cuts: see :data:`Cuts`.
        internal: columns that an operator keeps for its own use; readers, topics and differences have the others. A key
            column is never :attr:`hidden` from readers, since it identifies rows.

    Examples:
        >>> from kappa import Table
        >>> Table(name="spending", key=["customer"], schema="customer STRING NOT NULL, spent STRING").measures
        ('spending.keys_added', 'spending.keys_removed', 'spending.keys_changed', 'spending.rows')
    """

    name: str
    key: str | tuple[str, ...] | list[str]
    schema: str
    masked: tuple[str, ...] | list[str] = ()
    made_by: str = ""
    expires: bool = False
    reach: Reach | None = None
    cuts: Cuts = "any"
    internal: tuple[str, ...] | list[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", names_of(self.key))
        object.__setattr__(self, "masked", names_of(self.masked))
        object.__setattr__(self, "internal", names_of(self.internal))
        _check_name("table", self.name)
        _check_cuts("Table", self.name, self.cuts)
        columns = {column.name: column for column in self.columns}
        reserved.check_names(
            f"Table {self.name!r}",
            columns,
            "Rename them in the schema and in the step.",
            reserved_names=reserved.OF_TABLES if self.made_by else None,
        )
        check_table_key(self)
        _check_masked(f"Table {self.name!r}", self.masked, columns)
        _check_internal(self, columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a row."""
        return columns_of(self.schema, f"table {self.name!r}")

    @property
    def results(self) -> tuple[Column, ...]:
        """Columns of a row without internal ones."""
        return tuple(column for column in self.columns if column.name not in self.internal)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that no reader gets."""
        return tuple(name for name in self.internal if name not in self.key)

    @property
    def is_timed(self) -> bool:
        """Whether frontiers of sources decide when its rows come and go."""
        return self.expires or self.reach is not None

    @property
    def measures(self) -> tuple[str, ...]:
        """Full names of what a threshold may limit."""
        drift = (f"drift.{c.name}" for c in self.results if is_numeric(c) and c.name not in (*self.key, *self.masked))
        return tuple(f"{self.name}.{measure}" for measure in (*TABLE_MEASURES, *drift))


@dataclass(frozen=True, kw_only=True)
class Append:
    """Rows that are appended to a Delta table, once per slice.

    Attributes:
        name: name within the topology.
        schema: Spark DDL of the row; empty if ``of`` gives it.
        of: the rows that an operator emits. They are the output's rows unless the step returns others for it.
        masked: columns whose values never appear in a report.
        partition_by: columns by which the Delta table is partitioned, for example a day.
        time: column by which a row belongs to an interval of time in a backfill, TIMESTAMP or BIGINT in epoch
            milliseconds; for a join the left row's event time. Rows of windows belong by ``window_start``.
        cuts: see :data:`Cuts`.

    Examples:
        >>> from kappa import Append
        >>> [column.name for column in Append(name="purchases", schema="id STRING NOT NULL, amount BIGINT").columns]
        ['id', 'amount']
    """

    name: str
    schema: str = ""
    of: Emission | None = field(default=None, compare=False)
    masked: tuple[str, ...] | list[str] = ()
    partition_by: tuple[str, ...] | list[str] = ()
    time: str | None = None
    cuts: Cuts = "any"

    def __post_init__(self) -> None:
        if self.of is not None and not isinstance(self.of, Emission):
            raise TopologyError(
                f"Output {self.name!r} is of {type(self.of).__name__}. Name the rows of an operator: of=windows.final, "
                "or of=joined.rows."
            )
        if self.of is not None and self.of.deletes:
            raise TopologyError(
                f"Output {self.name!r} is of the versions of {self.of.operator}, some of which delete their key: an "
                "appended deletion would be a row of nulls. Declare cdc_table with history=True, whose table has all "
                "rows with their times; or append rows that the step makes from the versions."
            )
        if self.of is not None:
            object.__setattr__(self, "schema", self.schema or self.of.schema)
            object.__setattr__(self, "cuts", self.of.cuts if self.cuts == "any" else self.cuts)
        object.__setattr__(self, "masked", names_of(self.masked))
        object.__setattr__(self, "partition_by", names_of(self.partition_by))
        _check_name("output", self.name)
        _check_cuts("Output", self.name, self.cuts)
        if not self.columns:
            raise TopologyError(f"Output {self.name!r} has no columns.")
        names = [column.name for column in self.columns]
        _check_masked(f"Output {self.name!r}", self.masked, names)
        check_partitions(self)
        reserved.check_names(f"Output {self.name!r}", names, "Rename them in the schema and in the step.")
        types = {column.name: column.type for column in self.columns}
        if self.time is not None and types.get(self.time) not in ("TIMESTAMP", "BIGINT"):
            raise TopologyError(
                f"Output {self.name!r}: time column {self.time!r} is {types.get(self.time, 'not in its schema')}. Name "
                "a column of type TIMESTAMP, or BIGINT in epoch milliseconds."
            )

    @property
    def measures(self) -> tuple[str, ...]:
        """Full names of what a threshold may limit."""
        return tuple(f"{self.name}.{measure}" for measure in OUTPUT_MEASURES)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a row, without the lineage columns that the platform adds."""
        return columns_of(self.schema, f"output {self.name!r}")


@dataclass(frozen=True, kw_only=True)
class Topic:
    """Records sent to a Kafka topic, derived from the written rows of an :class:`Append` or the changes of a
    :class:`Table`.

    Attributes:
        name: the topic's name.
        of: name of the append output or table whose rows are sent; a deleted key sends a null value.
        columns: columns of the value. Empty for all; for an operator's table all except internal ones.
        key: column whose value, as text, is the record's key; several are joined as a JSON array.
        on_replay: the effect of a replay on readers. ``hold``: nothing is sent for history. ``versioned``: each epoch
            sends everything that it computes, including history, to a topic of its own, ``<name>.e0007``, which readers
            follow by pointer. ``reconcile``: at a cutover the keys whose rows differ are sent, with a null value for
            removed keys; only for a table, by its key.
        time: column that becomes the record's timestamp, TIMESTAMP or BIGINT in epoch milliseconds: readers of the
            topic then have the row's event time. None, or a null, gives the time of sending.
        format: ``json``; ``avro`` or ``json_schema`` with a schema that is made from the columns and registered under
            ``<topic>-value`` before anything is sent. Keys have the same form in all formats.

    Examples:
        >>> from kappa import Topic
        >>> Topic(name="spending", of="spending", key="customer", on_replay="versioned").is_versioned
        True
    """

    name: str
    of: str
    key: str | tuple[str, ...] | list[str]
    on_replay: OnReplay = "hold"
    time: str | None = None
    format: TopicFormat = "json"
    columns: tuple[str, ...] | list[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", names_of(self.key))
        object.__setattr__(self, "columns", names_of(self.columns))
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", self.name):
            raise TopologyError(
                f"Topic {self.name!r} is not a name that Kafka allows (letters, digits, '.', '_', '-')."
            )
        if self.format not in TOPIC_FORMATS:
            raise TopologyError(
                f"Topic {self.name!r}: format {self.format!r} is not one of {', '.join(TOPIC_FORMATS)}."
            )
        if self.on_replay not in get_args(OnReplay):
            raise TopologyError(
                f"Topic {self.name!r}: on_replay {self.on_replay!r} is not one of {', '.join(get_args(OnReplay))}."
            )
        if self.is_versioned and len(self.name) > _LONGEST_VERSIONED:
            raise TopologyError(
                f"Topic {self.name!r} has {len(self.name)} characters and is versioned: with the epoch's number its "
                f"name would be longer than Kafka allows. Use at most {_LONGEST_VERSIONED}."
            )

    @property
    def is_versioned(self) -> bool:
        """Whether each epoch sends to a topic of its own."""
        return self.on_replay == "versioned"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A statement about the finished state that must hold before a cutover; one that raises does not hold.

    Attributes:
        name: what is checked, for people.
        sql: a query over the topology's tables and append outputs, by their names; it must return no row.
        function: the same as a function of those tables by name, which returns the rows that contradict it, or whether
            it holds.

    Examples:
        >>> from kappa import Check
        >>> Check(name="no total is negative", sql="SELECT * FROM spending WHERE spent < 0").name
        'no total is negative'
    """

    name: str
    sql: str = ""
    function: Callable[[Mapping[str, DataFrame]], DataFrame | bool] | None = None

    def __post_init__(self) -> None:
        if bool(self.sql) == (self.function is not None):
            raise TopologyError(f"Check {self.name!r} needs exactly one of sql and function.")


def _check_cuts(kind: str, name: str, cuts: Cuts) -> None:
    if cuts not in get_args(Cuts):
        raise TopologyError(f"{kind} {name!r}: cuts {cuts!r} is not one of {', '.join(get_args(Cuts))}.")


def _check_name(kind: str, name: str) -> None:
    if not _MEMBER.fullmatch(name):
        raise TopologyError(f"The name of {kind} {name!r} must be one lower-case word (letters, digits, '_').")


def _check_internal(table: Table, columns: Iterable[str]) -> None:
    if table.internal and not table.made_by:
        raise TopologyError(
            f"Table {table.name!r}: internal={list(table.internal)} is only for tables that an operator keeps, and "
            "this one is the step's. Keep data that only the step needs in a table of its own."
        )
    odd = [name for name in table.internal if name not in columns]
    if odd:
        raise TopologyError(
            f"Table {table.name!r}: internal columns {odd} are not in its schema, which has {sorted(columns)}."
        )


def _check_masked(what: str, masked: Iterable[str], columns: Iterable[str]) -> None:
    for name in masked:
        if name not in columns:
            raise TopologyError(f"{what}: masked column {name!r} is not in its schema, which has {sorted(columns)}.")
