"""A join of two tables by their key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from kappa.operators.bound import TableOperator, declared_as, table_input
from kappa.operators.joins.join_columns import How, JoinColumns, JoinKey, changed_rows, join_columns
from kappa.operators.joins.joined_tables import TableChanges, check_whole_key, tables_operator
from kappa.topology import Table
from kappa.topology.ddl import Column, ddl_of, quote, quoted
from kappa.topology.operator import label

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "table_table_join"
_SIDES = ("_left", "_right")
#: SQL of a key's rows; a change is newer than the row before the slice.
_OF_KEY = (
    *(f"MAX_BY({side}, _is_change) FILTER (WHERE {side} IS NOT NULL) AS {side}" for side in _SIDES),
    "BOOL_OR(_is_change) AS _is_changed",
    "BOOL_OR(_was) AS _was",
)
#: SQL: whether the result has the key, by the kind of join.
_IS_THERE = {
    "inner": "(_left IS NOT NULL AND _right IS NOT NULL)",
    "left": "(_left IS NOT NULL)",
    "outer": "(_left IS NOT NULL OR _right IS NOT NULL)",
}


@declared_as("table_table_join(names, cities, key='id', table='people')")
def table_table_join(
    left: TableOperator[Any] | Table,
    right: TableOperator[Any] | Table,
    *,
    key: JoinKey,
    table: str,
    how: How = "inner",
    left_rows: str = "",
    right_rows: str = "",
) -> TableOperator[TableChanges]:
    """The rows of two tables with one key side by side (Kafka Streams: ``KTable.join``, ``leftJoin``, ``outerJoin``).

    Both tables are seen as of the commit: an update on either side recomputes its key, and a key that no longer belongs
    to the join is deleted from the result.

    Columns: those of the left table, then those of the right one without its key; a right column whose name the left
    table also has ends in ``_right``. Key: that of both, with the left names. To tell keys of both tables from keys of
    one, give each table a column that is never null.

    State: the result; both tables belong to the topology. Class: that of the tables; only the last of several changes
    between two commits shows.

    Args:
        left: the operator that keeps the left table, or a table of the topology, whose changes the step passes.
        right: the same for the right table.
        key: key of both tables: common names, or left column -> right column.
        table: the name of the result.
        how: ``inner``: keys of both; ``left``: those of the left table; ``outer``: those of either.
        left_rows: Spark DDL of the columns of the left table that matter here; empty for all.
        right_rows: the same for the right table.

    Raises:
        TopologyError: a column or ``how`` does not fit.

    Examples:
        >>> from kappa import Slice, Table
        >>> from kappa.operators import table_table_join
        >>> names = Table(name="names", key="id", schema="id STRING NOT NULL, name STRING")
        >>> cities = Table(name="cities", key="id", schema="id STRING NOT NULL, city STRING")
        >>> people = table_table_join(names, cities, key="id", table="people", how="left")
        >>> ada, pune = spark.sql("SELECT 'a' AS id, 'Ada' AS name"), spark.sql("SELECT 'a' AS id, 'Pune' AS city")
        >>> before = {"names": ada, "cities": pune.limit(0), "people": ada.select("id")}
        >>> people(Slice(seq=1, records={}, tables=before), ada.limit(0), pune).changes.collect()
        [Row(id='a', name='Ada', city='Pune', _deleted=False)]
    """
    what = label(_NAME, table)
    lefts, rights = table_input(left, what, left_rows), table_input(right, what, right_rows)
    columns = join_columns(
        what=_NAME, left=lefts.rows, right=rights.rows, key=key, how=how, allowed=("inner", "left", "outer")
    )
    for side, names in ((lefts, columns.left_key), (rights, columns.right_key)):
        check_whole_key(what, side, names)
    return tables_operator(_NAME, TableTableJoin(columns=columns), lefts, rights, table)


@dataclass(frozen=True, kw_only=True)
class TableTableJoin:
    """A join of two tables by key, before it is bound; :func:`table_table_join` makes it.

    Attributes:
        columns: columns of both tables and of the result.
    """

    columns: JoinColumns

    @property
    def schema(self) -> str:
        """DDL of the result's rows."""
        return ddl_of(self.columns.joined)

    def table(self, name: str) -> Table:
        """The result."""
        made_by = f"{_NAME}({self.columns.key_text}, how={self.columns.how})"
        return Table(name=name, key=self.columns.left_key, schema=self.schema, made_by=made_by)

    def __call__(
        self, left: DataFrame, right: DataFrame, *, left_before: DataFrame, right_before: DataFrame, before: DataFrame
    ) -> TableChanges:
        """Compute the keys that a slice changes.

        Args:
            left: changes of the left table, as the step returns them: at most one row per key, with ``_deleted`` for
                rows to delete.
            right: changes of the right table, likewise.
            left_before: the left table before the slice.
            right_before: the right table before the slice.
            before: the result's table before the slice.
        """
        from pyspark.sql import functions as F

        columns, keys = self.columns, quoted(self.columns.left_key)
        # One shuffle for all five; joins would take one for each.
        parts = [
            *self._part(left, left_before, columns.left, columns.left_key, "_left"),
            *self._part(right, right_before, columns.right, columns.right_key, "_right"),
            before.selectExpr(*keys, "TRUE AS _was"),
        ]
        both = reduce(lambda one, two: one.unionByName(two, allowMissingColumns=True), parts)
        states = both.groupBy(*keys).agg(*map(F.expr, _OF_KEY)).where("_is_changed")
        present = states.selectExpr(*keys, "_was", *(f"IF({name}._deleted, NULL, {name}) AS {name}" for name in _SIDES))
        rest = [quote(column.name) for column in columns.left if column.name not in columns.left_key]
        rows = present.selectExpr(
            *keys,
            *(f"_left.{name} AS {name}" for name in rest),
            *(f"_right.{quote(name)} AS {quote(shown)}" for name, shown in columns.named.items()),
            f"NOT {_IS_THERE[columns.how]} AS _deleted",
            "_was",
        )
        return TableChanges(changes=rows.where("NOT _deleted OR _was").drop("_was"))

    def _part(
        self, changes: DataFrame, before: DataFrame, columns: Sequence[Column], key: Sequence[str], name: str
    ) -> list[DataFrame]:
        """A table's changes and its rows before the slice, each as its key with the left names, and a struct."""
        rest = quoted(column.name for column in columns if column.name not in key)
        keys = [f"{quote(own)} AS {quote(shown)}" for own, shown in zip(key, self.columns.left_key, strict=True)]
        row = f"STRUCT({', '.join([*rest, '_deleted'])}) AS {name}"
        return [
            changed_rows(changes, columns, key, _NAME).selectExpr(*keys, row, "TRUE AS _is_change"),
            before.selectExpr("*", "FALSE AS _deleted").selectExpr(*keys, row, "FALSE AS _is_change"),
        ]
