"""The common parts of windows, sessions and their like: keys, the grid, the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kappa.errors import TopologyError
from kappa.operators.agg import Part
from kappa.operators.bound import FinalOperator, emission, with_event_time
from kappa.operators.frames import check_rows, check_stream, check_times
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

#: Whether a group was in the state before the slice: what was not there and goes at once is not written.
KNOWN = Part(name="_known", type="BOOLEAN", of_row="FALSE", of_parts="BOOL_OR(_known)")
#: Bounds of a window, as emitted rows have them.
BOUNDS = "window_start TIMESTAMP NOT NULL, window_end TIMESTAMP NOT NULL"
#: Why sessions and sliding windows refuse a row.
BEFORE_THE_FRONTIER = "its time is before the frontier"


@dataclass(frozen=True, kw_only=True)
class Windowed:
    """The result of an operator on windows for a slice.

    ``final`` is what ``suppress(untilWindowCloses)`` lets through in Kafka Streams; ``changes`` is what comes without.

    Attributes:
        changes: rows of its table, of a key at most one; those that go have ``_deleted``.
        final: rows that change no more, each once in the life of the stream, with their place in the order of
            emission, see :mod:`kappa.operators.origin`.
        late: refused records, as the output ``late_records`` keeps them.
    """

    changes: DataFrame
    final: DataFrame
    late: DataFrame


class OnWindows(Protocol):
    """An operator on windows before it is bound: what it needs is passed."""

    @property
    def schema(self) -> str:
        """Columns of the rows that are emitted, as Spark DDL."""

    def table(self, name: str) -> Table:
        """The state as a table of that name."""

    def __call__(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier) -> Windowed:
        """The result for the rows of a slice."""


def windowed_operator(
    of: RowsInput, table: str, windows: OnWindows, *, name: str, time: str, times: Mapping[str, int], behind_ms: int = 0
) -> FinalOperator[Windowed]:
    """An operator on windows with its input and its table.

    Args:
        of: what it reads.
        table: the name of its table.
        windows: the operator.
        name: its name, for messages.
        time: SQL of the event time of the rows that are final.
        times: columns that hold a time -> how far behind the frontier it may be in a later slice.
        behind_ms: the same of the event time.
    """

    def compute(slice: Slice, rows: tuple[DataFrame, ...]) -> Outcome[Windowed]:
        output = windows(rows[0], before=slice.table(table), frontier=of.frontier(slice))
        result = replace(output, final=with_event_time(output.final, time))
        return Outcome(result=result, changes=(result.changes,), emitted="final", late=result.late)

    emits = emission(label(name, table), windows.schema, of, behind_ms=behind_ms, times=times)
    return FinalOperator(name=name, inputs=(of,), tables=(windows.table(table),), compute=compute, emits=emits)


def keys_of(rows: str, key: Key, operator: str, own: Iterable[str]) -> tuple[Column, ...]:
    """Key columns of an operator, as its table has them: never null.

    Args:
        rows: Spark DDL of the rows.
        key: column or columns.
        operator: the operator, for messages.
        own: columns of the operator's own.

    Raises:
        TopologyError: there is no key; one is named twice, is not a column of the rows, or is called like one of the
            operator's own.
    """
    columns = key_columns(rows, key, operator)
    check_names([column.name for column in columns], operator, own)
    return tuple(replace(column, nullable=False) for column in columns)


def check_names(names: Iterable[str], operator: str, own: Iterable[str]) -> None:
    """No column is called like one of the operator's own.

    Raises:
        TopologyError: one is.
    """
    clashes = [name for name in names if is_reserved(name) or name.lower() in own]
    if clashes:
        raise TopologyError(
            f"{operator}: columns {clashes} have names of the operator's own, such as {sorted(own)}. "
            "Rename them in the step."
        )


def check_windowed(rows: DataFrame, columns: Iterable[Column], operator: str) -> None:
    """The rows are records with event time, in the types that were declared.

    Raises:
        TopologyError: they are not.
    """
    check_stream(rows, operator)
    check_times(rows, operator)
    check_rows(rows, columns, operator)


def needed(state: DataFrame, fresh: DataFrame, on: Sequence[str], closing: str) -> DataFrame:
    """Rows of a state that a slice touches, and those that it closes.

    Args:
        state: the rows before the slice.
        fresh: rows of the slice.
        on: names of the columns by which a row touches the state.
        closing: SQL condition of rows of the state that close, never null: these are found without a join.
    """
    touched = fresh.select(*quoted(on)).distinct()
    open_ones = state.where(f"NOT ({closing})").join(touched, on=list(on), how="left_semi")
    return open_ones.unionByName(state.where(closing))


def length(text: str, what: str) -> int:
    """A length of time above nothing, in milliseconds.

    Raises:
        TopologyError: it is none, or nothing.
    """
    ms = milliseconds(text, what)
    if not ms:
        raise TopologyError(f"{what} {text!r} is not a time at all. Use at least 1 millisecond.")
    return ms


#: SQL: the last instant of a window, the event time of its row. Its end is the first one of the next window.
LAST_INSTANT = "TIMESTAMP_MICROS(UNIX_MICROS({end}) - 1L)"


def later(time: str, by_ms: int) -> str:
    """SQL of a time so much later."""
    return f"TIMESTAMP_MICROS(UNIX_MICROS({time}) + {by_ms * 1000}L)"
