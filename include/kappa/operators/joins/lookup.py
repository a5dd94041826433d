"""A join of a stream with a small table, of which every executor has a whole copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.bound import RowsOperator, TableOperator, cuts_along, declared_as, emission
from kappa.operators.frames import check_rows
from kappa.operators.joins.join_columns import JoinColumns, JoinKey, join_columns
from kappa.operators.keys import by_content, is_present
from kappa.operators.records import is_deleted, last_of_records
from kappa.operators.running_total import RunningTotalOperator
from kappa.topology import ORDER, Slice, Table
from kappa.topology.ddl import ddl_of, quote, quoted
from kappa.topology.emission import strictest
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import Reads, RowsInput, rows_input
from kappa.topology.reserved import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "lookup"


@dataclass(frozen=True, kw_only=True)
class LookedUp:
    """The result of :func:`lookup` for a slice.

    Attributes:
        rows: the rows of the stream with those of the table.
        changes: rows of the table, at most one per key, with ``_deleted``; None if another operator keeps it.
    """

    rows: DataFrame
    changes: DataFrame | None


@declared_as("lookup(orders, products, key='sku', table='products')")
def lookup(
    left: Reads,
    changes: Reads | RunningTotalOperator,
    *,
    key: JoinKey,
    table: str | None = None,
    how: Literal["inner", "left"] = "left",
    left_rows: str = "",
    table_rows: str = "",
) -> RowsOperator[LookedUp]:
    """Rows of a stream with those of a small table (Kafka Streams: ``KStream.join`` with a ``GlobalKTable``).

    The table goes to every executor, so that the stream is not shuffled: some megabytes at most. Otherwise it is
    :func:`kappa.operators.newest_table_join`: a row sees the table's newest row before it in the total order, also
    within the slice; if one record has several rows, the last in order of their values.

        products = lookup(orders, products, key="sku", table="products")
        passes = running_total(captchas, key="browser", total="passes", table="passes")
        acted = lookup(logs, passes, key="browser")

    Columns: those of the left side, then those of the table without its key; a column of the table whose name the left
    side also has ends in ``_right``. The columns of the left record stay.

    A left row with a null key has no partner: ``left`` keeps it, ``inner`` drops it. A row of the table without a key
    is ignored. A null value of a source with ``tombstones=True`` deletes its key, and so does a row whose ``_deleted``
    is true. A left row that deletes a key is refused.

    State: the table, with the newest row of each key until it is deleted; none if the table belongs to a
    :func:`kappa.operators.running_total`. Class: time cut; an output ``of`` its rows has that class.

    Args:
        left: the source of the rows, or another operator's emission.
        changes: the source of the table's changes, or another operator's emission; or a running total that keeps the
            table.
        key: column or columns that both have, or left column -> table's column.
        table: the name of the table; None if a running total keeps it.
        how: ``left`` keeps rows without a partner.
        left_rows: Spark DDL of the left rows, with what the step adds to them; empty for all columns of the input.
        table_rows: the same for the table's rows, key included.

    Raises:
        TopologyError: a column or ``how`` does not fit, or ``table`` does not.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import lookup
        >>> orders = Source(topic="orders", schema="id STRING, sku STRING")
        >>> products = Source(topic="products", schema="name STRING", key_schema="sku STRING", tombstones=True)
        >>> lookup(orders, products, key="sku", table="products").schema
        '`id` STRING, `sku` STRING, `name` STRING'
    """
    of_other = isinstance(changes, RunningTotalOperator)
    name = _name_of_table(changes, table, table_rows)
    what = label(_NAME, name)
    lefts = rows_input(left, what, rows=left_rows, is_timed=False)
    of_table = _table_rows(changes, what, table_rows)
    columns = join_columns(
        what=_NAME, left=lefts.rows, right=of_table.rows, key=key, how=how, allowed=("inner", "left"), of_streams=True
    )
    _check_key_of(changes, columns, what)
    looked_up = Lookup(columns=columns)
    cuts = strictest(["time", cuts_along(lefts, of_table), of_table.cuts])

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[LookedUp]:
        rows, of_slice = frames
        if of_other:
            totals = last_of_records(of_slice, key=columns.right_key)
            result = LookedUp(rows=looked_up(rows, totals, before=slice.table(name)), changes=None)
            return Outcome(result=result, changes=(), emitted="rows")
        joined, table_changes = looked_up(rows, of_slice, before=slice.table(name)), last_rows(of_slice, columns)
        return Outcome(result=LookedUp(rows=joined, changes=table_changes), changes=(table_changes,), emitted="rows")

    return RowsOperator(
        name=_NAME,
        inputs=(lefts, of_table),
        tables=() if of_other else (replace(looked_up.table(name), cuts=strictest(["time", cuts_along(of_table)])),),
        compute=compute,
        emits=emission(what, ddl_of(columns.joined), lefts, is_timed=lefts.is_timed, cuts=cuts),
    )


def _name_of_table(changes: Reads | RunningTotalOperator, table: str | None, rows: str) -> str:
    """The name of the table to read.

    Raises:
        TopologyError: it is given although another operator keeps the table, or it is missing.
    """
    if isinstance(changes, RunningTotalOperator):
        if table is not None or rows:
            raise TopologyError(
                f"lookup reads the table of {changes.what} and has table={table!r}, table_rows={rows!r}. Omit them: "
                "that operator keeps the table."
            )
        return changes.tables[0].name
    if isinstance(changes, TableOperator | Table):
        shown = changes.what if isinstance(changes, TableOperator) else f"table {changes.name!r}"
        raise TopologyError(
            f"lookup is declared with {shown}, which has only the newest rows of each slice: a row could not see "
            "changes before it in its slice. Declare it with the input of that table, lookup(orders, products, "
            "key='sku', table='products'), with the versions of a cdc_table, or with a running_total."
        )
    if table is None:
        raise TopologyError("lookup keeps a table of its input and has no name for it. Name it: table='products'.")
    return table


def _table_rows(changes: Reads | RunningTotalOperator, what: str, rows: str) -> RowsInput:
    """The rows of the table, as an input."""
    if not isinstance(changes, RunningTotalOperator):
        return rows_input(changes, what, rows=rows, is_timed=False, is_stream=False)
    of_totals = rows_input(changes.rows, what, rows=changes.schema, is_timed=False)
    return replace(of_totals, is_shaped=False, is_whole=True)


def _check_key_of(changes: Reads | RunningTotalOperator, columns: JoinColumns, what: str) -> None:
    """Check that the whole key of another operator's table is compared: it has one row for each value of that key.

    Raises:
        TopologyError: other columns are compared.
    """
    if isinstance(changes, RunningTotalOperator) and set(columns.right_key) != set(changes.tables[0].key):
        raise TopologyError(
            f"{what} compares {list(columns.right_key)} and reads the table of {changes.what}, whose key is "
            f"{list(changes.tables[0].key)}. Compare all of its key."
        )


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The computation of :func:`lookup`, before it is bound.

    Attributes:
        columns: columns of both sides and of the joined rows.
    """

    columns: JoinColumns

    def table(self, name: str) -> Table:
        """The newest row of each key."""
        made_by = f"{_NAME}(key=({', '.join(self.columns.right_key)}))"
        key, schema = self.columns.right_key, ddl_of(self.columns.right)
        return Table(name=name, key=key, schema=schema, made_by=made_by, cuts="time")

    def __call__(self, rows: DataFrame, changes: DataFrame, *, before: DataFrame) -> DataFrame:
        """The rows of a slice with those of the table.

        Args:
            rows: the rows, with the order columns.
            changes: rows of the table's source, with its columns and the order columns; a true ``_deleted`` deletes
                its key.
            before: the table before the slice.

        Raises:
            TopologyError: a column is missing or of another type.
        """
        from pyspark.sql import functions as F

        columns, of_pair = self.columns, [*self.columns.of_pair, *own_columns_of_record(rows)]
        check_rows(rows, columns.left, _NAME)
        check_rows(changes, columns.right, _NAME)
        names, on_key = [column.name for column in columns.right], F.expr(columns.is_equal)
        table = before.selectExpr(*quoted(names))
        # Rows that no change of the slice touches are read as they are; the rest in order, with the changes.
        moving = F.broadcast(changes.where(is_present(columns.right_key)).select(*quoted(columns.right_key)).distinct())
        still = rows.alias("l").join(moving.alias("r"), on_key, "left_anti")
        moving_rows = newest_before(
            rows.alias("l").join(moving.alias("r"), on_key, "left_semi"),
            table.join(moving, on=list(columns.right_key), how="left_semi"),
            changes,
            keys=dict(zip(columns.left_key, columns.right_key, strict=True)),
            columns=names,
        )
        with_table = moving_rows if columns.how == "left" else moving_rows.where("r IS NOT NULL")
        plain = still.alias("l").join(F.broadcast(table).alias("r"), on_key, columns.how)
        return plain.selectExpr(*of_pair).unionByName(with_table.selectExpr(*of_pair))


