"""A source of a topology: a Kafka topic, its records and their columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kappa.errors import TopologyError
from kappa.topology import reserved
from kappa.topology.ddl import Column, column_names, columns_of, keyed_otherwise
from kappa.topology.schemas.default_values import default_values
from kappa.topology.schemas.envelopes import CHANGE_COLUMNS, DECIMALS, ENVELOPES, SOURCE_TIME, Decimals, Envelope
from kappa.topology.schemas.wire_schemas import (
    BY_SCHEMA_ID,
    FORMATS,
    KEY_FORMATS,
    OF_COLUMNS,
    TIMESTAMPS,
    Format,
    KeyFormat,
    Timestamps,
)
from kappa.topology.times.durations import milliseconds
from kappa.topology.times.event_time import WALL_CLOCK

MEMBER_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
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
#: Key formats of one column -> the types that it may have; None for any plain one.
_SINGLE = {"text": None, "int": ("INT", "BIGINT"), "long": ("BIGINT",)}
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: Fields that decide how a record is read, besides ``format``, the columns of the value, and event time.
READING = ("record", "defaults", "key_schema", "key_format", "tombstones", "envelope", "decimals", "timestamps")
_RECORD_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


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
        defaults: for ``avro``, column -> its value if the schema that wrote a value does not have the field:
            ``{"currency": "EUR"}``. It is a JSON value, or a Decimal, bytes, date or datetime. Without one it is null.
        keyed: whether records of one key must stay in one partition; a changed partition count then refuses a replay.
        key_schema: Spark DDL of the record's key, for example ``id BIGINT``. A column that the value's schema also has
            is taken from the key if the value does not have it; other columns are added to the row. A record without
            one of these columns, in its value and in its key, is a dead letter. Empty: the step has ``_key``.
        key_format: how the key is encoded: ``text`` (one column), ``json``, ``avro`` and ``json_schema`` (in a schema
            registry's wire format), or ``int`` and ``long``, the four and eight bytes of Kafka's own serializers. JSON
            and Avro have an object or a record, or the value of the one column; JSON also an array of several columns.
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
        if not isinstance(self.topic, str) or not _TOPIC.fullmatch(self.topic) or self.topic in (".", ".."):
            raise TopologyError(
                f"Source {self.topic!r} is not a topic that Kafka can have: letters, digits, '.', '_' and '-', at most "
                "249. Write it like topic='orders'."
            )
        if self.format not in FORMATS:
            raise TopologyError(f"Source {self.topic!r}: format {self.format!r} is not one of {', '.join(FORMATS)}.")
        if self.of is not None and not (isinstance(self.of, str) and MEMBER_NAME.fullmatch(self.of)):
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
        object.__setattr__(self, "record", column_names(f"Source {self.topic!r}", "record", self.record, "OrderPlaced"))
        if self.envelope != "none" and self.key_schema and self.key_format == "text":
            object.__setattr__(self, "key_format", self.format)
        _check_envelope(self)
        _check_record(self)
        _check_key(self)
        _check_event_time(self)
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


def _check_envelope(source: Source) -> None:
    """Check that the envelope and its options fit the source.

    Raises:
        TopologyError: they do not.
    """
    what = f"Source {source.topic!r}"
    if source.envelope not in ENVELOPES:
        raise TopologyError(f"{what}: envelope {source.envelope!r} is not one of {', '.join(ENVELOPES)}.")
    if source.decimals not in DECIMALS:
        raise TopologyError(f"{what}: decimals {source.decimals!r} is not one of {', '.join(DECIMALS)}.")
    if source.envelope == "none":
        if source.decimals != "precise":
            raise TopologyError(
                f"{what} has decimals={source.decimals!r} but no envelope. Only change records have decimals in "
                "several forms: add envelope='debezium', or omit decimals."
            )
        return
    if source.format not in OF_COLUMNS:
        raise TopologyError(
            f"{what}: envelope={source.envelope!r} needs JSON or Avro, but format is {source.format!r}. Use "
            f"format={' or format='.join(map(repr, OF_COLUMNS))}."
        )
    if source.tombstones:
        raise TopologyError(
            f"{what} has envelope={source.envelope!r} and tombstones=True. A null value follows the record of a "
            "deletion and adds nothing: omit tombstones."
        )
    if source.key_schema and source.key_format not in OF_COLUMNS:
        raise TopologyError(
            f"{what}: keys of envelope={source.envelope!r} are objects, but key_format is {source.key_format!r}. Use "
            f"key_format={' or key_format='.join(map(repr, OF_COLUMNS))}."
        )
    if source.defaults or source.record:
        raise TopologyError(
            f"{what} has envelope={source.envelope!r} and record or defaults, which concern the value and not the row "
            "within it. Omit them."
        )


def _check_record(source: Source) -> None:
    """Check that record types and defaults are only used with Avro, and that defaults are for columns.

    Raises:
        TopologyError: they are not.
    """
    what = f"Source {source.topic!r}"
    options = [name for name, value in (("record", source.record), ("defaults", source.defaults)) if value]
    if options and source.format != "avro":
        raise TopologyError(
            f"{what} has {' and '.join(options)}, but format={source.format!r} has neither record types nor writer "
            "schemas. Omit them, or declare format='avro'."
        )
    odd = [name for name in source.record if not _RECORD_TYPE.fullmatch(name)]
    if odd:
        raise TopologyError(
            f"{what}: record {odd} is not a name of an Avro record, like OrderPlaced or shop.OrderPlaced."
        )
    if not isinstance(source.defaults, Mapping):
        raise TopologyError(
            f"{what} has defaults={source.defaults!r}, which is not a dict from columns to values. Write "
            "defaults={'currency': 'EUR'}."
        )
    columns = [column.name for column in source.value_columns]
    unknown = sorted(set(source.defaults) - set(columns))
    if unknown:
        raise TopologyError(
            f"{what}: defaults are given for {unknown}, which are not in its schema: {columns}. Name its columns."
        )
    has_numeric_times = source.timestamps != "text"
    values = default_values(what, source.value_columns, source.defaults, has_numeric_times=has_numeric_times)
    object.__setattr__(source, "defaults", values)


def _check_key(source: Source) -> None:
    """Check that the key's format supports its columns, and that null values have the key that they delete.

    Raises:
        TopologyError: it does not, or they do not.
    """
    what = f"Source {source.topic!r}"
    if source.key_format not in KEY_FORMATS:
        raise TopologyError(f"{what}: key_format {source.key_format!r} is not one of {', '.join(KEY_FORMATS)}.")
    if source.timestamps not in TIMESTAMPS:
        raise TopologyError(f"{what}: timestamps {source.timestamps!r} is not one of {', '.join(TIMESTAMPS)}.")
    if not source.key_schema:
        if source.tombstones or source.key_format != "text":
            cause = "tombstones=True" if source.tombstones else f"key_format={source.key_format!r}"
            raise TopologyError(
                f"{what} has {cause} and no key_schema. Name the columns of the record's key: key_schema='id BIGINT'."
            )
        return
    columns = source.key_columns
    if source.key_format in _SINGLE:
        types = _SINGLE[source.key_format]
        is_fit = isinstance(columns[0].delta, str) if types is None else columns[0].type in types
        if len(columns) != 1 or not is_fit:
            needed = f"one column of type {' or '.join(types)}" if types else "one column of a plain type"
            raise TopologyError(
                f"{what}: key_schema {source.key_schema!r} does not fit key_format={source.key_format!r}, which has "
                f"{needed}. Use another key_format, or change key_schema."
            )
    values = {column.name: column for column in source.value_columns}
    for column in columns:
        other = values.get(column.name)
        if other is not None and other.type != column.type:
            raise TopologyError(
                f"{what}: column {column.name!r} is {other.type} in schema and {column.type} in key_schema. Give both "
                "the same type."
            )


def _check_event_time(source: Source) -> None:
    """Check that the column of a source's event time exists and has a time.

    Raises:
        TopologyError: it does not.
    """
    if source.idle_after is not None and (source.grace is None or source.of is not None or source.is_wall_clock):
        what = "no grace" if source.grace is None else "the wall clock" if source.is_wall_clock else f"of={source.of!r}"
        raise TopologyError(
            f"Source {source.topic!r} has idle_after={source.idle_after!r} and {what}. Only a topic with event time "
            "that every epoch reads has idle partitions: omit idle_after."
        )
    if source.follows_upstream and source.tombstones:
        raise TopologyError(
            f"Source {source.topic!r} has tombstones=True and follows {source.of!r}, which sends no null value to a "
            "topic that can be followed. Omit tombstones, or declare how late a record may be: grace='10 seconds'."
        )
    if not source.has_event_time:
        if source.time is not None:
            raise TopologyError(
                f"Source {source.topic!r} has time={source.time!r} and no grace. Declare how late a record may be: "
                "grace='10 seconds'."
            )
        return
    _ = source.grace_ms, source.ahead_ms, source.idle_after_ms  # lengths of time, or they raise
    if source.time is None or source.is_wall_clock:
        return
    types = {column.name: column.type for column in source.columns}
    if source.envelope != "none":
        types[SOURCE_TIME] = CHANGE_COLUMNS[SOURCE_TIME]
    if types.get(source.time) not in ("TIMESTAMP", "BIGINT"):
        problem = (
            f"is {types[source.time]}" if source.time in types else f"is not in its schema, which has {sorted(types)}"
        )
        raise TopologyError(
            f"Source {source.topic!r}: time column {source.time!r} {problem}. Name a column of type TIMESTAMP, or "
            "BIGINT in epoch milliseconds."
        )
