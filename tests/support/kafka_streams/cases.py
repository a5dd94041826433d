"""Operators of Kafka Streams beside those of a topology that do the same, and those that have no counterpart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from support.kafka_streams.histories import BEGIN_MS, History

Row = Mapping[str, Any]
#: A row in the form in which both sides are compared.
Compared = tuple[Any, ...]

_TOPOLOGY = """
from kappa import Append, Source, Table, Topology
from kappa.operators import *

ROW = "ref STRING, n BIGINT, at BIGINT"
LEFT = Source(topic="{left}", schema={left_schema})
RIGHT = Source(topic="{right}", schema={right_schema})
SUMS = {"rows": agg.count(), "total": agg.sum("n")}
{text}
topology = Topology(name="{name}", version="1", sources=[{sources}], {rest})
"""
_STREAM, _TIMED = '"id STRING, " + ROW', '"id STRING, " + ROW, grace="2 seconds"'
_TABLE = 'ROW, key_schema="id STRING", tombstones=True'
_VERSIONS = f'{_TABLE}, grace="2 seconds"'


@dataclass(frozen=True, kw_only=True)
class Form:
    """How rows of both are made alike.

    Attributes:
        theirs: of a record of Kafka Streams: key, value, partition; None where it is left out.
        ours: of a row.
        is_table: whether the newest row of each key counts.
    """

    theirs: Callable[[str | None, Any, int], Compared | None]
    ours: Callable[[Row], Compared]
    is_table: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """What does the same on both sides.

    Attributes:
        peer: the operator, as the program of Kafka Streams names it.
        of: names of the operators of a topology that are compared.
        text: of the file of the topology, what stands before the topology; it may say what ``rest`` names.
        rest: arguments of the topology.
        form: how its rows are compared.
        left: schema and settings of the left source.
        right: those of the right one; empty where none is read.
        is_global: whether the right side is a global table of Kafka Streams.
        history: how records are drawn.
    """

    peer: str
    of: tuple[str, ...]
    text: str
    rest: str
    form: Form
    left: str = _TIMED
    right: str = ""
    is_global: bool = False
    history: History = field(default_factory=History)

    def file(self, name: str, left: str, right: str) -> str:
        """The file of the topology, by its name and those of its topics."""
        values = {
            "{text}": self.text,
            "{rest}": self.rest,
            "{sources}": "LEFT, RIGHT" if self.right else "LEFT",
            "{left_schema}": self.left,
            "{right_schema}": self.right or _STREAM,
            "{name}": name,
            "{left}": left,
            "{right}": right,
        }
        text = _TOPOLOGY
        for place, value in values.items():
            text = text.replace(place, value)
        return text


def _window(start: str, end: str) -> Form:
    return Form(
        theirs=lambda key, row, _: (key, row["start"], row["end"], row["rows"], row["total"]),
        ours=lambda row: (row["id"], _ms(row[start]), _ms(row[end]), row["rows"], row["total"]),
    )


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000) - BEGIN_MS


_WINDOWS, _SESSIONS = _window("window_start", "window_end"), _window("session_start", "session_end")
_PAIRS = Form(theirs=lambda _, row, __: (row["left"], row["right"]), ours=lambda row: (row["n"], row["n_right"]))
_PAIRS_OF_KEYS = Form(
    theirs=lambda key, row, _: (key, row["left"], row["right"]),
    ours=lambda row: (row["id"], row["n"], row["n_right"]),
    is_table=True,
)
_SUMS = Form(
    theirs=lambda key, row, _: (key, row["rows"], row["total"]),
    ours=lambda row: (row["id"], row["rows"], row["total"]),
    is_table=True,
)
SUMS_BY_REF = Form(
    theirs=lambda key, row, _: (key, row["rows"], row["total"]),
    ours=lambda row: (row["ref"], row["rows"], row["total"]),
    is_table=True,
)
_ROWS = Form(theirs=lambda key, row, _: (key, row["n"]), ours=lambda row: (row["id"], row["n"]))
_NEWEST = Form(theirs=_ROWS.theirs, ours=_ROWS.ours, is_table=True)

_FINAL = 'operators=[result], outputs=[Append(name="result", of=result.final)]'
_EMITTED = 'operators=[result], outputs=[Append(name="result", of=result.rows)]'
_KEPT = "operators=[result]"
_BESIDE = "operators=[lefts, rights, result]"
_LEFTS = 'lefts = newest_by(LEFT, key="id", table="lefts")\n'
_TABLES = f'{_LEFTS}rights = newest_by(RIGHT, key="id", table="rights")\n'
#: A window takes any late record; what a session and a sliding window make of one near the frontier differs on purpose.
_ANY_LATE, _FAR = (2_002, 2_500, 9_000, 14_000), (9_000, 14_000)
#: The window stores of a join have forgotten these.
_OUT_OF_REACH = (24_000, 30_000)


def _windowed(
    peer: str, function: str, arguments: str, form: Form, late_ms: tuple[int, ...], alone_ms: int = 0
) -> Case:
    return Case(
        peer=peer,
        of=(function,),
        text=f'result = {function}(LEFT, key="id", {arguments}, aggregates=SUMS, table="open")',
        rest=_FINAL,
        form=form,
        history=History(late_ms=(late_ms, ()), alone_ms=alone_ms),
    )


def _joined(how: str, *, late_ms: tuple[tuple[int, ...], tuple[int, ...]]) -> Case:
    return Case(
        peer=f"{how} join",
        of=("interval_join",),
        text=f'result = interval_join(LEFT, RIGHT, key="id", within="4 seconds", how="{how}", tables=("l", "r"))',
        rest=_EMITTED,
        form=_PAIRS,
        right=_TIMED,
        history=History(late_ms=late_ms),
    )


_TOTALS = """
result = running_total(LEFT, key="id", {parameters}, total="total", table="totals")
def step(slice):
    result(slice, slice[LEFT.topic].where("id IS NOT NULL"))
