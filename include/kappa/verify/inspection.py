"""The plans of a step, without records: analysed and searched for parts that may differ from run to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.config import Config
from kappa.errors import first_line
from kappa.replay.findings import Finding
from kappa.replay.rules.step import step_findings, step_not_inspected
from kappa.slices.step import step_effects
from kappa.spark.catalyst import FROM_NO_RECORD, SUBQUERY, across_records, read_from, suspects
from kappa.spark.own_jobs import called
from kappa.topology import RECORD_COLUMNS, Slice, registry
from kappa.topology.ddl import ddl_of, quote
from kappa.topology.masking import SHORTEST
from kappa.topology.times.event_time import EVENT_COLUMNS, Frontier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from kappa.topology import Append, Source, Table, Topology


def inspected(session: SparkSession, topology: Topology) -> tuple[Finding, ...]:
    """Parts that may differ when a topology's step is run again on the same slice; see :mod:`kappa.replay.rules.step`.

    The step is called once on DataFrames without rows that have the right columns. Nothing is computed or written. A
    step that raises there is a finding, not an error: with records it may work.
    """
    try:
        effects = step_effects(topology, _without_rows(session, topology))
        occurrences = [suspect for name, frame in effects.items() for suspect in suspects(name, frame)]
    except Exception as error:  # an error without rows is not a reason against a replay
        return (step_not_inspected(f"{type(error).__name__}: {first_line(error)}"),)
    return tuple(step_findings(occurrences))


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """The dependence of the rows of an append output on more than one record each.

    Attributes:
        words: in words; empty where there is none.
        tables: names of the tables.
        sources: topics of the records.
        beside: other tables whose rows are made from the same ones: a total over windows that are emitted, for example.
        is_open: whether the plan has a part that is neither a record nor a row of a table.
    """

    words: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    is_open: bool = False


def dependencies(session: SparkSession, topology: Topology) -> dict[str, Dependence]:
    """The dependence of each append output and each operator's table on more than one record per row.

    The step is called once on DataFrames without rows. Nothing is computed or written.

    Raises:
        Exception: any that the step raises there.
    """
    empty = _without_rows(session, topology)
    effects, has_jobs = called(session, lambda: step_effects(topology, empty))
    jobs = _collected(topology, empty, effects) if has_jobs else ()
    reads = {table.name: set(read_from(effects[table.name], empty.tables)) for table in topology.tables}
    by_member = {}
    members: list[Append | Table] = [*topology.appends, *(t for t in topology.tables if t.reach is not None)]
    for member in members:
        words = across_records(effects[member.name], empty.records, empty.tables)
        tables = read_from(effects[member.name], empty.tables)
        by_member[member.name] = Dependence(
            words=(*words, *jobs),
            tables=tables,
            beside=tuple(sorted(n for n, of in reads.items() if n not in (member.name, *tables) and of & {*tables})),
            sources=read_from(effects[member.name], empty.records),
            is_open=bool(jobs) or not {SUBQUERY, FROM_NO_RECORD}.isdisjoint(words),
        )
    return by_member


def _collected(topology: Topology, empty: Slice, effects: Mapping[str, DataFrame]) -> tuple[str, ...]:
    """A note that a step collects rows while it is called: no plan shows its use of them.

    Tables that no plan reads are named: the rows are theirs, or the slice's.
    """
    read = {name for frame in effects.values() for name in read_from(frame, empty.tables)}
    unread = [repr(table.name) for table in topology.tables if table.name not in read]
    of = f" of table {' or '.join(unread)}" if unread else ""
    return (f"takes rows{of} to itself while it is called, by collect, count or the like",)


def inspect_deployed(config: Config, topology: str) -> tuple[Finding, ...]:
    """The same for a deployed topology, in a Spark session of its own: takes as long as Spark does to start.

    Code that does not import gives nothing: the plan refuses it with a finding of its own.
    """
    from kappa.errors import CodeError, UnknownTopologyError
    from kappa.spark.session import LazySession

    try:
        deployed = registry.load(config.topologies, topology)
    except (CodeError, UnknownTopologyError):
        return ()
    with LazySession(config=config, name=f"kappa plan {topology}") as spark:
        return inspected(spark.session, deployed)


def _without_rows(session: SparkSession, topology: Topology) -> Slice:
    """A slice with the right columns and no rows."""
    return Slice(
        seq=1,
        records={s.topic: session.createDataFrame([], _record_ddl(s)) for s in topology.sources},
        tables={t.name: session.createDataFrame([], ddl_of(t.columns)) for t in topology.tables},
        operators=topology.operators,
        secret=SHORTEST * "-",
        frontiers={s.topic: Frontier(ms=0) for s in topology.sources if s.has_event_time},
    )


def _record_ddl(source: Source) -> str:
    columns = [f"{quote(column.name)} {column.type}" for column in source.columns]
    times = [f"{name} {kind}" for name, kind in EVENT_COLUMNS.items() if source.has_event_time]
    return ", ".join([*columns, *(f"{name} {RECORD_COLUMNS[name]}" for name in source.record_columns), *times])
