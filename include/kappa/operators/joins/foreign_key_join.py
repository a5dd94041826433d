"""A join of two tables: rows of the left one with the right row that they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kappa.operators.bound import TableOperator, declared_as, table_input
from kappa.operators.joins.join_columns import JoinColumns, JoinKey, changed_rows, join_columns
from kappa.operators.joins.joined_tables import TableChanges, check_whole_key, tables_operator
from kappa.operators.keys import Key
from kappa.topology import Table
from kappa.topology.ddl import ddl_of, names_of, quoted
from kappa.topology.operator import label

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "foreign_key_join"


@declared_as("foreign_key_join(orders, products, foreign_key='sku', table='named_orders')")
def foreign_key_join(
    left: TableOperator[Any] | Table,
    right: TableOperator[Any] | Table,
    *,
    foreign_key: JoinKey,
    table: str,
    how: Literal["inner", "left"] = "inner",
    left_rows: str = "",
    right_rows: str = "",
) -> TableOperator[TableChanges]:
    """The rows of a table, each with the row of another table that it names (Kafka Streams: ``KTable.join`` with a
    foreign key).

    Both tables are seen as of the commit: an update on either side recomputes every row that it touches, and a row that
    is deleted or has lost its partner is deleted from the result. Kafka Streams joins update by update, and may send a
    deletion for a row that never existed.

    Columns: those of the left table, then those of the right one without its key; a right column whose name the left
    table also has ends in ``_right``. Key: that of the left table. To tell rows with a partner from those without, give
    the right table a column that is never null.

    A null foreign key names nothing. With the left table's own key as foreign key this is a join of two tables by key,
    like :func:`kappa.operators.table_table_join`, which also supports ``outer``.

    State: the result, one row for each left row in it; both tables belong to the topology. Class: that of the tables;
    only the last of several changes between two commits shows.

    Args:
        left: the operator that keeps the left table, or a table of the topology, whose changes the step passes.
        right: the same for the right table.
        foreign_key: left column or columns with the right table's key: the same names as there, or left column -> right
            column.
        table: the name of the result.
        how: ``left`` keeps rows that name nothing.
        left_rows: Spark DDL of the columns of the left table that matter here; empty for all.
        right_rows: the same for the right table.

    Raises:
        TopologyError: a column or ``how`` does not fit.

    Examples:
        >>> from kappa import Slice, Table
        >>> from kappa.operators import foreign_key_join
        >>> orders = Table(name="orders", key="id", schema="id STRING NOT NULL, sku STRING")
        >>> products = Table(name="products", key="sku", schema="sku STRING NOT NULL, name STRING")
        >>> join = foreign_key_join(orders, products, foreign_key="sku", table="names")
        >>> order, product = spark.sql("SELECT 'o1' AS id, 'x' AS sku"), spark.sql("SELECT 'x' AS sku, 'Lamp' AS name")
        >>> before = {"orders": order.limit(0), "products": product.limit(0), "names": order.limit(0)}
        >>> join(Slice(seq=1, records={}, tables=before), order, product).changes.collect()
        [Row(id='o1', sku='x', name='Lamp', _deleted=False)]
    """
    what = label(_NAME, table)
    lefts, rights = table_input(left, what, left_rows), table_input(right, what, right_rows)
    join = _join(lefts.rows, rights.rows, lefts.table.key, foreign_key, how)
    check_whole_key(what, rights, join.columns.right_key)
    return tables_operator(_NAME, join, lefts, rights, table)


def _join(left: str, right: str, key: Key, foreign_key: JoinKey, how: Literal["inner", "left"]) -> ForeignKeyJoin:
    columns = join_columns(
        what=_NAME, left=left, right=right, key=foreign_key, how=how, allowed=("inner", "left"), required=key
    )
    return ForeignKeyJoin(columns=columns, key=names_of(key))


@dataclass(frozen=True, kw_only=True)
class ForeignKeyJoin:
    """A join by foreign key, before it is bound; :func:`foreign_key_join` makes it.

    Attributes:
        columns: columns of both tables and of the result.
        key: key of the left table and of the result.
    """

    columns: JoinColumns
    key: tuple[str, ...]

    @property
    def schema(self) -> str:
        """DDL of the result's rows."""
        return ddl_of(self.columns.joined)

    def table(self, name: str) -> Table:
        """The result."""
        made_by = f"{_NAME}(foreign_{self.columns.key_text}, how={self.columns.how})"
        return Table(name=name, key=self.key, schema=self.schema, made_by=made_by)

    def __call__(
        self, left: DataFrame, right: DataFrame, *, left_before: DataFrame, right_before: DataFrame, before: DataFrame
    ) -> TableChanges:
        """Compute the rows that a slice's changes touch.

        Args:
            left: changes of the left table, as the step returns them: at most one row per key, with ``_deleted`` for
                rows to delete.
            right: changes of the right table, likewise.
            left_before: the left table before the slice.
            right_before: the right table before the slice.
            before: the result's table before the slice.
        """
        from pyspark.sql import functions as F

        lefts = changed_rows(left, self.columns.left, self.key, _NAME)
        rights = changed_rows(right, self.columns.right, self.columns.right_key, _NAME)
        on = F.expr(self.columns.is_equal)
        unchanged_rights = right_before.join(rights, on=list(self.columns.right_key), how="left_anti").selectExpr(
            *quoted(column.name for column in self.columns.right), "FALSE AS _deleted"
        )
        # A changed left row may name any right row; an unchanged one is touched only by a changed right row.
        changed = lefts.alias("l").join(unchanged_rights.unionByName(rights).alias("r"), on, "left")
        others = left_before.join(lefts, on=list(self.key), how="left_anti").selectExpr(
            *quoted(column.name for column in self.columns.left), "FALSE AS _deleted"
        )
        touched = others.alias("l").join(rights.alias("r"), on, "inner")
        is_there = "NOT l._deleted" + (" AND NOT COALESCE(r._deleted, TRUE)" if self.columns.how == "inner" else "")
        names = [*self.columns.of_pair, f"NOT ({is_there}) AS _deleted"]
        rows = changed.selectExpr(*names).unionByName(touched.selectExpr(*names))
        was = before.selectExpr(*quoted(self.key), "TRUE AS _was")
        # The deletion of a row that never existed is not written.
        return TableChanges(
            changes=rows.join(was, on=list(self.key), how="left").where("NOT _deleted OR _was").drop("_was")
        )