"""
_STEP_OF_KEYS = """
def step(slice):
    rows = rekey(slice[LEFT.topic], key="ref", partitions=3)
    return {"result": rows.selectExpr("*", "_key AS sent_as", "_key_partition AS sent_to")}
"""
_STEP_OF_NEWEST = """
def step(slice):
    return {"result": newest(slice[LEFT.topic], key="id")}
"""
_ROWS_OF_A_TABLE = 'key="id", schema="id STRING NOT NULL, ref STRING, n BIGINT, at BIGINT"'

CASES: Mapping[str, Case] = {
    "tumbling window": _windowed("tumbling", "tumbling_window", 'size="10 seconds"', _WINDOWS, _ANY_LATE),
    "hopping window": _windowed(
        "hopping", "hopping_window", 'size="10 seconds", every="5 seconds"', _WINDOWS, _ANY_LATE
    ),
    "session window": _windowed("session", "session_window", 'gap="3 seconds"', _SESSIONS, _FAR, alone_ms=3_000),
    "sliding window": _windowed("sliding", "sliding_window", 'size="4 seconds"', _WINDOWS, _FAR),
    "newest of a window": Case(
        peer="newest of a window",
        of=("at_most_every",),
        text='result = at_most_every(LEFT, key="id", every="10 seconds", table="due")',
        rest=_FINAL,
        form=Form(
            theirs=lambda key, row, _: (key, row["end"], row["n"]),
            ours=lambda row: (row["id"], _ms(row["boundary"]), row["n"]),
        ),
    ),
    "first of a session": Case(
        peer="first of a session",
        of=("deduplicate",),
        text='result = deduplicate(LEFT, key="id", within="3 seconds", emit="final", table="runs")',
        rest=_EMITTED,
        form=_ROWS,
        history=History(late_ms=(_FAR, ()), alone_ms=3_000),
    ),
    "first": Case(
        peer="first",
        of=("deduplicate",),
        text='result = deduplicate(LEFT, key="id", within=None, table="seen")',
        rest=_EMITTED,
        form=_NEWEST,
        left=_STREAM,
    ),
    "aggregate": Case(
        peer="aggregate",
        of=("aggregate",),
        text='result = aggregate(LEFT, key="id", aggregates=SUMS, table="result")',
        rest=_KEPT,
        form=_SUMS,
    ),
    "aggregate by another key": Case(
        peer="aggregate by another key",
        of=("aggregate",),
        text='result = aggregate(LEFT, key="ref", aggregates=SUMS, table="result")',
        rest=_KEPT,
        form=SUMS_BY_REF,
    ),
    "aggregate in two phases": Case(
        peer="aggregate",
        of=("two_phase",),
        text='result = two_phase(LEFT, key="id", aggregates=SUMS, table="result")',
        rest=_KEPT,
        form=_SUMS,
    ),
    "cogroup": Case(
        peer="cogroup",
        of=("cogroup",),
        text='result = cogroup({"l": LEFT, "r": RIGHT}, key="id", aggregates={"l": SUMS, "r": SUMS}, table="result")',
        rest=_KEPT,
        form=_SUMS,
        right=_TIMED,
    ),
    "aggregate of a table": Case(
        peer="aggregate of a table",
        of=("aggregate_table",),
        text=f'{_LEFTS}result = aggregate_table(lefts, key="ref", aggregates=SUMS, table="result")',
        rest="operators=[lefts, result]",
        # A group without rows differs on purpose.
        form=replace(SUMS_BY_REF, theirs=lambda key, row, _: (key, row["rows"], row["total"]) if row["rows"] else None),
        left=_TABLE,
    ),
    "totals": Case(
        peer="totals",
        of=("running_total",),
        text=_TOTALS.format(parameters='amount="n"'),
        left=_STREAM,
        rest=f"{_EMITTED}, step=step",
        form=Form(
            theirs=lambda key, row, _: (key, row["n"], row["total"]),
            ours=lambda row: (row["id"], row["n"], row["total"]),
        ),
    ),
    "each tenth": Case(
        peer="each tenth",
        of=("running_total",),
        text=_TOTALS.format(parameters="every=10"),
        left=_STREAM,
        rest='operators=[result], step=step, outputs=[Append(name="result", of=result.crossings)]',
        form=Form(theirs=lambda key, row, _: (key, row["rows"]), ours=lambda row: (row["id"], row["threshold"])),
    ),
    "another key": Case(
        peer="another key",
        of=("rekey",),
        text=_STEP_OF_KEYS,
        left=_STREAM,
        rest='step=step, outputs=[Append(name="result", schema="id STRING, n BIGINT, sent_as STRING, sent_to INT")]',
        form=Form(
            theirs=lambda key, row, partition: (key, row["n"], None if key is None else partition),
            ours=lambda row: (row["sent_as"], row["n"], row["sent_to"]),
        ),
    ),
    "table": Case(
        peer="table",
        of=("newest_by",),
        text='result = newest_by(LEFT, key="id", table="result")',
        rest=_KEPT,
        form=_NEWEST,
        left=_TABLE,
    ),
    "table of a step": Case(
        peer="table",
        of=("newest",),
        text=_STEP_OF_NEWEST,
        rest=f'step=step, tables=[Table(name="result", {_ROWS_OF_A_TABLE})]',
        form=_NEWEST,
        left=_TABLE,
    ),
    "inner join": _joined("inner", late_ms=(_OUT_OF_REACH, _OUT_OF_REACH)),
    "left join": _joined("left", late_ms=((), _OUT_OF_REACH)),
    "outer join": _joined("outer", late_ms=((), ())),
    "stream and table": Case(
        peer="stream and table",
        of=("newest_table_join",),
        text='result = newest_table_join(LEFT, RIGHT, key="id", how="left", table="rights")',
        rest=_EMITTED,
        form=_PAIRS,
        left=_STREAM,
        right=_TABLE,
    ),
    "stream and versions": Case(
        peer="stream and versions",
        of=("table_join",),
        text='result = table_join(LEFT, RIGHT, key="id", how="left", tables=("waiting", "versions"))',
        rest=_EMITTED,
        form=_PAIRS,
        right=_VERSIONS,
        # Kafka Streams 4.2 ends with an error at a null key that is to wait.
        history=History(keyless=(False, True)),
    ),
    "stream and versions that joins share": Case(
        peer="stream and versions",
        of=("versions_by", "table_join"),
        text=(
            'versions = versions_by(RIGHT, key="id", table="versions")\n'
            'result = table_join(LEFT, versions, key="id", how="left", tables="waiting")'
        ),
        rest='operators=[versions, result], outputs=[Append(name="result", of=result.rows)]',
        form=_PAIRS,
        right=_VERSIONS,
        history=History(keyless=(False, True)),
    ),
    "stream and global table": Case(
        peer="stream and global table",
        of=("lookup",),
        text='result = lookup(LEFT, RIGHT, key={"ref": "id"}, table="rights")',
        rest=_EMITTED,
        form=_PAIRS,
        left=_STREAM,
        right=_TABLE,
        is_global=True,
        history=History(right_first=True),
    ),
    **{
        f"{how} join of tables": Case(
            peer=f"{how} join of tables",
            of=("table_table_join",),
            text=f'{_TABLES}result = table_table_join(lefts, rights, key="id", how="{how}", table="result")',
            rest=_BESIDE,
            form=_PAIRS_OF_KEYS,
            left=_TABLE,
            right=_TABLE,
        )
        for how in ("inner", "left", "outer")
    },
    "foreign key join": Case(
        peer="foreign key join",
        of=("foreign_key_join",),
        text=f'{_TABLES}result = foreign_key_join(lefts, rights, foreign_key={{"ref": "id"}}, table="result")',
        rest=_BESIDE,
        form=_PAIRS_OF_KEYS,
        left=_TABLE,
        right=_TABLE,
    ),
}
#: Operators without a counterpart in the DSL of Kafka Streams, and what they are compared with instead.
WITHOUT: Mapping[str, str] = {
    "cdc_table": "Kafka Streams reads Debezium's records by arrival; a PostgreSQL is the oracle",
    "masked": "a keyed hash of a column, in no order and of no state; plain Python is the oracle",
}
