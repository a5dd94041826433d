"""The declarations of a user: a topology, its sources, tables, outputs, checks and step.

Importing this module, and any topology, needs neither Spark nor a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kappa.errors import TopologyError
from kappa.names import EpochPaths
from kappa.topology.ddl import Column
from kappa.topology.earlier_code import refuse
from kappa.topology.emission import Cuts, Emission, strictest
from kappa.topology.entries import LISTS, entries
from kappa.topology.members import Append, Check, Source, Table, Topic
from kappa.topology.members.topic import MOST_OF_TOPIC, check_distinct_names, check_topics, sent_columns
from kappa.topology.objections import EPOCH, MOST, approvals_objection, is_owner, name_objection
from kappa.topology.operator import Operator, VersionsInput
from kappa.topology.operator_inputs import TableInput
from kappa.topology.readers import made_alone
from kappa.topology.slice import Slice
from kappa.topology.thresholds import Threshold, limits_of, unknown
from kappa.topology.times.event_time import LATE_RECORDS, LATE_SCHEMA
from kappa.topology.times.schedule import Schedule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Append",
    "Check",
    "Effects",
    "Schedule",
    "Slice",
    "Source",
    "Step",
    "Table",
    "Threshold",
    "Topic",
    "Topology",
]

Effects = Mapping[str, "DataFrame"]
#: None if operators have all the effects.
Step = Callable[["Slice"], Effects | None]
_OUTPUT = "Declare what it keeps: outputs=[Append(name='rows', schema='id STRING NOT NULL')]."


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A named, versioned, pure function of a slice and the state before it.

    Attributes:
        name: dotted lower-case name, for example ``retail.loyalty``, of at most 100 characters. Write it as a literal:
            schedulers find it by reading the file.
        version: the author's name for this code; the platform relies on the content hash, not on this.
        sources: topics that are read.
        operators: operators with their tables, see :mod:`kappa.operators`. Their tables are tables of the topology, and
            their changes and late records are effects of each slice.
        step: pure function from a :class:`Slice` to its effects: a DataFrame for each table and append output that is
            not an operator's, or nothing. None if there are only operators: each is then called, in order.
        tables: keyed state besides that of operators. List a table of an operator only to mask columns, or to declare
            on which cuts it depends: ``replace(visits.tables[0], masked="visitor")``.
        outputs: what is emitted.
        checks: statements about the finished state.
        thresholds: how much a candidate may differ from the live epoch.
        reprocess: when its history is recomputed automatically and compared with the live epoch; None for never.
        approvals: how many people must approve an epoch before readers are moved to it. Write it as a literal.
        owner: the team or person whom alerts, notices, pages and DAGs name; empty for none. Write it as a literal.

    Examples:
        >>> from kappa import Append, Source, Topology
        >>> large = Topology(
        ...     name="shop.large",
        ...     version="1",
        ...     sources=[Source(topic="orders", schema="id STRING NOT NULL, amount BIGINT")],
        ...     outputs=[Append(name="large", schema="id STRING NOT NULL")],
        ...     step=lambda slice: {"large": slice["orders"].where("amount > 99")},
        ... )
        >>> large.source_topics
        ('orders',)
    """

    name: str
    version: str
    sources: tuple[Source, ...] | list[Source]
    step: Step | None = None
    operators: tuple[Operator[Any], ...] | list[Operator[Any]] = ()
    tables: tuple[Table, ...] | list[Table] = ()
    outputs: tuple[Append | Topic, ...] | list[Append | Topic] = ()
    checks: tuple[Check, ...] | list[Check] = ()
    thresholds: tuple[Threshold, ...] | list[Threshold] = ()
    reprocess: Schedule | None = None
    approvals: int = 0
    owner: str = ""

    def __post_init__(self) -> None:
        _check_own(self)
        for name in LISTS:
            object.__setattr__(self, name, entries(self.name, name, getattr(self, name)))
        object.__setattr__(self, "tables", _all_tables(self))
        _check_operators(self)
        # A copy of a topology (dataclasses.replace) already has the output.
        late = Append(name=LATE_RECORDS, schema=LATE_SCHEMA, cuts=_cuts_of_late_rows(self.operators))
        object.__setattr__(self, "outputs", tuple(one for one in self.outputs if not _is_declared_again(one, late)))
        if LATE_RECORDS in {member.name for member in (*self.tables, *self.appends)}:
            raise TopologyError(
                f"Topology {self.name!r} declares {LATE_RECORDS!r}, the output that a source with grace adds "
                "automatically. Give it another name.",
                name=self.name,
            )
        if not self.tables and not self.appends:
            refuse(f"Topology {self.name!r} has neither a table nor an append output: it would do nothing. {_OUTPUT}")
        object.__setattr__(self, "step", self.step or step_of(self.operators))
        if self.has_event_time:
            object.__setattr__(self, "outputs", (*self.outputs, late))
        if not is_owner(self.owner):
            raise TopologyError(
                f"Topology {self.name!r} has the owner {self.owner!r}: an owner is a text of at most {MOST} letters, "
                "digits, single spaces and . _ - + @ # /. Name a team or an address, like 'team-payments'.",
                name=self.name,
            )
        if not self.sources:
            raise TopologyError(f"Topology {self.name!r} reads no source.")
        _check_unique(self.name, "source", [source.topic for source in self.sources])
        members = [member.name for member in (*self.tables, *self.appends)]
        _check_unique(self.name, "table or output", members)
        if epochs := [name for name in members if EPOCH.fullmatch(name)]:
            raise TopologyError(
                f"Topology {self.name!r} has a table or output {epochs[0]!r}, which reads as the number of an epoch: "
                "its folder would be that of the epoch. Give it another name.",
                name=epochs[0],
            )
        for table in self.tables:
            changelog = EpochPaths(lake="", topology=self.name, epoch=1).changelog(table.name)
            if len(changelog) > MOST_OF_TOPIC:
                raise TopologyError(
                    f"Topology {self.name!r} has the table {table.name!r}, whose changelog {changelog!r} has "
                    f"{len(changelog)} characters: Kafka allows {MOST_OF_TOPIC}. Give the table a shorter name.",
                    name=table.name,
                )
        _check_unique(self.name, "topic", [topic.name for topic in self.topics])
        for name, hint in unknown(limits_of(self.thresholds), self.measures).items():
            raise TopologyError(f"Topology {self.name!r} has nothing that threshold {name!r} could limit. {hint}")
        check_topics(self.name, self.topics, (*self.tables, *self.appends), self.source_topics)
        if self.name in {source.of for source in self.sources}:
            raise TopologyError(f"Topology {self.name!r} has a source of={self.name!r}: it would feed itself.")
        upstream = [source.topic for source in self.sources if source.of is not None]
        check_distinct_names(self.name, self.topics, self.source_topics, upstream)

    @property
    def has_event_time(self) -> bool:
        """Whether one of its sources has event time: records can then be late, and ``late_records`` keeps the late
        ones.
        """
        return any(source.has_event_time for source in self.sources)

    @property
    def idle_after(self) -> dict[str, int | None]:
        """Source with event time, in a topic that every epoch reads -> by how many milliseconds a partition without new
        records may be behind before it counts as idle; None for never.
        """
        timed = (s for s in self.sources if s.has_event_time and s.of is None and not s.is_wall_clock)
        return {source.topic: source.idle_after_ms for source in timed}

    @property
    def has_idle_partitions(self) -> bool:
        """Whether partitions of a source may count as idle."""
        return any(ms is not None for ms in self.idle_after.values())

    @property
    def is_sensitive(self) -> bool:
        """Whether a source may hold values that no table may."""
        return any(source.sensitive for source in self.sources)

    @property
    def is_confidential(self) -> bool:
        """Whether values of its records are not for everyone: a source is sensitive, or columns are masked."""
        return self.is_sensitive or any(member.masked for member in (*self.tables, *self.appends))

    @property
    def appends(self) -> tuple[Append, ...]:
        """Outputs that are Delta tables."""
        return tuple(output for output in self.outputs if isinstance(output, Append))

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Outputs that are Kafka topics."""
        return tuple(output for output in self.outputs if isinstance(output, Topic))

    @property
    def versioned_topics(self) -> tuple[Topic, ...]:
        """Topics of which each epoch has its own."""
        return tuple(topic for topic in self.topics if topic.is_versioned)

    @property
    def shared_topics(self) -> tuple[Topic, ...]:
        """Topics that all epochs share: readers know them by their names."""
        return tuple(topic for topic in self.topics if not topic.is_versioned)

    @property
    def reconciled_topics(self) -> tuple[Topic, ...]:
        """Topics that are reconciled with a table when its epoch goes live."""
        return tuple(topic for topic in self.topics if topic.on_replay == "reconcile")

    def rows_of(self, topic: Topic) -> Append | Table:
        """The output or table that a topic is made from."""
        members: dict[str, Append | Table] = {member.name: member for member in (*self.appends, *self.tables)}
        return members[topic.of]

    def sent_columns(self, topic: Topic) -> tuple[Column, ...]:
        """Columns of the values of a topic."""
        return sent_columns(topic, self.rows_of(topic))

    def followed(self, topic: Topic) -> Emission | None:
        """The emission in a topic whose time decides which rows are final; None if readers cannot follow it."""
        rows = self.rows_of(topic)
        emitted = rows.of if isinstance(rows, Append) else None
        if emitted is None or topic.time not in emitted.times:
            return None
        return emitted if topic.time in {column.name for column in self.sent_columns(topic)} else None

    def depending_on_cuts(self, *, by_arrival: bool) -> frozenset[str]:
        """Tables and append outputs whose rows may differ between two ways to cut the log: both by time, or one of them
        by arrival.
        """
        unequal = ("equal", "time") if by_arrival else ("equal",)
        return frozenset(member.name for member in (*self.tables, *self.appends) if member.cuts in unequal)

    @property
    def measures(self) -> tuple[str, ...]:
        """Full names of what a threshold may limit."""
        return tuple(measure for member in (*self.tables, *self.appends) for measure in member.measures)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Names of the topics that are read, sorted."""
        return tuple(sorted(source.topic for source in self.sources))

    def table(self, name: str) -> Table:
        """The table of that name.

        Raises:
            TopologyError: there is none.
        """
        for table in self.tables:
            if table.name == name:
                return table
        raise TopologyError(f"Topology {self.name!r} has no table {name!r}; it has {[t.name for t in self.tables]}.")


