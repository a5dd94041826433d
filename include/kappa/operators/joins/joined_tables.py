"""The common parts of joins of two tables: how they are bound, and their result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kappa.operators.bound import TableOperator
from kappa.topology import Slice, Table
from kappa.topology.earlier_code import refuse
from kappa.topology.operator import Outcome
from kappa.topology.operator_inputs import TableInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class TableChanges:
    """The result of a join of tables for a slice.

    Attributes:
        changes: rows of the result's table; rows to delete have ``_deleted``.
    """

    changes: DataFrame


class TablesJoin(Protocol):
    """A join of two tables before it is bound."""

    @property
    def schema(self) -> str:
        """DDL of the result's rows."""

    def table(self, name: str) -> Table:
        """The result."""

    def __call__(
        self, left: DataFrame, right: DataFrame, *, left_before: DataFrame, right_before: DataFrame, before: DataFrame
    ) -> TableChanges:
        """The changes of the result from those of both tables."""


def check_whole_key(what: str, side: TableInput, names: Sequence[str]) -> None:
    """Check that the whole key of a table is compared: of its rows with equal values, only one would be in the result.

    Raises:
        TopologyError: other columns are compared.
    """
    if set(names) != set(side.table.key):
        refuse(
            f"{what} compares {list(names)} of table {side.table.name!r}, whose key is {list(side.table.key)}: of its "
            "rows with the same values the result would have only one. Compare all of its key, and no other column; "
            "or keep a table by the columns that are compared."
        )


def tables_operator(
    name: str, join: TablesJoin, left: TableInput, right: TableInput, table: str
) -> TableOperator[TableChanges]:
    """A join of two tables with both and its result.

    Args:
        name: the operator, for messages.
        join: the join.
        left: the left table.
        right: the right one.
        table: the name of the result.
    """

    def compute(slice: Slice, changes: tuple[DataFrame, ...]) -> Outcome[TableChanges]:
        result = join(
            *changes,
            left_before=slice.table(left.table.name),
            right_before=slice.table(right.table.name),
            before=slice.table(table),
        )
        return Outcome(result=result, changes=(result.changes,))

    return TableOperator(name=name, inputs=(left, right), tables=(join.table(table),), compute=compute)
