"""The shape of tables and append outputs: keys and columns, as stored in ledgers and markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kappa.topology import Append, Source, Table, Topology

#: Parts of a type, also within another one: names in backticks, comments on fields, and names of types. A DECIMAL has
#: ten digits, and none after the point, where its declaration does not say.
_PARTS = re.compile(
    r"`(?:[^`]|``)*`|(?P<comment> COMMENT '(?:[^'\\]|\\.|'')*')|(?P<time>\bTIMESTAMP_LTZ\b(?!:))|"
    r"(?P<decimal>\b(?:DECIMAL|NUMERIC|DEC)\b(?!:)(?:\((\d+)(?:, ?(\d+))?\))?)"
)
#: Types of numbers whose digits a record has in full, whatever the type.
_EXACT = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL")


def plain_kind(kind: str) -> str:
    """A type under one name: declarations and what earlier code recorded have several.

    Examples:
        >>> from kappa.topology.shapes import plain_kind
        >>> plain_kind("NUMERIC(12)"), plain_kind("TIMESTAMP_LTZ"), plain_kind("STRING")
        ('DECIMAL(12, 0)', 'TIMESTAMP', 'STRING')
        >>> plain_kind("STRUCT<price: DECIMAL(12) NOT NULL COMMENT 'in cents', at: ARRAY<TIMESTAMP_LTZ>>")
        'STRUCT<price: DECIMAL(12, 0) NOT NULL, at: ARRAY<TIMESTAMP>>'
    """
    return _PARTS.sub(_plain_part, kind)


def _plain_part(part: re.Match[str]) -> str:
    if part["decimal"]:
        *_, digits, scale = part.groups()
        return f"DECIMAL({digits or 10}, {scale or 0})"
    return "TIMESTAMP" if part["time"] else "" if part["comment"] else part[0]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What decides whether records of a source are late.

    Attributes:
        time: as :attr:`kappa.topology.Source.time`.
        grace_ms: how late a record may be, milliseconds.
        follows: the topology that determines final rows; empty if the records do.
    """

    time: str | None
    grace_ms: int
    follows: str = ""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Key and columns of a table, or columns of an append output.

    Attributes:
        columns: column -> its type as Spark DDL, under one name, see :func:`plain_kind`.
        required: columns that may not be null.
        key: key columns; none for an append output.
        made_by: the operator whose state it is, with its parameters; empty for a table of the author's own.
        times: topic -> :class:`Timing` of the sources with event time, by which its rows come and go; empty if they do
            not, None in a ledger or marker of earlier code, which did not keep it.
        hidden: internal columns of an operator, which no reader gets; None in a ledger or marker of earlier code, whose
            readers get all columns.
    """

    columns: Mapping[str, str]
    required: tuple[str, ...]
    key: tuple[str, ...] = ()
    made_by: str = ""
    times: Mapping[str, Timing] | None = field(default_factory=dict)
    hidden: tuple[str, ...] | None = ()

    @property
    def typed_key(self) -> str:
        """The key with its types as Spark DDL: rows of two tables stand for the same things where this is the same."""
        return ", ".join(f"{name} {self.columns[name]}" for name in self.key)

    @property
    def results(self) -> dict[str, str]:
        """Column -> its type, for columns that readers get."""
        return {name: kind for name, kind in self.columns.items() if name not in (self.hidden or ())}

    @classmethod
    def of(cls, item: Table | Append, sources: Iterable[Source] = ()) -> Shape:
        """The shape that a topology declares.

        Args:
            item: the table or output.
            sources: the sources of the topology.
        """
        return cls(
            columns={column.name: plain_kind(column.type) for column in item.columns},
            required=tuple(column.name for column in item.columns if not column.nullable),
            key=tuple(item.key) if isinstance(item, Table) else (),
            made_by=item.made_by if isinstance(item, Table) else "",
            times=timings_of(sources) if isinstance(item, Table) and item.is_timed else {},
            hidden=item.hidden if isinstance(item, Table) else (),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Shape:
        """Read what :func:`shapes_as_dict` gave."""
        return cls(
            columns={name: plain_kind(kind) for name, kind in values["columns"].items()},
            required=tuple(values["required"]),
            key=tuple(values["key"]),
            made_by=values.get("made_by", ""),
            times=timings_from_dict(values["times"]) if values.get("times") is not None else None,
            hidden=tuple(values["hidden"]) if values.get("hidden") is not None else None,
        )


@dataclass(frozen=True, kw_only=True)
class SentForm:
    """The form of a topic's values.

    Attributes:
        format: as :attr:`kappa.topology.Topic.format`.
        columns: names of the columns of a value.
    """

    format: str
    columns: tuple[str, ...]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SentForm:
        """Read what ``asdict`` gave."""
        return cls(format=values["format"], columns=tuple(values["columns"]))

    def difference(self, later: SentForm, common: Iterable[str]) -> str:
        """How equal rows were sent otherwise than in a later form; empty if they were not.

        Args:
            later: the form that the topic gets.
            common: columns that the rows have before and after. What only one side has differs in the rows themselves.
        """
        if self.format != later.format:
            return f"sends it as {self.format}"
        both = set(common)
        is_alike = both.intersection(self.columns) == both.intersection(later.columns)
        return "" if is_alike else f"sends columns {list(self.columns)} of it"


def is_written_alike(one: str, other: str) -> bool:
    """Whether equal values of two types, as Spark DDL, are equal in records too: of one type, or exact numbers."""
    return one == other or all(kind.partition("(")[0] in _EXACT for kind in (one, other))


def sent_forms(topology: Topology) -> dict[str, SentForm]:
    """Topic -> the form of its values, for the topics that reconcile."""
    return {
        topic.name: SentForm(format=topic.format, columns=tuple(c.name for c in topology.sent_columns(topic)))
        for topic in topology.reconciled_topics
    }


def timings_of(sources: Iterable[Source]) -> dict[str, Timing]:
    """Time and grace of the sources that have event time, by topic."""
    return {
        source.topic: Timing(
            time=source.time, grace_ms=source.grace_ms, follows=(source.of or "") if source.follows_upstream else ""
        )
        for source in sources
        if source.grace_ms is not None
    }


def changed_times(before: Mapping[str, Timing], after: Mapping[str, Timing]) -> list[str]:
    """Sources that take event time from elsewhere, have it now, or no longer have it, in words."""
    changes = []
    for topic in sorted(before.keys() | after.keys()):
        was, now = before.get(topic), after.get(topic)
        if was is None or now is None:
            changes.append(f"source {topic!r} {'has event time now' if was is None else 'no longer has event time'}")
        elif was.follows != now.follows:
            changes.append(f"source {topic!r} {_follows(now)} now, and {_follows(was)} before")
        elif was.time != now.time:
            changes.append(f"source {topic!r} takes its time from {_clock(now)}, not from {_clock(was)}")
    return changes


def changed_graces(before: Mapping[str, Timing], after: Mapping[str, Timing]) -> list[tuple[str, int, int]]:
    """Topic, old and new grace in milliseconds, for each source whose grace differs."""
    both = [topic for topic in sorted(before.keys() & after.keys()) if before[topic].follows == after[topic].follows]
    pairs = [(topic, before[topic].grace_ms, after[topic].grace_ms) for topic in both]
    return [(topic, was, now) for topic, was, now in pairs if was != now]


def _clock(timing: Timing) -> str:
    return "Kafka's timestamp" if timing.time is None else repr(timing.time)


def _follows(timing: Timing) -> str:
    return f"follows {timing.follows}" if timing.follows else "has a grace"


def timings_as_dict(timings: Mapping[str, Timing]) -> dict[str, Any]:
    """Timings as JSON values."""
    return {
        topic: {name: value for name, value in asdict(timing).items() if name != "follows" or value}
        for topic, timing in timings.items()
    }


def timings_from_dict(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Timing]:
    """Read what :func:`timings_as_dict` gave."""
    return {
        topic: Timing(time=timing["time"], grace_ms=timing["grace_ms"], follows=timing.get("follows") or "")
        for topic, timing in values.items()
    }


def graces_of(shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Topic -> its grace in milliseconds, for the sources by which rows of these come and go."""
    return {topic: timing.grace_ms for shape in shapes.values() for topic, timing in (shape.times or {}).items()}


def shapes_of(topology: Topology) -> dict[str, Shape]:
    """Shapes by place: ``tables/<name>`` and ``outputs/<name>``."""
    return {f"tables/{table.name}": Shape.of(table, topology.sources) for table in topology.tables} | {
        f"outputs/{append.name}": Shape.of(append) for append in topology.appends
    }


def shapes_as_dict(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Shapes as JSON values."""
    return {place: asdict(shape) for place, shape in shapes.items()}


def shapes_from_dict(values: Mapping[str, Any]) -> dict[str, Shape]:
    """Read what :func:`shapes_as_dict` gave."""
    return {place: Shape.from_dict(shape) for place, shape in values.items()}


def masked_of(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Columns whose values need a right of their own, by place; only for places with such columns."""
    columns_by_place = {f"tables/{table.name}": tuple(table.masked) for table in topology.tables}
    columns_by_place |= {f"outputs/{append.name}": tuple(append.masked) for append in topology.appends}
    return {place: columns for place, columns in columns_by_place.items() if columns}


def tables_only(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes of tables."""
    return {place: shape for place, shape in shapes.items() if place.startswith("tables/")}