def step_of(operators: Sequence[Operator[Any]]) -> Step:
    """The step of a topology with operators alone."""

    def call_operators(slice: Slice) -> None:
        """Call each operator with the slice."""
        for operator in operators:
            operator(slice)

    return call_operators


def _check_own(topology: Topology) -> None:
    """Check name, version, approvals, step and schedule, which others are named by."""
    if wrong := name_objection(topology.name):
        raise TopologyError(wrong, name=topology.name)
    if wrong := approvals_objection(topology.name, topology.approvals):
        raise TopologyError(wrong, name=topology.name)
    what = f"Topology {topology.name!r}"
    if not topology.version:
        raise TopologyError(f"{what} has no version. Give it one: version='1'.")
    if not isinstance(topology.version, str):
        refuse(f"{what} has version={topology.version!r}, which is not a text. Write version='{topology.version}'.")
    if topology.step is not None and not callable(topology.step):
        raise TopologyError(
            f"{what} has step={topology.step!r}, which is not a function. Define one, def step(slice): ..., and write "
            "step=step."
        )
    if topology.reprocess is not None and not isinstance(topology.reprocess, Schedule):
        refuse(
            f"{what} has reprocess={topology.reprocess!r}, which is not a Schedule, so that nothing is recomputed. "
            "Write reprocess=Schedule(cron='0 3 * * 0')."
        )