def own_columns_of_record(rows: DataFrame) -> list[str]:
    """SQL of the record's columns, of rows ``l``."""
    return [f"l.{quote(name)}" for name in rows.columns if is_reserved(name)]


def last_rows(changes: DataFrame, columns: JoinColumns) -> DataFrame:
    """The last row per key of a table's source, in the order that a row of the stream sees."""
    key = columns.right_key
    values = by_content({column.name: column.delta for column in columns.right})
    order = ", ".join([*ORDER, "_deleted", *values])
    is_last = f"LEAD(TRUE) OVER (PARTITION BY {', '.join(quoted(key))} ORDER BY {order}) IS NULL AS _is_last"
    names = quoted(column.name for column in columns.right)
    new = changes.where(is_present(key)).selectExpr(*names, *ORDER, f"{is_deleted(changes)} AS _deleted")
    return new.selectExpr("*", is_last).where("_is_last").select(*names, "_deleted")


def newest_before(
    left: DataFrame, table: DataFrame, changes: DataFrame, *, keys: Mapping[str, str], columns: Sequence[str]
) -> DataFrame:
    """Rows with the newest row of a table before them in the total order.

    A key's rows are read once, in that order.

    Args:
        left: the rows, with the order columns.
        table: the table's rows before the slice.
        changes: the changes of the slice, with the order columns; a true ``_deleted`` deletes its key.
        keys: columns that are compared: name on the left -> name in the table.
        columns: columns of the table that are kept.

    Returns:
        Structs ``l``, the row, and ``r``, the row of the table, or null if there is none.
    """
    names = [f"_key_{number}" for number in range(len(keys))]
    of_left, of_right = (
        [f"{quote(name)} AS {key}" for name, key in zip(side, names, strict=True)] for side in (keys, keys.values())
    )
    values = ", ".join(quoted(columns))
    rows = left.selectExpr(*of_left, f"{origin.OF_ROW} AS _at", "0 AS _turn", "STRUCT(*) AS l")
    old = table.selectExpr(*of_right, "NULL AS _at", "1 AS _turn", f"STRUCT(FALSE AS _is_gone, {values}) AS r")
    new = changes.where(is_present(tuple(keys.values()))).selectExpr(
        *of_right, f"{origin.OF_ROW} AS _at", "1 AS _turn", f"STRUCT({is_deleted(changes)} AS _is_gone, {values}) AS r"
    )
    both = old.unionByName(new).unionByName(rows, allowMissingColumns=True)
    # A row does not see changes by its own record.
    kinds = {name: table.schema[name].dataType.jsonValue() for name in columns}
    order = ["_at", "_turn", "r._is_gone", *by_content(kinds, of="r.")]
    last = (
        f"LAST(r, TRUE) OVER (PARTITION BY {', '.join(names)} ORDER BY {', '.join(order)} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    read = both.selectExpr("l", "_turn", f"{last} AS r").where("_turn = 0")
    return read.selectExpr("l", "IF(r._is_gone, NULL, r) AS r")
