"""Each operator that keeps a table, with every aggregate there is, and the columns that readers of the table have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kappa import Source, Topology
from kappa import operators as kappa_operators
from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    at_most_every,
    cdc_table,
    cogroup,
    deduplicate,
    foreign_key_join,
    hopping_window,
    interval_join,
    lookup,
    newest_by,
    newest_table_join,
    running_total,
    session_window,
    sliding_window,
    table_join,
    table_table_join,
    tumbling_window,
    two_phase,
)
from kappa.operators.agg import Aggregate
from kappa.topology import Table
from kappa.topology.operator import Operator

#: A key that SQL could take for more, and that is called like a column which an aggregate keeps.
KEY = 'We"ird.Key__sum'
QUOTED = f"`{KEY}`"
AT = datetime(2026, 3, 1, tzinfo=UTC)

facts = Source(topic="facts", schema=f"{QUOTED} STRING NOT NULL, n BIGINT, other STRING", grace="1 second")
others = Source(topic="others", schema=f"{QUOTED} STRING NOT NULL, m BIGINT", grace="1 second")
changed = Source(
    topic="changed", schema="name STRING, other STRING", key_schema=f"{QUOTED} BIGINT", envelope="debezium"
)
state = Table(name="kept", key=KEY, schema=f"{QUOTED} STRING NOT NULL, n BIGINT, other STRING")


def aggregate_of(name: str) -> Aggregate:
    """An aggregate of column ``n``, whatever else it takes."""
    function: Callable[..., Aggregate] = getattr(agg, name)
    required = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    arguments = {"column": "n", "n": 2, "by": "n"}
    return function(**{one.name: arguments[one.name] for one in required})


#: Name of a column -> an aggregate: all that there are.
AGGREGATES: Mapping[str, Aggregate] = {
    f"A {name}": aggregate_of(name)
    for name in agg.__all__
    if inspect.isfunction(getattr(agg, name))
    and inspect.signature(getattr(agg, name)).return_annotation in (Aggregate, "Aggregate")
}
_NAMES = tuple(AGGREGATES)
#: Those that an aggregate of a table takes.
OF_TABLES = {name: aggregate for name, aggregate in AGGREGATES.items() if not aggregate.is_ordered}
_BOUNDS = ("window_start", "window_end")
_ALL: Any = {"key": KEY, "aggregates": AGGREGATES}

Case = tuple[Callable[[str], Operator[Any]], tuple[str, ...]]

#: An operator, and the columns of its first table that readers have; none for all of them.
CASES: Mapping[str, Case] = {
    "aggregate": (lambda t: aggregate(facts, **_ALL, table=t), (KEY, *_NAMES)),
    "cogroup": (
        lambda t: cogroup({"facts": facts}, key=KEY, aggregates={"facts": AGGREGATES}, table=t),
        (KEY, *_NAMES),
    ),
    "two_phase": (lambda t: two_phase(facts, **_ALL, table=t, parts=f"{t}_2"), (KEY, *_NAMES)),
    "aggregate_table": (lambda t: aggregate_table(state, key=KEY, aggregates=OF_TABLES, table=t), (KEY, *OF_TABLES)),
    "tumbling_window": (
        lambda t: tumbling_window(facts, **_ALL, size="1 minute", keep="1 hour", table=t),
        (KEY, *_BOUNDS, *_NAMES, "is_closed"),
    ),
    "hopping_window": (
        lambda t: hopping_window(facts, **_ALL, size="1 minute", every="30 seconds", table=t),
        (KEY, *_BOUNDS, *_NAMES),
    ),
    "session_window": (
        lambda t: session_window(facts, **_ALL, gap="1 minute", table=t),
        (KEY, "session_start", "session_end", *_NAMES),
    ),
    "sliding_window": (lambda t: sliding_window(facts, **_ALL, size="1 minute", table=t), (KEY, "event_time", *_NAMES)),
    "at_most_every": (
        lambda t: at_most_every(facts, key=KEY, every="1 minute", table=t),
        (KEY, "boundary", "n", "other"),
    ),
    "newest_by": (lambda t: newest_by(facts, key=KEY, table=t, deletions=f"{t}_2"), (KEY, "n", "other")),
    "cdc_table": (lambda t: cdc_table(changed, key=KEY, table=t), (KEY, "name", "other")),
    "cdc_table, history": (
        lambda t: cdc_table(changed, key=KEY, table=t, history=True),
        (KEY, "name", "other", "valid_from", "valid_to", "is_current", "_version"),
    ),
    "deduplicate, final": (
        lambda t: deduplicate(facts, key=KEY, within="1 minute", emit="final", table=t),
        (KEY, "session_start", "session_end", "first"),
    ),
    # What follows keeps results alone, or a state that has none.
    "deduplicate": (lambda t: deduplicate(facts, key=KEY, within=None, table=t), ()),
    "interval_join": (
        lambda t: interval_join(facts, others, key=KEY, within="1 minute", how="left", tables=(t, f"{t}_2")),
        (),
    ),
    "table_join": (lambda t: table_join(facts, others, key=KEY, how="left", tables=(t, f"{t}_2")), ()),
    "newest_table_join": (lambda t: newest_table_join(facts, others, key=KEY, how="left", table=t), ()),
    "lookup": (lambda t: lookup(facts, others, key=KEY, table=t), ()),
    "running_total": (lambda t: running_total(facts, key=KEY, amount="n", total="A sum", table=t, every=2), ()),
    "table_table_join": (
        lambda t: table_table_join(state, replace(state, name="more"), key=KEY, how="left", table=t),
        (),
    ),
    "foreign_key_join": (
        lambda t: foreign_key_join(state, replace(state, name="more"), foreign_key={"other": KEY}, how="left", table=t),
        (),
    ),
}
#: Those of which a reader does not get everything.
HIDING = [name for name, (_, results) in CASES.items() if results]
#: Functions of operators that keep a table; that of versions is for joins alone.
KEEPING = {
    name
    for name in kappa_operators.__all__
    if name not in ("agg", "versions_by")
    and "Operator" in str(inspect.signature(getattr(kappa_operators, name)).return_annotation)
}


def results_of(name: str) -> list[str]:
    """The columns of an operator's first table that readers have, in the order of the table."""
    declared, results = CASES[name]
    return [column.name for column in declared("t").tables[0].columns if not results or column.name in results]


def topology_of(name: str) -> Topology:
    """A topology of one operator."""
    return _topology(CASES[name][0]("t"))


def place_of(name: str) -> str:
    """The name of an operator's first table in :func:`topology_of_all`."""
    return name.replace(", ", "_")


def topology_of_all(names: Iterable[str]) -> Topology:
    """A topology of several of them."""
    return _topology(*(CASES[name][0](place_of(name)) for name in names))


def _topology(*operators: Operator[Any]) -> Topology:
    inputs = [read for operator in operators for read in operator.inputs]
    sources = [one for read in inputs for one in getattr(read, "of", ())] or [facts]
    tables = {read.table.name: read.table for read in inputs if hasattr(read, "table")}
    return Topology(
        name="tests.results",
        version="1",
        sources=list({source.topic: source for source in sources}.values()),
        operators=operators,
        tables=list(tables.values()),
    )


def row_of(table: Table, number: int) -> dict[str, Any]:
    """A row of a table: each plain column has a value, all else is null."""
    values = {"string": str(number), "long": number, "boolean": False, "timestamp": AT, "integer": number}
    return {column.name: values.get(str(column.delta)) for column in table.columns}
