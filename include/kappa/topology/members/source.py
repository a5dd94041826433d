"""A source of a topology: a Kafka topic, its records and their columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kappa.errors import TopologyError
from kappa.topology import reserved
from kappa.topology.ddl import Column, columns_of, keyed_otherwise, names_of
from kappa.topology.schemas.envelopes import CHANGE_COLUMNS, Decimals, Envelope, check_envelope
from kappa.topology.schemas.record_keys import check_key
from kappa.topology.schemas.record_types import check_record
from kappa.topology.schemas.wire_schemas import BY_SCHEMA_ID, FORMATS, OF_COLUMNS, Format, KeyFormat, Timestamps
from kappa.topology.times.durations import milliseconds
from kappa.topology.times.event_time import WALL_CLOCK, check_source

MEMBER_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
#: Columns that every record of a source has, whatever its schema, with their types; only where the source asks for them
#: ``_headers`` and ``_tombstone``, whether the record has no value, and where it has an envelope those of changes.
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


@dataclass(frozen=True, kw_only=True)
class Source:
    """A Kafka topic, read under ``read_committed``.

    Attributes:
        topic: the topic's name.
        schema: Spark DDL of the value. A column declared ``NOT NULL`` that is absent from a record makes it a dead
            letter. Ignored where ``format`` is ``string`` or ``bytes``.
        format: ``json``, ``avro`` and ``json_schema`` give the schema's columns, the last two of values in a schema
            registry's wire format; ``string`` and ``bytes`` give one column ``value``.
        record: names of the record types of ``avro`` values that it takes, with or without their namespace; others are
            dead letters. Empty: any.
        defaults: of ``avro``, column -> what it is where the schema that wrote a value lacks the field, as JSON has it:
            ``{"currency": "EUR"}``. Without one it is null.
        keyed: whether records of one key must stay in one partition; a changed partition count then refuses a replay.
        key_schema: Spark DDL of what the record's key holds, for example ``id BIGINT``. A column that the value's
            schema has too is taken from the key where the value lacks it; another one is added to the row. A record
            without one of these columns, in its value and in its key, is a dead letter. Empty: the step has ``_key``.
        key_format: how the key is encoded: ``text`` (one column), ``json``, ``avro`` and ``json_schema`` (in a schema
            registry's wire format), or ``int`` and ``long``, the four and eight bytes of Kafka's own serializers.
        tombstones: whether a null value is a row, which deletes its key: with the columns of ``key_schema``, all others
            null, and ``_tombstone`` true. Otherwise a null value is a dead letter.
        envelope: ``debezium``: values are records of changes of a database, and a row is what the change left, for a
            deletion the columns of the key. The records have the columns of
            :data:`kappa.topology.schemas.envelopes.CHANGE_COLUMNS` beside; :func:`kappa.operators.cdc_table` makes a
            table of them. Keys are then in the format of the values, where ``key_format`` does not say otherwise.
        decimals: of an envelope, what text is in a DECIMAL column where no schema beside it says so: ``precise``
            (base64 of the digits; the column has the source's scale), ``string`` or ``double``, as
            ``decimal.handling.mode``.
        timestamps: what a number is in a TIMESTAMP column: ``epoch_seconds``, ``epoch_ms`` or ``epoch_us``. ``text``:
            times are text with a date, and a number makes a dead letter.
        headers: whether the step gets the column ``_headers``. They are carried at a price: reading takes several times
            as long.
        of: the topology whose versioned topic output it is. Each epoch then reads the versioned topic of one epoch of
            that topology; the step knows it by the name of the output.
        time: column that holds the event time, TIMESTAMP or BIGINT in epoch milliseconds; None for Kafka's timestamp. A
            record without it is a dead letter. ``wall clock`` is when its slice was planned; a replay is then refused.
        grace: how late a record may be, for example ``10 seconds``. With it the step gets ``_event_time`` and
            ``_frontier``, and the topology an output ``late_records``. None for a source without event time, and for
            one that is ``of`` a topology and has a ``time``: its frontier is then what that topology's operator says of
            its rows, none is late, and ``_frontier`` is null.
        ahead: how far past Kafka's timestamp the event time may lie. A record beyond it is a dead letter: one record of
            a distant year would make all that follow it late.
        idle_after: by how much the event time of a partition without new records may be behind the greatest of the
            topology, for example ``10 minutes``. Beyond it a live stream no longer waits for the partition. None: its
            windows wait for every partition.
        sensitive: whether values and keys may hold what no table may: of a dead or late record the lake then keeps the
            length and a keyed hash instead.

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
                f"Source {self.topic!r}: of={self.of!r} is not a name of a topology; name the one whose versioned "
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
                f"Source {self.topic!r}: columns {odd} hold a MAP whose keys are not STRING, and "
                f"{'Avro' if self.format == 'avro' else 'JSON'} has no others. Use STRING, or "
                "ARRAY<STRUCT<key: ..., value: ...>>, which is how Kappa writes such a MAP."
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
                f"Source {self.topic!r}: columns of schema and key_schema, {names}, differ by case only, which "
                "does not count. Write a column that both have the same way."
            )
        reserved.check_names(
            f"Source {self.topic!r}",
            names,
            "Leave them out of the schema; where you need one, read the value with format='string' and take it from "
            "there: get_json_object(value, '$._key') AS doc_key.",
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
        """Columns of value and key: those of the value, then what only the key has."""
        values = self.value_columns
        return (*values, *(column for column in self.key_columns if column.name not in {c.name for c in values}))

    @property
    def grace_ms(self) -> int | None:
        """How late a record may be, in milliseconds; None where the source has no event time."""
        if self.follows_upstream:
            return 0
        return None if self.grace is None else milliseconds(self.grace, f"Source {self.topic!r}: grace")

    @property
    def follows_upstream(self) -> bool:
        """Whether the topology that it is of says what is final in it."""
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
        """Whether a record's event time is when its slice was planned."""
        return self.time == WALL_CLOCK

    @property
    def has_schema_ids(self) -> bool:
        """Whether its keys or values begin with the id of a schema."""
        return not {self.format, self.key_format}.isdisjoint(BY_SCHEMA_ID)

    @property
    def ahead_ms(self) -> int:
        """How far past Kafka's timestamp the event time may lie, in milliseconds."""
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
