"""Aggregates in two phases: for each partition, then for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators import agg
from kappa.operators.agg import Aggregate, Part
from kappa.operators.aggregates import changed, keys_of, made_by, parts_beside, table_of
from kappa.operators.bound import TableOperator, declared_as
from kappa.operators.frames import check_rows
from kappa.operators.keys import Key, quoted_names, with_key
from kappa.topology import Slice, Table
from kappa.topology.ddl import Column
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import Reads, rows_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PART = Column(name="part", type="INT", nullable=False, delta="integer")


@declared_as("two_phase(sales, key='city', aggregates={'sales': agg.count()}, table='revenue')")
def two_phase(
    of: Reads,
    *,
    key: Key,
    aggregates: Mapping[str, Aggregate],
    table: str,
    parts: str | None = None,
    salts: int | None = None,
    rows: str = "",
) -> TableOperator[BothPhases]:
    """Aggregates per key, first over its rows in each partition, then over all (for a key that is hot, or the only
    one).

    The result equals that of :func:`kappa.operators.aggregate`; both phases continue from slice to slice with the rows
    that a slice adds. With few keys, one task would otherwise merge everything that ``distinct``, ``top`` and
    ``collect`` gather.

    Columns of the tables: the key, in the first phase's table ``part INT`` (the partition or the salt), and the
    aggregates; internal columns hold what those need to merge. Null keys, order and class are those of
    :func:`kappa.operators.aggregate`. State: one row per key for ever, and one per key and part if that table is kept;
    the result does not need it.

    Args:
        of: the source, or another operator's emission.
        key: column or columns.
        aggregates: aggregates by the name of their column.
        table: the name of the table of results.
        parts: the name of the first phase's table; None if it is not kept.
        salts: number of parts into which the first phase divides the rows of a key, by their place in the log; None for
            their partitions.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: a key, a name or an aggregate does not fit, or there are fewer than two salts.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import agg, two_phase
        >>> sales = Source(topic="sales", schema="city STRING, amount BIGINT")
        >>> total = {"total": agg.sum("amount")}
        >>> revenue = two_phase(sales, key="city", aggregates=total, table="revenue", parts="revenue_parts")
        >>> revenue.tables[1].schema
        '`city` STRING NOT NULL, `part` INT NOT NULL, `total` BIGINT'
    """
    names = (table,) if parts is None else (table, parts)
    read_rows = rows_input(of, label("two_phase", *names), rows=rows, is_timed=False)
    phases = _two_phase(read_rows.rows, key, aggregates, salts)

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[BothPhases]:
        parts_before = None if parts is None else slice.table(parts)
        result = phases(frames[0], before=slice.table(table), parts=parts_before, seeks=slice.seeks(*names))
        return Outcome(result=result, changes=(result.changes, *(() if result.parts is None else (result.parts,))))

    return TableOperator(
        name="two_phase",
        inputs=(read_rows,),
        tables=(phases.table(table), *(() if parts is None else (phases.parts_table(parts),))),
        compute=compute,
        revision=agg.revision(phases.columns),
    )


def _two_phase(rows: str, key: Key, aggregates: Mapping[str, Aggregate], salts: int | None) -> TwoPhaseAggregates:
    if salts is not None and not 2 <= salts < 2**31:
        raise TopologyError(
            f"two_phase: salts={salts} is not a number of parts. Use at least 2, less than 2**31, or None for the "
            "partitions."
        )
    keys = keys_of(rows, key, "two_phase")
    if _PART.name in {column.name.lower() for column in keys} | {name.lower() for name in aggregates}:
        raise TopologyError(
            "two_phase: 'part' is a column that the operator uses. Give the key or the aggregate another name."
        )
    parts = parts_beside(aggregates, rows=rows, what="two_phase", keys=keys)
    return TwoPhaseAggregates(
        keys=keys,
        columns=parts,
        reads=agg.read_columns(aggregates, rows=rows, what="two_phase"),
        salts=salts,
        made_by=f"{made_by('two_phase', keys, aggregates, parts)}, salts={salts}",
    )


@dataclass(frozen=True, kw_only=True)
class BothPhases:
    """The result of two phases for a slice.

    Attributes:
        changes: rows of the result, at most one per key.
        parts: rows of the first phase's table, at most one per key and part; None if that table is not kept.
    """

    changes: DataFrame
    parts: DataFrame | None


@dataclass(frozen=True, kw_only=True)
class TwoPhaseAggregates:
    """The computation of :func:`two_phase`, before it is bound.

    Attributes:
        keys: key columns.
        columns: columns of the aggregates.
        reads: columns that the aggregates read.
        salts: number of parts into which the rows of a key are divided; None for their partitions.
        made_by: the operator with its parameters.
    """

    keys: tuple[Column, ...]
    columns: tuple[Part, ...]
    reads: tuple[Column, ...]
    salts: int | None
    made_by: str

    def table(self, name: str) -> Table:
        """The result as a table of that name."""
        return table_of(name, self.keys, self.columns, self.made_by)

    def parts_table(self, name: str) -> Table:
        """The state of the first phase, as a table of that name. It is optional."""
        return table_of(name, (*self.keys, _PART), self.columns, f"{self.made_by} parts")

    def __call__(
        self, rows: DataFrame, *, before: DataFrame, parts: DataFrame | None = None, seeks: bool = False
    ) -> BothPhases:
        """The keys that a slice changes.

        Args:
            rows: its rows, with the order columns.
            before: the table of the result before the slice.
            parts: the table of the first phase; None if it is not kept.
            seeks: whether its keys are sought in them, see :meth:`kappa.topology.Slice.seeks`.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        check_rows(rows, (*self.keys, *self.reads), "two_phase")
        salt = f"CAST(PMOD(XXHASH64(_topic, _partition, _offset), {self.salts}) AS INT)"
        part = "_partition" if self.salts is None else salt
        names, within = quoted_names(self.keys), (*self.keys, _PART)
        rows_as_parts = agg.lifted(with_key(rows, self.keys), [*names, f"{part} AS part"], self.columns)
        first = agg.merged(rows_as_parts, None, [column.name for column in within], self.columns)
        return BothPhases(
            changes=changed(first, before, self.keys, self.columns, seeks=seeks).changes,
            parts=None if parts is None else changed(first, parts, within, self.columns, seeks=seeks).changes,
        )
