"""A topic output of a topology: what it is made of, and what is sent to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kappa.errors import TopologyError
from kappa.topology.ddl import Column, column_names
from kappa.topology.earlier_code import refuse
from kappa.topology.members.delta_tables import Append, Table
from kappa.topology.revisions import operator_of
from kappa.topology.schemas.value_schemas import value_schema
from kappa.topology.schemas.wire_schemas import BY_SCHEMA_ID, TOPIC_FORMATS, TopicFormat

#: Characters that Kafka allows in the name of a topic.
MOST_OF_TOPIC = 249
#: An epoch's number with ``.e`` takes six, and may later take more.
_LONGEST_VERSIONED = 240
#: The platform's own topics: markers and changelogs of an epoch.
_OF_EPOCHS = re.compile(r"kappa\..+\.e\d{4,}\.(markers|.+\.changelog)")
#: The effect of a replay on readers of a topic output.
OnReplay = Literal["hold", "versioned", "reconcile"]


@dataclass(frozen=True, kw_only=True)
class Topic:
    """Records sent to a Kafka topic, derived from the written rows of an :class:`Append` or the changes of a
    :class:`Table`.

    Attributes:
        name: the topic's name.
        of: name of the append output or table whose rows are sent; a deleted key sends a null value, or nothing if the
            topic has another key, which the deleted row lacks.
        columns: columns of the value. Empty for all; for an operator's table all except internal ones.
        key: column whose value, as text, is the record's key; several are joined as a JSON array.
        on_replay: the effect of a replay on readers. ``hold``: nothing is sent for history. ``versioned``: each epoch
            sends everything that it computes, including history, to a topic of its own, ``<name>.e0007``, which readers
            follow by pointer. ``reconcile``: at a cutover the keys whose rows differ are sent, with a null value for
            removed keys; only for a table, by its key.
        time: column that becomes the record's timestamp, TIMESTAMP or BIGINT in epoch milliseconds: readers of the
            topic then have the row's event time. None, a null, and a time up to 1970-01-01T00:00Z, which Kafka's client
            does not send, give the time of sending.
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
        _check_name(self.name)
        what = f"Topic {self.name!r}"
        if not isinstance(self.of, str):
            raise TopologyError(
                f"{what} is of {type(self.of).__name__}. Write the name of a table or append output: of='rows'."
            )
        object.__setattr__(self, "key", column_names(what, "key", self.key))
        object.__setattr__(self, "columns", column_names(what, "columns", self.columns))
        if not self.key:
            refuse(f"{what} has key=[], and a record needs a key. Name at least one column: key='id'.")
        for argument, names in (("key", self.key), ("columns", self.columns)):
            if len(set(names)) < len(names):
                refuse(f"{what} has {argument}={list(names)}, which names a column twice. Name each once.")
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


def sent_columns(topic: Topic, rows: Append | Table) -> tuple[Column, ...]:
    """Columns of the values of a topic that is made of these rows."""
    if not topic.columns:
        return rows.results if isinstance(rows, Table) else rows.columns
    by_name = {column.name: column for column in rows.columns}
    return tuple(by_name[name] for name in topic.columns)


def check_topics(
    topology: str, topics: Iterable[Topic], members: Sequence[Append | Table], sources: Collection[str]
) -> None:
    """Each topic is of rows of the topology, with columns that they have.

    Args:
        topology: name of the topology.
        topics: its topic outputs.
        members: its tables and append outputs.
        sources: names of the topics that it reads.

    Raises:
        TopologyError: one is not.
    """
    rows = {member.name: member for member in members}
    for topic in topics:
        if topic.of not in rows:
            raise TopologyError(
                f"Topology {topology!r}: topic {topic.name!r} is of {topic.of!r}, which is not one of {sorted(rows)}."
            )
        names = [column.name for column in rows[topic.of].columns]
        missing = sorted(set(topic.key) - set(names))
        if missing:
            raise TopologyError(
                f"Topology {topology!r}: topic {topic.name!r} is keyed by {missing}, not columns of {topic.of!r}: "
                f"{names}."
            )
        types = {column.name: column.type for column in rows[topic.of].columns}
        if topic.time is not None and types.get(topic.time) not in ("TIMESTAMP", "BIGINT"):
            raise TopologyError(
                f"Topology {topology!r}: topic {topic.name!r} takes its time from {topic.time!r}, which is no "
                "TIMESTAMP "
                f"or BIGINT of {topic.of!r}: {types}."
            )
        unsent = sorted(set(topic.columns) - set(names))
        if unsent:
            raise TopologyError(
                f"Topology {topology!r}: topic {topic.name!r} sends {unsent}, which are not columns of "
                f"{topic.of!r}: {names}."
            )
        if topic.format in BY_SCHEMA_ID:  # every column has a type and a name there, or it raises
            value_schema(topic.format, topic.name, sent_columns(topic, rows[topic.of]))
        _check_expiring(topology, topic, rows[topic.of])
        _check_reconciled(topology, topic, rows[topic.of])
        if topic.name in sources:
            raise TopologyError(f"Topology {topology!r} reads and writes topic {topic.name!r}: it would feed itself.")


