"""A join of a stream with a table along the total order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kappa.operators.bound import RowsOperator, cuts_along, declared_as, emission
from kappa.operators.frames import check_rows
from kappa.operators.joins.join_columns import JoinColumns, JoinKey, join_columns
from kappa.operators.joins.lookup import last_rows, newest_before, own_columns_of_record
from kappa.topology import Slice, Table
from kappa.topology.ddl import ddl_of
from kappa.topology.emission import strictest
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import Reads, rows_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "newest_table_join"


@declared_as("newest_table_join(orders, products, key='sku', table='products')")
def newest_table_join(
    left: Reads,
    changes: Reads,
    *,
    key: JoinKey,
    table: str,
    how: Literal["inner", "left"] = "left",
    left_rows: str = "",
    table_rows: str = "",
) -> RowsOperator[NewestTableJoined]:
    """Rows of a stream with the newest row of a table before them in the total order (Kafka Streams: ``KStream.join``
    with a ``KTable``).

    A row is emitted in its own slice, and also sees the table's rows of that slice that are before it. Neither side
    needs event time: nothing waits, and nothing is late. Kafka Streams chooses between both topics by the timestamps of
    the records that it has fetched.

    Columns: those of the left side, then those of the table without its key; a column of the table whose name the left
    side also has ends in ``_right``. The columns of the left record stay.

    A left row with a null key has no partner: ``left`` keeps it, ``inner`` drops it. A row of the table without a key
    is ignored. A null value of a source with ``tombstones=True`` deletes its key, and so does a row whose ``_deleted``
    is true. If one record has several rows, the last in order of their values counts. A left row that deletes a key
    is refused.

    State: the table, with the newest row of each key until it is deleted. Class: time cut; an output ``of`` its rows
    has that class.

    Args:
        left: the source of the left rows, or another operator's emission.
        changes: the source of the table's changes, or another operator's emission.
        key: column or columns that both sides have, or left column -> table's column.
        table: the name of the table.
        how: ``left`` keeps rows without a partner.
        left_rows: Spark DDL of the left rows, with what the step adds to them; empty for all columns of the input.
        table_rows: the same for the table's rows, key included.

    Raises:
        TopologyError: a column or ``how`` does not fit.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import newest_table_join
        >>> orders = Source(topic="orders", schema="id STRING, sku STRING")
        >>> products = Source(topic="products", schema="sku STRING, name STRING")
        >>> with_names = newest_table_join(orders, products, key="sku", table="products")
        >>> with_names.schema
        '`id` STRING, `sku` STRING, `name` STRING'
    """
    what = label(_NAME, table)
    lefts = rows_input(left, what, rows=left_rows, is_timed=False)
    of_table = rows_input(changes, what, rows=table_rows, is_timed=False, is_stream=False)
    columns = join_columns(
        what=_NAME, left=lefts.rows, right=of_table.rows, key=key, how=how, allowed=("inner", "left"), of_streams=True
    )
    join = NewestTableJoin(columns=columns)
    cuts = strictest(["time", cuts_along(lefts, of_table), of_table.cuts])

    def compute(slice: Slice, rows: tuple[DataFrame, ...]) -> Outcome[NewestTableJoined]:
        result = join(*rows, before=slice.table(table))
        return Outcome(result=result, changes=(result.changes,), emitted="rows")

    return RowsOperator(
        name=_NAME,
        inputs=(lefts, of_table),
        tables=(replace(join.table(table), cuts=strictest(["time", cuts_along(of_table)])),),
        compute=compute,
        emits=emission(what, join.schema, lefts, is_timed=lefts.is_timed, cuts=cuts),
    )


@dataclass(frozen=True, kw_only=True)
class NewestTableJoined:
    """The result of a join with the newest rows of a table for a slice.

    Attributes:
        rows: left rows with the table's rows before them.
        changes: rows of the table; rows to delete have ``_deleted``.
    """

    rows: DataFrame
    changes: DataFrame


@dataclass(frozen=True, kw_only=True)
class NewestTableJoin:
    """A join with the newest rows of a table, before it is bound; :func:`newest_table_join` makes it.

    Attributes:
        columns: columns of both sides and of the joined rows.
    """

    columns: JoinColumns

    @property
    def schema(self) -> str:
        """DDL of the emitted rows."""
        return ddl_of(self.columns.joined)

    def table(self, name: str) -> Table:
        """The newest row of each key: the KTable itself."""
        return Table(
            name=name, key=self.columns.right_key, schema=ddl_of(self.columns.right), made_by=self._made_by, cuts="time"
        )

    def __call__(self, left: DataFrame, table: DataFrame, *, before: DataFrame) -> NewestTableJoined:
        """Join the left rows of a slice with the table.

        Args:
            left: rows with the left columns and the order columns.
            table: rows of the table's source, with its columns and the order columns, and ``_deleted`` for keys to
                delete.
            before: the table before the slice.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        check_rows(left, self.columns.left, _NAME)
        check_rows(table, self.columns.right, _NAME)
        key, columns = self.columns.right_key, [column.name for column in self.columns.right]
        keys = dict(zip(self.columns.left_key, key, strict=True))
        read = newest_before(left, before, table, keys=keys, columns=columns)
        pairs = read.where("r IS NOT NULL") if self.columns.how == "inner" else read
        return NewestTableJoined(
            rows=pairs.selectExpr(*self.columns.of_pair, *own_columns_of_record(left)),
            changes=last_rows(table, self.columns),
        )

    @property
    def _made_by(self) -> str:
        keys = ", ".join(self.columns.right_key)
        return f"{_NAME}(key=({keys}))"
