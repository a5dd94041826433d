"""The newest row of each key, even if the records of a key lie in several partitions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from kappa.operators import origin
from kappa.operators.bound import TableOperator, declared_as
from kappa.operators.frames import check_rows
from kappa.operators.keys import Key, key_columns, key_ddl, of_keys
from kappa.operators.records import is_deleted, last_of_each
from kappa.operators.sequence import content as content_of
from kappa.topology import ORDER, Slice, Table
from kappa.topology.ddl import Column, columns_of, ddl_of, quote, quoted
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import Reads, rows_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Where the records of one key may lie.
Scope = Literal["partition", "all"]


@dataclass(frozen=True, kw_only=True)
class NewestRows:
    """The result of :class:`NewestBy` for a slice.

    Attributes:
        changes: rows of the table, at most one per key, with ``_deleted``.
        deletions: rows of the table of deleted keys, likewise; None unless ``scope`` is ``all``.
    """

    changes: DataFrame
    deletions: DataFrame | None


@dataclass(frozen=True, kw_only=True)
class NewestBy:
    """The computation of :func:`newest_by`, before it is bound.

    Attributes:
        rows: Spark DDL of the input rows.
        key: names of the key columns.
        scope: where the records of one key may lie.
    """

    rows: str
    key: tuple[str, ...]
    scope: Scope

    @property
    def row(self) -> str:
        """Spark DDL of the newest rows."""
        rest = ddl_of(column for column in self._columns if column.name not in self.key)
        return ", ".join([key_ddl(self._keys), *([rest] if rest else [])])

    def table(self, name: str) -> Table:
        """The table of the newest rows: their columns, and ``origin``, the place of each in the total order."""
        schema = f"{self.row}, {origin.ORIGIN} {origin.ORIGIN_TYPE}"
        return Table(name=name, key=self.key, schema=schema, made_by=self._made_by, internal=(origin.ORIGIN,))

    def deletions(self, name: str) -> Table:
        """The table of keys whose last row was a deletion, with its place."""
        schema = f"{key_ddl(self._keys)}, {origin.ORIGIN} {origin.ORIGIN_TYPE}"
        return Table(name=name, key=self.key, schema=schema, made_by=f"{self._made_by} deletions")

    def __call__(
        self,
        rows: DataFrame,
        *,
        before: DataFrame,
        deletions: DataFrame | None = None,
        seeks: bool = False,
        are_pairs: bool = False,
    ) -> NewestRows:
        """The changes that a slice makes.

        Args:
            rows: the rows with the order columns; a true ``_deleted``, or ``_tombstone`` without it, deletes its key.
            before: ``slice.table`` of :meth:`table`.
            deletions: ``slice.table`` of :meth:`deletions`.
            seeks: whether its keys are sought in them, see :meth:`kappa.topology.Slice.seeks`.
            are_pairs: whether rows of one record may come in several slices.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        check_rows(rows, self._columns, "newest_by")
        keys, names = quoted(self.key), quoted(column.name for column in self._columns)
        declared = rows.selectExpr(*names, *ORDER, f"{is_deleted(rows)} AS _deleted")
        last_rows = last_of_each(declared, key=self.key).selectExpr(
            *names, f"{origin.OF_ROW} AS {origin.ORIGIN}", "_deleted"
        )
        # Rows of one record are in one slice; pairs of one left row may be in several.
        content = content_of(before.select(*names)) if are_pairs or origin.order_of(rows) == "contributor" else []
        place = f"STRUCT({', '.join([origin.ORIGIN, *content])})"
        was = of_keys(before.selectExpr(*keys, f"{place} AS _known"), last_rows, self.key, seeks=seeks)
        candidates = last_rows.join(was, on=list(self.key), how="left")
        columns = [*names, origin.ORIGIN]
        if deletions is None:
            newer = candidates.where(f"_known IS NULL OR {place} > _known")
            return NewestRows(changes=_changed(newer, columns), deletions=None)
        deletion_places = of_keys(
            deletions.selectExpr(*keys, f"{origin.ORIGIN} AS _gone"), last_rows, self.key, seeks=seeks
        )
        newer = candidates.join(deletion_places, on=list(self.key), how="left").where(
            f"(_known IS NULL OR {place} > _known) AND (_gone IS NULL OR {origin.ORIGIN} > _gone)"
        )
        marks = newer.where("_deleted OR _gone IS NOT NULL").selectExpr(
            *keys, origin.ORIGIN, "NOT _deleted AS _deleted"
        )
        return NewestRows(changes=_changed(newer, columns), deletions=marks)

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        return columns_of(self.rows, "the rows of newest_by")

    @cached_property
    def _keys(self) -> tuple[Column, ...]:
        return key_columns(self.rows, self.key, "newest_by")

    @property
    def _made_by(self) -> str:
        return f"newest_by(key={','.join(map(quote, self.key))}, scope={self.scope})"


@declared_as("newest_by(orders, key='id', table='orders')")
def newest_by(
    of: Reads, *, key: Key, table: str, deletions: str | None = None, rows: str = ""
) -> TableOperator[NewestRows]:
    """The newest row of each key in the total order, remembered from slice to slice (a KTable).

    While :func:`kappa.operators.newest` considers one slice, this operator compares with the row in the table: a record
    of a lagging partition changes nothing if the table has a newer one of its key. A row with a null key has no history
    and is ignored. A null value of a source with ``tombstones=True`` deletes its key from the table, and so does a row
    whose ``_deleted`` is true; the deletion of an absent key changes nothing.

    State: each key's row, with the internal column ``origin``, until it is deleted. With ``deletions`` also the deleted
    keys, for ever: without them a record that is older than the deletion but arrives later would bring its key back.
    Class: any cut; if keys are deleted without ``deletions``, only if each key stays in one partition.

    Args:
        of: the source, or another operator's emission.
        key: column or columns.
        table: the name of its table.
        deletions: the name of a table of deleted keys, if records of a deleted key may lie in several partitions; None
            if they do not.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: the key is not among the rows.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import newest_by
        >>> orders = newest_by(Source(topic="orders", schema="id STRING, amount BIGINT"), key="id", table="orders")
        >>> [column.name for column in orders.tables[0].columns]
        ['id', 'amount', 'origin']
    """
    names = (table,) if deletions is None else (table, deletions)
    read_rows = rows_input(of, label("newest_by", *names), rows=rows, is_timed=False, is_stream=False)
    keys = tuple(column.name for column in key_columns(read_rows.rows, key, "newest_by"))
    are_pairs = read_rows.comes == "partner"
    newest = NewestBy(rows=read_rows.rows, key=keys, scope="partition" if deletions is None else "all")

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[NewestRows]:
        deleted = None if deletions is None else slice.table(deletions)
        result = newest(
            frames[0], before=slice.table(table), deletions=deleted, seeks=slice.seeks(*names), are_pairs=are_pairs
        )
        marks = () if result.deletions is None else (result.deletions,)
        return Outcome(result=result, changes=(result.changes, *marks))

    tables = (newest.table(table), *(() if deletions is None else (newest.deletions(deletions),)))
    # Revision 1 knew pairs of a join among several inputs only where they came first in the union.
    is_revised = are_pairs and len(read_rows.of) > 1
    return TableOperator(
        name="newest_by", inputs=(read_rows,), tables=tables, compute=compute, revision=2 if is_revised else 1
    )


def _changed(newer: DataFrame, columns: list[str]) -> DataFrame:
    """The newer rows as changes; the deletion of a key that the table does not have is not a change."""
    return newer.where("NOT _deleted OR _known IS NOT NULL").selectExpr(*columns, "_deleted")
