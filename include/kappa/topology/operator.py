"""Operators that are bound to their inputs, tables and emissions.

An operator is declared with a source or another operator's emission, and with the name of its table. A step calls it
with the slice. The rows, the table before the slice, the frontier and the late records follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from kappa.errors import TopologyError
from kappa.topology.ddl import quoted
from kappa.topology.emission import Cuts, Emission, strictest
from kappa.topology.members import Table
from kappa.topology.operator_inputs import RowsInput, TableInput, mark_of
from kappa.topology.revisions import following, revised
from kappa.topology.slice import Slice, in_own_case, with_mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

R = TypeVar("R", bound=Any)


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[R]):
    """The outcome of an operator for a slice.

    Attributes:
        result: the result for the step.
        changes: the changes of each of its tables, in order.
        emitted: the field of the result with the emitted rows; None if it only has a table.
        late: refused records; None if it refuses none.
    """

    result: R
    changes: tuple[DataFrame, ...]
    emitted: Literal["final", "rows", "versions"] | None = None
    late: DataFrame | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator(Generic[R]):
    """An operator with its inputs and tables; the functions of :mod:`kappa.operators` make them.

    A step calls it once with the slice, and with rows if it makes them itself.

    Attributes:
        name: the operator, for messages.
        inputs: its inputs.
        tables: its state.
        compute: function from a slice and the rows of its inputs to its outcome.
        emits: its emission; None if it only has a table.
        more: field of the result -> a further emission, if there are several.
        revision: number of its semantics, part of what its tables say they were made by. A release that changes what
            the operator computes from the same rows, or what it keeps, raises it.
    """

    name: str
    inputs: tuple[RowsInput | TableInput | VersionsInput, ...]
    tables: tuple[Table, ...]
    compute: Callable[[Slice, tuple[DataFrame, ...]], Outcome[R]]
    emits: Emission | None = None
    more: Mapping[str, Emission] = field(default_factory=dict)
    revision: int = 1

    def __post_init__(self) -> None:
        # Results of rows that depend on cuts depend on them too.
        own = strictest(one.cuts for one in self.inputs)
        tables = tuple(
            replace(table, cuts=strictest([own, table.cuts]), made_by=self._maker_of(table)) for table in self.tables
        )
        object.__setattr__(self, "tables", tables)

    def _maker_of(self, table: Table) -> str:
        made_by = revised(table.made_by, self.revision)
        # Rows that were made of one table would stay beside those of another one.
        if tables := [one.table.name for one in self.inputs if isinstance(one, TableInput)]:
            return following(made_by, tables)
        # What was emitted by one frontier must not be emitted again by an earlier one.
        if not table.is_timed or self.emits is None:
            return made_by
        return following(made_by, [one.frontier_text for one in self.inputs if not isinstance(one, TableInput)])

    def __call__(self, slice: Slice, *rows: DataFrame | None) -> R:
        """The result of the operator for a slice.

        Args:
            slice: the slice.
            rows: for each input the rows that the step made from it; None, or nothing, for all of them, unchanged.

        Raises:
            TopologyError: it is called without a slice or twice, the topology does not list it, or the rows are not of
                its inputs.
        """
        if not isinstance(slice, Slice):
            raise TopologyError(
                f"{self.what} is called with {type(slice).__name__} instead of the slice. It knows its source, its "
                "table and their frontier: call it with the slice, and with rows only if the step made them, "
                f"{self.name}(slice, rows)."
            )
        if self in slice.calls.results:
            raise TopologyError(
                f"{self.what} is called twice in one slice: its table has one row per key. Call it once, with all rows."
            )
        if not all(table.name in slice.tables for table in self.tables):
            raise TopologyError(
                f"The step called {self.what}, which is not among the topology's operators. List it: operators=[...]."
            )
        if len(rows) > len(self.inputs):
            raise TopologyError(f"{self.what} has {len(self.inputs)} inputs but was called with {len(rows)}.")
        step_rows = (None if one is None else in_own_case(one) for one in rows)
        passed = (*step_rows, *(None for _ in self.inputs[len(rows) :]))
        frames = tuple(one.frame(slice, frame) for one, frame in zip(self.inputs, passed, strict=True))
        outcome = self.compute(slice, frames)
        slice.calls.results[self] = outcome.result
        slice.calls.changes.update(zip((table.name for table in self.tables), outcome.changes, strict=True))
        if outcome.late is not None:
            slice.calls.late.append(outcome.late)
        result = self._handed(slice, outcome)
        emissions = dict(self.more)
        if self.emits is not None and outcome.emitted is not None:
            emissions[outcome.emitted] = self.emits
        for name, emits in emissions.items():
            own = getattr(outcome.result, name)
            held = own if slice.hold is None else slice.hold(emits, own)
            emitted = slice.calls.emitted[emits] = with_mark(held, mark_of(emits))
            result = replace(result, **{name: emitted})  # the step may pass them on
        return result

    def _handed(self, slice: Slice, outcome: Outcome[R]) -> R:
        """The changes of a table for the step, without internal columns."""
        shown: dict[int, DataFrame] = {}
        for table, changes in zip(self.tables, outcome.changes, strict=True):
            if table.hidden:
                rest = changes.select(*quoted(name for name in changes.columns if name not in table.hidden))
                slice.calls.handed[table.name] = shown[id(changes)] = rest
        of = {one.name: id(getattr(outcome.result, one.name)) for one in fields(outcome.result)}
        return replace(outcome.result, **{name: shown[frame] for name, frame in of.items() if frame in shown})

    def tables_beside(self, operators: Sequence[Operator[Any]]) -> tuple[Table, ...]:
        """Its tables in a topology of these operators."""
        return self.tables

    @property
    def emissions(self) -> tuple[Emission, ...]:
        """All that it emits."""
        return (*([] if self.emits is None else [self.emits]), *self.more.values())

    @property
    def streams(self) -> tuple[RowsInput, ...]:
        """The inputs that are rows."""
        return tuple(one for one in self.inputs if isinstance(one, RowsInput))

    @property
    def what(self) -> str:
        """The operator with its tables, for messages."""
        if not self.tables and self.emits is not None:
            return self.emits.operator
        return label(self.name, *(table.name for table in self.tables))

    @property
    def schema(self) -> str:
        """Spark DDL of the rows that it emits.

        Raises:
            TopologyError: it emits none.
        """
        if self.emits is None:
            raise TopologyError(f"{self.what} emits no rows: its table is its result.")
        return self.emits.schema


@dataclass(frozen=True, kw_only=True, eq=False)
class VersionsInput:
    """A table of versions that an operator shares with others.

    Attributes:
        operator: the reading operator, for messages.
        of: the operator that keeps the table.
    """

    operator: str
    of: Operator[Any]

    @property
    def cuts(self) -> Cuts:
        """Under which cuts of the log the table is the same."""
        return self.of.tables[0].cuts

    @property
    def frontier_text(self) -> str:
        """The frontier of the versions, one text for one frontier."""
        return self.of.streams[0].frontier_text

    def frame(self, slice: Slice, passed: DataFrame | None) -> DataFrame:
        """All versions of the slice.

        Args:
            slice: the slice.
            passed: None; the table's own operator gets its rows.

        Raises:
            TopologyError: rows are passed, or the operator of the table has not been called yet.
        """
        if passed is not None:
            raise TopologyError(
                f"{self.operator} was passed rows of the table that {self.of.what} keeps. Pass them to that operator: "
                f"{self.of.name}(slice, rows)."
            )
        if self.of not in slice.calls.results:
            raise TopologyError(
                f"{self.operator} reads the versions of {self.of.what}, which has not been called yet in this slice. "
                "Call it first; in a topology without a step, list it first."
            )
        versions: DataFrame = slice.calls.results[self.of].versions
        return versions


def label(operator: str, *tables: str) -> str:
    """An operator with its tables, for messages."""
    return f"{operator} {' and '.join(map(repr, tables))}"
