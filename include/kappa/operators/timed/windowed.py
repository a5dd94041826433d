"""The common parts of windows, sessions and their like: keys, the grid, the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kappa.errors import TopologyError
from kappa.operators.agg import Part
from kappa.operators.agg import revision as revision_of_parts
from kappa.operators.bound import FinalOperator, emission, with_event_time
from kappa.operators.frames import check_rows, check_times
from kappa.operators.keys import Key, key_columns
from kappa.topology import Slice, Table
from kappa.topology.ddl import Column, quoted
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import RowsInput
from kappa.topology.reserved import is_reserved
from kappa.topology.times.durations import milliseconds
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Whether a group was in the state before the slice: a new group that closes immediately is not written.
KNOWN = Part(name="_known", type="BOOLEAN", of_row="FALSE", of_parts="BOOL_OR(_known)")
#: Bounds of a window in emitted rows.
BOUNDS = "window_start TIMESTAMP NOT NULL, window_end TIMESTAMP NOT NULL"
#: Why sessions and sliding windows refuse a row.
BEFORE_THE_FRONTIER = "its time is before the frontier"


@dataclass(frozen=True, kw_only=True)
class Windowed:
    """The result of an operator on windows for a slice.

    ``final`` is what ``suppress(untilWindowCloses)`` emits in Kafka Streams; ``changes`` is what comes without it.

    Attributes:
        changes: rows of its table, at most one per key; rows to delete have ``_deleted``.
        final: rows that no longer change, each once in the life of the stream, with their place in the order of
            emission, see :mod:`kappa.operators.origin`.
        late: refused records, in the form of the output ``late_records``.
    """

    changes: DataFrame
    final: DataFrame
    late: DataFrame


class OnWindows(Protocol):
    """An operator on windows before it is bound: everything that it needs is passed."""

    @property
    def schema(self) -> str:
        """Columns of the emitted rows, as Spark DDL."""

    def table(self, name: str) -> Table:
        """The state as a table of that name."""

    def __call__(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier) -> Windowed:
        """The result for the rows of a slice."""


def windowed_operator(
    of: RowsInput,
    table: str,
    windows: OnWindows,
    *,
    name: str,
    time: str,
    times: Mapping[str, int],
    behind_ms: int = 0,
    parts: Iterable[Part] = (),
    revision: int = 1,
) -> FinalOperator[Windowed]:
    """An operator on windows with its input and its table.

    Args:
        of: its input.
        table: the name of its table.
        windows: the operator.
        name: its name, for messages.
        time: SQL of the event time of final rows.
        times: columns that hold a time -> how far behind the frontier it may be in a later slice.
        behind_ms: the same for the event time.
        parts: columns of its aggregates.
        revision: the operator's own, where that of its aggregates is lower.
    """

    def compute(slice: Slice, rows: tuple[DataFrame, ...]) -> Outcome[Windowed]:
        output = windows(rows[0], before=slice.table(table), frontier=of.frontier(slice))
        result = replace(output, final=with_event_time(output.final, time))
        return Outcome(result=result, changes=(result.changes,), emitted="final", late=result.late)

    emits = emission(label(name, table), windows.schema, of, behind_ms=behind_ms, times=times, comes="frontier")
    return FinalOperator(
        name=name,
        inputs=(of,),
        tables=(windows.table(table),),
        compute=compute,
        emits=emits,
        revision=max(revision, revision_of_parts(parts)),
    )


def keys_of(rows: str, key: Key, operator: str, own: Iterable[str]) -> tuple[Column, ...]:
    """Key columns of an operator, as in its table: never null.

    Args:
        rows: Spark DDL of the rows.
        key: column or columns.
        operator: the operator, for messages.
        own: columns that the operator uses.

    Raises:
        TopologyError: there is no key; a column is named twice, is not among the rows, or has a name that the operator
            uses.
    """
    columns = key_columns(rows, key, operator)
    check_names([column.name for column in columns], operator, own)
    return tuple(replace(column, nullable=False) for column in columns)


def check_names(names: Iterable[str], operator: str, own: Iterable[str]) -> None:
    """Check that no column has a name that the operator uses.

    Raises:
        TopologyError: one is.
    """
    clashes = [name for name in names if is_reserved(name) or name.lower() in own]
    if clashes:
        raise TopologyError(
            f"{operator}: columns {clashes} have names that the operator uses, such as {sorted(own)}. Rename them in "
            "the step."
        )


def revision_by_names(reads: Iterable[Column], column: str) -> int:
    """The revision of an operator whose first one took a column that aggregates read for its own of that name."""
    return 2 if any(read.name.lower() == column for read in reads) else 1


def check_windowed(rows: DataFrame, columns: Iterable[Column], operator: str) -> None:
    """Check that the rows have event time and the declared types.

    Raises:
        TopologyError: they are not.
    """
    check_times(rows, operator)
    check_rows(rows, columns, operator)


def needed(state: DataFrame, fresh: DataFrame, on: Sequence[str], closing: str) -> DataFrame:
    """Rows of a state that a slice touches, and those that it closes.

    Args:
        state: the rows before the slice.
        fresh: rows of the slice.
        on: names of the columns by which a row touches the state.
        closing: SQL condition of rows of the state that close, never null: they are found without a join.
    """
    touched = fresh.select(*quoted(on)).distinct()
    open_ones = state.where(f"NOT ({closing})").join(touched, on=list(on), how="left_semi")
    return open_ones.unionByName(state.where(closing))


def length(text: str, what: str) -> int:
    """A positive length of time, in milliseconds.

    Raises:
        TopologyError: it is not a length of time, or zero.
    """
    ms = milliseconds(text, what)
    if not ms:
        raise TopologyError(f"{what} {text!r} is not a time at all. Use at least 1 millisecond.")
    return ms


#: SQL: the last instant of a window, which is the event time of its row. Its end is the first instant of the next
#: window.
LAST_INSTANT = "TIMESTAMP_MICROS(UNIX_MICROS({end}) - 1L)"


def later(time: str, by_ms: int) -> str:
    """SQL of a time that is later by this much."""
    return f"TIMESTAMP_MICROS(UNIX_MICROS({time}) + {by_ms * 1000}L)"