def check_distinct_names(
    topology: str, topics: Iterable[Topic], sources: Collection[str], upstream: Collection[str]
) -> None:
    """Refuse names of which Kafka would have only one, or that could make an epoch's versioned topic collide with
    another one; Kafka treats '.' and '_' alike.

    Args:
        topology: name of the topology.
        topics: its topic outputs.
        sources: names of the topics that it reads.
        upstream: those of them that are versioned topics of another topology.

    Raises:
        TopologyError: two may collide.
    """
    declared_topics = list(topics)
    names: dict[str, str] = {_for_kafka(name): name for name in sources if name not in upstream}
    for topic in declared_topics:
        other = topic.name if topic.is_versioned else names.setdefault(_for_kafka(topic.name), topic.name)
        if other != topic.name:
            refuse(
                f"Topology {topology!r}: topics {other!r} and {topic.name!r} would collide in Kafka, where '.' and "
                "'_' count as one character. Rename one of them."
            )
    versioned = [topic.name for topic in declared_topics if topic.is_versioned]
    others = [*(topic.name for topic in declared_topics if not topic.is_versioned), *sources]
    for name in versioned:
        own = re.compile(re.escape(_for_kafka(name)) + r"[_]e\d{4,}")
        for other in others:
            if own.fullmatch(_for_kafka(other)):
                raise TopologyError(
                    f"Topology {topology!r}: topic {name!r} is versioned, so that {other!r} could be the topic of one "
                    "of its epochs. Rename one of them."
                )
        for other in versioned:
            if other != name and _for_kafka(other) == _for_kafka(name):
                raise TopologyError(
                    f"Topology {topology!r}: versioned topics {name!r} and {other!r} would collide in Kafka. Rename "
                    "one of them."
                )


def _check_expiring(topology: str, topic: Topic, of: Append | Table) -> None:
    """Refuse a topic of state that expires, because a reader of the topic would take that for a deletion."""
    if isinstance(of, Table) and of.expires:
        raise TopologyError(
            f"Topology {topology!r}: topic {topic.name!r} is of {of.name!r}, the state of "
            f"{operator_of(of.made_by)}, whose rows are removed when their time is over. Make the topic of an "
            "append output of the operator's rows."
        )


def _check_reconciled(topology: str, topic: Topic, of: Append | Table) -> None:
    """Refuse a reconciled topic that is not of keyed state, or whose key is not that of the rows."""
    if topic.on_replay != "reconcile":
        return
    if not isinstance(of, Table):
        raise TopologyError(
            f"Topology {topology!r}: topic {topic.name!r} reconciles and is of append output {of.name!r}, which has no "
            "newest row per key to compare. Make it of a table, or on_replay='versioned'."
        )
    if topic.key != of.key:
        raise TopologyError(
            f"Topology {topology!r}: topic {topic.name!r} reconciles and is keyed by {list(topic.key)}; table "
            f"{of.name!r} is keyed by {list(of.key)}. Use key={list(of.key)}, so that each record stands for one row."
        )


def _check_name(name: str) -> None:
    """Refuse names that Kafka does not allow, or that belong to Kafka or the platform."""
    if (
        not isinstance(name, str)
        or not re.fullmatch(rf"[A-Za-z0-9._-]{{1,{MOST_OF_TOPIC}}}", name)
        or name in (".", "..")
    ):
        raise TopologyError(
            f"Topic {name!r} is not a name that Kafka allows: letters, digits, '.', '_' and '-', and not only '.' or "
            "'..'. Write it like name='spending'."
        )
    if name.startswith("__"):
        refuse(f"Topic {name!r} has a name like Kafka's own topics, which begin with '__'. Give it another name.")
    if _OF_EPOCHS.fullmatch(name):
        refuse(
            f"Topic {name!r} has the name of a topic in which Kappa keeps markers or changes of an epoch. Give it "
            "another name."
        )


def _for_kafka(name: str) -> str:
    return name.replace(".", "_")
