"""Bound operators by their results: rows that are final, rows of a join, or a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from kappa.errors import TopologyError
from kappa.operators.arguments import check_arguments
from kappa.topology import Table
from kappa.topology.ddl import columns_of, ddl_of, plain_type
from kappa.topology.earlier_code import refuse
from kappa.topology.emission import Comes, Cuts, Emission, Places, latest, strictest
from kappa.topology.members.descriptions import described
from kappa.topology.operator import Operator
from kappa.topology.operator_inputs import RowsInput, TableInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

P = ParamSpec("P")
R = TypeVar("R")


def declared_as(example: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse wrong arguments of an operator's function with a message that shows a correct declaration.

    Args:
        example: such a declaration.
    """

    def of(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TopologyError(
                    f"{function.__name__}: {error}. An operator is declared with its inputs and the name of its table, "
                    f"and called with the slice: {example}."
                ) from error
            check_arguments(function.__name__, signature, arguments)
            return function(*args, **kwargs)

        return checked

    return of


@dataclass(frozen=True, kw_only=True, eq=False)
class FinalOperator(Operator[R]):
    """An operator whose rows are final when it emits them."""

    emits: Emission = field()

    @property
    def final(self) -> Emission:
        """These rows, for an output or another operator."""
        return self.emits


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsOperator(Operator[R]):
    """An operator that emits rows of its input: joined, or without repetitions."""

    emits: Emission = field()

    @property
    def rows(self) -> Emission:
        """These rows, for an output or another operator."""
        return self.emits


@dataclass(frozen=True, kw_only=True, eq=False)
class TableOperator(Operator[R]):
    """An operator whose result is its first table."""

    @property
    def schema(self) -> str:
        """Spark DDL of the table's results."""
        return ddl_of(self.tables[0].results)


def emission(
    operator: str,
    schema: str,
    *inputs: RowsInput,
    behind_ms: int = 0,
    times: Mapping[str, int] | None = None,
    lags: Mapping[str, int] | None = None,
    is_timed: bool = True,
    cuts: Cuts = "any",
    comes: Comes | None = None,
) -> Emission:
    """The emission of an operator.

    Args:
        operator: the operator with its tables, for messages.
        schema: Spark DDL of the rows.
        inputs: the inputs of the operator.
        behind_ms: how far behind the frontier of its inputs the event time of a later row may be.
        times: columns that hold a time -> how far behind that frontier it may be in a later slice.
        lags: the same columns -> how far behind the event time of its row it may be; None if a row is emitted as soon
            as the frontier has passed its event time by ``behind_ms``.
        is_timed: whether the rows have event time.
        cuts: the cuts of the log under which the rows are the same, if those of the inputs are.
        comes: when the rows come; None if with those of the inputs.
    """
    topics = tuple(sorted({topic for one in inputs for topic in one.topics}))
    further = max((one.behind_ms for one in inputs), default=0)
    behind = behind_ms + further if is_timed else None
    depends = strictest([cuts, *(one.cuts for one in inputs)])
    bounds = {column: ms + further for column, ms in (times or {}).items()} if is_timed else {}
    places = tuple(each for one in inputs for each in one.places)
    own = {column: max(0, ms - behind_ms) for column, ms in (times or {}).items()} if lags is None else lags
    return Emission(
        operator=operator,
        schema=schema,
        topics=topics,
        behind_ms=behind,
        times=bounds,
        lags=own if is_timed else {},
        cuts=depends,
        comes=comes or latest(one.comes for one in inputs),
        is_paired=any(one.is_paired for one in inputs) if comes is None else comes == "partner",
        places=places if comes is None else (Places(of=f"rows of {operator}", topics=topics, comes=comes),),
    )


def cuts_along(*inputs: RowsInput) -> Cuts:
    """Under which cuts an operator that follows the total order gets the rows of these inputs in one order."""
    comes = [one.comes for one in inputs]
    if comes == ["frontier"]:
        return "any"
    if set(comes) != {"record"}:
        return "equal"
    # With several topics, arrival decides the order of a key's rows.
    return "any" if len({topic for one in inputs for topic in one.topics}) == 1 else "time"


def with_event_time(rows: DataFrame, time: str | None = None) -> DataFrame:
    """Emitted rows with event time, for another operator; none of them is late.

    Args:
        rows: the rows.
        time: SQL of their event time; None if they have ``_event_time``.
    """
    own = "* EXCEPT (_event_time)" if "_event_time" in rows.columns else "*"
    at = time or "_event_time"
    return rows.selectExpr(own, f"{at} AS _event_time", "CAST(NULL AS TIMESTAMP) AS _frontier")


def table_input(of: TableOperator[R] | Table, operator: str, rows: str = "") -> TableInput:
    """A table that an operator reads.

    Args:
        of: an operator with a table, or a table of the topology, whose changes the step passes.
        operator: the reading operator, for messages.
        rows: Spark DDL of the columns that matter; empty for all.

    Raises:
        TopologyError: it is neither, or the table does not have these columns.
    """
    if not isinstance(of, Table | TableOperator):
        raise TopologyError(
            f"{operator} reads tables and is declared with {described(of)}. Declare it with an operator "
            "that keeps a table, such as newest_by or aggregate, or with a Table."
        )
    table = of if isinstance(of, Table) else of.tables[0]
    own = [name for name in table.key if name in table.internal]
    if own:
        raise TopologyError(
            f"{operator} reads table {table.name!r}, a history, which has several rows for each key and tells them "
            f"apart by {own[0]}, a column of its own. Declare another cdc_table without history, and read that."
        )
    _check_columns(table, rows, operator)
    return TableInput(operator=operator, table=table, rows=rows or ddl_of(table.results))


def _check_columns(table: Table, rows: str, operator: str) -> None:
    """Check that a table has columns that an operator reads, in their types.

    Raises:
        TopologyError: one is missing or has another type.
    """
    types = {column.name.lower(): column for column in table.columns}
    for column in columns_of(rows, f"the rows of {operator}") if rows else ():
        own = types.get(column.name.lower())
        if own is None or plain_type(own.delta) != plain_type(column.delta):
            refuse(
                f"{operator} reads column {column.name!r} as {column.type} of table {table.name!r}, "
                + ("which does not have it" if own is None else f"where it is {own.type}")
                + f". Its rows are {ddl_of(table.results)}. Declare columns of the table, in their types."
            )
