"""The parts of a topology and the paths of its rows, as values for drawings."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kappa.topology import Append, Source, Table, Topic, Topology
from kappa.topology.times.event_time import LATE_RECORDS


class Kind(StrEnum):
    """The kind of a box."""

    SOURCE = "source"
    STEP = "step"
    TABLE = "table"
    OUTPUT = "output"
    TOPIC = "topic"


@dataclass(frozen=True, kw_only=True)
class Box:
    """One part of a topology.

    Attributes:
        kind: its kind.
        name: its name.
        details: further facts, a phrase each.
        leads_to: the boxes to which its rows go. Rows of a table also go back to the step in the next slice.
    """

    kind: Kind
    name: str
    details: tuple[str, ...] = ()
    leads_to: tuple[Box, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A topology as boxes.

    Attributes:
        name: the topology's name.
        version: its version.
        sources: the input of the step.
        center: the step; it leads to tables and append outputs, and those to their topics.
    """

    name: str
    version: str
    sources: tuple[Box, ...]
    center: Box

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} version {self.version}"


def graph_of(topology: Topology) -> Graph:
    """A topology's sources, step, tables and outputs, in the order in which it declares them."""
    members = (*topology.tables, *topology.appends)
    step = Box(
        kind=Kind.STEP,
        name=getattr(topology.step, "__name__", type(topology.step).__name__),
        details=_summary(topology.step),
        leads_to=tuple(_member(topology, member) for member in members),
    )
    return Graph(
        name=topology.name, version=topology.version, sources=tuple(map(_source, topology.sources)), center=step
    )


def _source(source: Source) -> Box:
    form = {"json": "JSON", "avro": "Avro", "json_schema": "JSON of a schema registry"}.get(source.format)
    details = [f"{form} with {_columns(source.columns)}" if form else f"format {source.format}"]
    if source.of is not None:
        details.append(f"the versioned topic of {source.of}")
    if source.grace is not None:
        details.append(f"event time {source.time or 'of Kafka'}, grace {source.grace}, ahead {source.ahead}")
    if source.follows_upstream:
        details.append(f"event time {source.time}, made final by {source.of}")
    if source.headers:
        details.append("with headers")
    if not source.keyed:
        details.append("records of a key in any partition")
    if source.sensitive:
        details.append("sensitive")
    return Box(kind=Kind.SOURCE, name=source.topic, details=tuple(details))


def _member(topology: Topology, member: Table | Append) -> Box:
    details = []
    if isinstance(member, Table):
        details.append(f"key {', '.join(member.key)}")
    details.append(_columns(member.results if isinstance(member, Table) else member.columns))
    if member.masked:
        details.append(f"masked {', '.join(member.masked)}")
    if isinstance(member, Append) and member.partition_by:
        details.append(f"partitioned by {', '.join(member.partition_by)}")
    if isinstance(member, Table) and member.expires:
        details.append("rows expire")
    if isinstance(member, Table) and member.made_by:
        details.append(f"state of {member.made_by}")
    if topology.has_event_time and member.name == LATE_RECORDS:
        graced = [source.topic for source in topology.sources if source.grace is not None]
        details.append(f"records of {', '.join(graced)} that an operator refused as late")
    return Box(
        kind=Kind.TABLE if isinstance(member, Table) else Kind.OUTPUT,
        name=member.name,
        details=tuple(details),
        leads_to=tuple(_topic(topic) for topic in topology.topics if topic.of == member.name),
    )


def _topic(topic: Topic) -> Box:
    details = [f"key {', '.join(topic.key)}", f"on_replay {topic.on_replay}"]
    if topic.format != "json":
        details.append("Avro")
    if topic.time is not None:
        details.append(f"time {topic.time}")
    return Box(kind=Kind.TOPIC, name=topic.name, details=tuple(details))


def _columns(columns: Sequence[object]) -> str:
    return f"{len(columns)} column{'' if len(columns) == 1 else 's'}"


def _summary(step: object) -> tuple[str, ...]:
    """The first sentence of a step's docstring."""
    doc = (inspect.getdoc(step) or "") if hasattr(step, "__name__") else ""
    first = " ".join(doc.partition("\n\n")[0].split())
    return (first,) if first else ()