def _cuts_of_late_rows(operators: Sequence[Operator[Any]]) -> Cuts:
    """Under which cuts of the log the late rows are the same: a refused row may have columns that depend on them."""
    timed = [operator for operator in operators if any(table.is_timed for table in operator.tables)]
    return strictest(stream.cuts for operator in timed for stream in operator.streams)


def _is_declared_again(output: Append | Topic, late: Append) -> bool:
    """Whether it is the output of late records, as this topology or the one that it was copied from has it."""
    return isinstance(output, Append) and replace(output, cuts=late.cuts) == late


def _all_tables(topology: Topology) -> tuple[Table, ...]:
    """Tables of the operators, then the others; a copy of a topology (dataclasses.replace) already has them."""
    own = [table for operator in topology.operators for table in operator.tables_beside(topology.operators)]
    operator_tables, others = [], list(topology.tables)
    for table in own:
        # Authors declare masked columns and the effect of cuts: such a table is listed again.
        again = next((other for other in others if _is_listed_again(table, other)), table)
        operator_tables.append(replace(table, masked=again.masked, cuts=again.cuts))
        others = [other for other in others if other != again]
    return (*operator_tables, *others)


def _is_listed_again(table: Table, other: Table) -> bool:
    """Whether it is an operator's table, as that operator alone or a topology declares it."""
    if made_alone(other.made_by) != made_alone(table.made_by):
        return False
    return replace(other, masked=table.masked, cuts=table.cuts, made_by=table.made_by) == table


def _check_operators(topology: Topology) -> None:
    """Check that operators and outputs use only sources and operators of the topology."""
    if topology.step is None and not topology.operators:
        raise TopologyError(f"Topology {topology.name!r} has neither a step nor operators: it would do nothing.")
    emitted = {emission for operator in topology.operators for emission in operator.emissions}
    for operator in topology.operators:
        for item in operator.inputs:
            if isinstance(item, TableInput) and item.table not in topology.tables:
                raise TopologyError(
                    f"Topology {topology.name!r}: {operator.what} reads table {item.table.name!r}, which is not among "
                    "its tables. List it, or the operator that keeps it."
                )
            if isinstance(item, VersionsInput) and item.of not in topology.operators:
                raise TopologyError(
                    f"Topology {topology.name!r}: {operator.what} reads the versions of {item.of.what}, which is not "
                    "among its operators. List that too."
                )
        for stream in operator.streams if topology.step is None else ():
            try:
                stream.check_unshaped()
            except TopologyError as error:
                refuse(str(error))
        for one in (one for item in operator.streams for one in item.of):
            if isinstance(one, Source) and one not in topology.sources:
                topics = sorted(source.topic for source in topology.sources)
                raise TopologyError(
                    f"Topology {topology.name!r}: {operator.what} reads source {one.topic!r}, which is not among "
                    f"its sources {topics} as declared there. List the same Source."
                )
            if isinstance(one, Emission) and one not in emitted:
                raise TopologyError(
                    f"Topology {topology.name!r}: {operator.what} reads rows of {one.operator}, which is not among its "
                    "operators. List that too."
                )
    for append in topology.appends:
        if append.of is not None and append.of not in emitted:
            raise TopologyError(
                f"Topology {topology.name!r}: output {append.name!r} has the rows of {append.of.operator}, which is "
                "not among its operators. List it."
            )


def _check_unique(topology: str, kind: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TopologyError(f"Topology {topology!r} declares {kind} {twice} more than once.")
