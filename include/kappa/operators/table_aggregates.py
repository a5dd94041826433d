"""Aggregates of the rows of a table: an update removes its old row and adds its new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kappa.errors import TopologyError
from kappa.operators import agg
from kappa.operators.agg import Aggregate, Part
from kappa.operators.aggregates import Aggregated, keys_of, made_by, parts_beside, table_of
from kappa.operators.bound import TableOperator, declared_as, table_input
from kappa.operators.frames import check_rows
from kappa.operators.keys import Key, quoted_names, with_key
from kappa.operators.records import is_deleted
from kappa.topology import Slice, Table
from kappa.topology.ddl import Column, quoted
from kappa.topology.operator import Outcome, label

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Number of rows of a group; a group without rows leaves the table.
_MEMBERS = Part(name="_members", type="BIGINT", of_row="1L", of_parts="COALESCE(SUM(_members), 0L)", undone="-1L")


@declared_as("aggregate_table(people, key='city', aggregates={'people': agg.count()}, table='cities')")
def aggregate_table(
    of: TableOperator[Any] | Table, *, key: Key, aggregates: Mapping[str, Aggregate], table: str, rows: str = ""
) -> TableOperator[Aggregated]:
    """Aggregates of a table's rows by any of its columns (Kafka Streams: ``KTable.groupBy().aggregate(adder,
    subtractor)``).

        songs = aggregate(plays, key=["song", "genre"], aggregates={"plays": agg.count()}, table="songs")
        best = {"best": agg.top("song", 5, by="plays")}
        charts = aggregate_table(songs, key="genre", aggregates=best, table="charts")

    ``count``, ``sum`` and ``avg`` are updated by the changes: the old row of a key is subtracted and its new row is
    added, in another group if it moved there. With ``min``, ``max``, ``distinct`` or ``top`` nothing can be subtracted,
    and changed groups are computed from all rows of the table, which each slice then reads. A group without rows leaves
    the table. A row with a null in ``key`` is in no group.

    Columns of the table: ``key`` and the aggregates. Internal columns hold what those need to merge, and ``_members
    BIGINT``, the number of rows of the group. State: one row per group that has rows. Class: that of the aggregated
    table.

    Args:
        of: the operator that keeps the table, or a table of the topology, whose changes the step passes.
        key: column or columns to group by.
        table: the name of the table of groups.
        rows: Spark DDL of the columns of the table that matter here; empty for all.
        aggregates: aggregates by the name of their column. ``first``, ``last`` and ``collect`` are refused: rows of a
            table have no place in the total order.

    Raises:
        TopologyError: a key, a name or an aggregate does not fit.

    Examples:
        >>> from kappa import Slice, Table
        >>> from kappa.operators import agg, aggregate_table
        >>> people = Table(name="people", key="id", schema="id STRING NOT NULL, city STRING")
        >>> cities = aggregate_table(people, key="city", aggregates={"n": agg.count()}, table="cities")
        >>> before = spark.sql("SELECT 'Pune' AS city, 3L AS n, 3L AS _members")
        >>> tables = {"people": spark.sql("SELECT 'ada' AS id, 'Pune' AS city"), "cities": before}
        >>> moved = spark.sql("SELECT 'ada' AS id, 'Kochi' AS city")
        >>> changes = cities(Slice(seq=1, records={}, tables=tables), moved).changes
        >>> changes.select("city", "n").orderBy("city").collect()
        [Row(city='Kochi', n=1), Row(city='Pune', n=2)]
    """
    read_table = table_input(of, label("aggregate_table", table), rows)
    groups = _aggregate_table(read_table.rows, read_table.table.key, key, aggregates)

    def compute(slice: Slice, changes: tuple[DataFrame, ...]) -> Outcome[Aggregated]:
        earlier_rows = slice.table(read_table.table.name)
        result = groups(changes[0], rows=earlier_rows, before=slice.table(table), seeks=slice.seeks(table))
        return Outcome(result=result, changes=(result.changes,))

    return TableOperator(
        name="aggregate_table",
        inputs=(read_table,),
        tables=(groups.table(table),),
        compute=compute,
        revision=agg.revision(groups.parts),
    )


def _aggregate_table(rows: str, of: Key, key: Key, aggregates: Mapping[str, Aggregate]) -> TableAggregates:
    what = "aggregate_table"
    ordered = [f"{name}={aggregate.text}" for name, aggregate in aggregates.items() if aggregate.is_ordered]
    if ordered:
        raise TopologyError(
            f"{what}: {ordered} follow the total order, in which rows of a table have no place. Aggregate the stream, "
            "or name agg.min, agg.max or agg.top of a column of the table."
        )
    keys = keys_of(rows, key, what)
    parts = parts_beside(aggregates, rows=rows, what=what, keys=keys)
    return TableAggregates(
        keys=keys,
        of=keys_of(rows, of, what),
        parts=(*parts, _MEMBERS),
        reads=agg.read_columns(aggregates, rows=rows, what=what),
        made_by=made_by(what, keys, aggregates, parts),
    )


@dataclass(frozen=True, kw_only=True)
class TableAggregates:
    """The computation of :func:`aggregate_table`, before it is bound.

    Attributes:
        keys: columns to group by.
        of: key columns of the aggregated table.
        parts: columns of the aggregates.
        reads: columns that the aggregates read.
        made_by: the operator with its parameters.
    """

    keys: tuple[Column, ...]
    of: tuple[Column, ...]
    parts: tuple[Part, ...]
    reads: tuple[Column, ...]
    made_by: str

    @property
    def is_subtracted(self) -> bool:
        """Whether old rows can be subtracted; otherwise changed groups are computed from all their rows."""
        return all(part.undone for part in self.parts if part.of_parts)

    def table(self, name: str) -> Table:
        """The aggregates as a table of that name."""
        return table_of(name, self.keys, self.parts, self.made_by)

    def __call__(self, changes: DataFrame, *, rows: DataFrame, before: DataFrame, seeks: bool = False) -> Aggregated:
        """The groups that changes of a table change.

        Args:
            changes: the slice's changes of the aggregated table, at most one per key; a true ``_deleted`` removes its
                key.
            rows: that table's rows before the slice.
            before: the table of this operator before the slice.
            seeks: whether groups are sought in that, see :meth:`kappa.topology.Slice.seeks`.

        Raises:
            TopologyError: a column of the changes or the rows is missing or of another type.
        """
        for frame in (changes, rows):
            check_rows(frame, (*self.of, *self.keys, *self.reads), "aggregate_table")
        of = [column.name for column in self.of]
        new = changes.where(f"NOT {is_deleted(changes)}")
        # The changes are hashed, since they are usually smaller than the table: Spark would sort both.
        moved = changes.selectExpr(*quoted(of), "TRUE AS _moved").hint("shuffle_hash")
        names = quoted_names(self.keys)
        group = [column.name for column in self.keys]
        added = agg.lifted(with_key(new, self.keys), names, self.parts)
        if self.is_subtracted:
            old = with_key(rows.join(moved, on=of, how="left_semi"), self.keys)
            fresh = added.union(agg.lifted(old, names, self.parts, undo=True))
            whole = agg.merged(fresh, before, group, self.parts, also="FALSE", seeks=seeks)
        else:
            marked = with_key(rows.join(moved, on=of, how="left"), self.keys)
            whole = agg.merged(added.union(self._groups(marked)), self._stay(marked), group, self.parts)
        columns = [*names, *quoted(part.name for part in self.parts), "_members = 0 AS _deleted"]
        return Aggregated(changes=whole.where(agg.CHANGED).selectExpr(*columns))

    def _groups(self, marked: DataFrame) -> DataFrame:
        """The groups of rows that changed."""
        nothing = [f"CAST(NULL AS {part.type})" for part in self.parts if part.of_parts]
        return marked.where("_moved").selectExpr(*quoted_names(self.keys), *nothing)

    def _stay(self, marked: DataFrame) -> DataFrame:
        """Rows that did not change."""
        return agg.lifted(marked.where("_moved IS NULL"), quoted_names(self.keys), self.parts)
