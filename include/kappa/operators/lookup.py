"""A stream with the rows of a small table, which every executor has whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Literal

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.join_columns import JoinKey, is_equal, right_names, sides_of
from kappa.operators.keys import by_content, is_present
from kappa.operators.records import is_deleted
from kappa.topology.ddl import quote, quoted
from kappa.topology.reserved import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def lookup(
    df: DataFrame,
    table: DataFrame,
    *,
    on: JoinKey,
    how: Literal["inner", "left"] = "left",
    changes: DataFrame | EllipsisType | None = ...,
) -> DataFrame:
    """The rows of ``df`` with those of a small table (Kafka Streams: ``KStream.join`` with a ``GlobalKTable``).

    The table goes to every executor, so that ``df`` is not shuffled. With ``changes``, a row sees the table's newest
    row before it in the total order, within the slice too; of several of one record, the last in order of their values.
    Rows whose key changes within the slice are then sorted with the changes. With ``changes=None`` every row of a slice
    sees the table as it is given: right for a table that never changes. Of one that the stream fills, the rows of the
    slice itself would not be seen, and in the first slice of a replay none.

    Columns: all of ``df``, then those of the table but for its key and for names that begin with ``_``; one of a name
    that ``df`` has too ends in ``_right``. A row of ``df`` whose key is null finds nothing; with ``left`` it stays.

    No state of its own; the table is one of the topology, or made in the step. Class: time cut with ``changes``;
    with None any cut where the table never changes, else cut-bound.

    Args:
        df: the rows; with the order columns where ``changes`` are given.
        table: at most one row a key: ``slice.table(...)``, some megabytes at most.
        on: column or columns that both have, or column of ``df`` -> table's column.
        how: ``left`` keeps rows that find nothing.
        changes: rows of the table's source in this slice, with the table's columns and the order columns; a true
            ``_deleted`` deletes its key. None where the table never changes. It has to be said.

    Raises:
        TopologyError: a column is missing, comes out twice, ``how`` is not one of those, or ``changes`` is not given.

    Examples:
        >>> from kappa.operators import lookup
        >>> orders = spark.sql("SELECT 'o1' AS id, 'x' AS sku")
        >>> lookup(orders, spark.sql("SELECT 'x' AS sku, 'Lamp' AS name"), on="sku", changes=None).collect()
        [Row(id='o1', sku='x', name='Lamp')]
    """

    from pyspark.sql import functions as F

    if how not in ("inner", "left"):
        raise TopologyError(f"lookup: how={how!r} is not one of inner, left.", how=how)
    mine, other = sides_of(on)
    for name, known in [*((name, df.columns) for name in mine), *((name, table.columns) for name in other)]:
        if name not in known:
            raise TopologyError(f"lookup: there is no column {name!r} among {known}. Correct on=.", column=name)
    columns = [name for name in table.columns if not is_reserved(name)]
    if changes is ...:
        raise TopologyError(
            "lookup: changes= is not given. A row would not see what its own slice brings into the table, and in the "
            "first slice of a replay nothing. Give the rows of the table's source, changes=slice['products'], or say "
            "that the table never changes: changes=None."
        )
    named = right_names("lookup", df.columns, [name for name in columns if name not in other])
    right = F.broadcast(table.selectExpr(*quoted(columns))).alias("r")
    chosen = ["l.*", *(f"r.{quote(name)} AS {quote(shown)}" for name, shown in named.items())]
    on_key = F.expr(is_equal(mine, other))
    if changes is None:
        return df.alias("l").join(right, on_key, how).selectExpr(*chosen)
    # What no change of the slice touches is read as it lies; the rest in order, with the changes.
    moving = F.broadcast(changes.where(is_present(other)).select(*map(quote, other)).distinct()).alias("m")
    of_change = F.expr(is_equal(mine, other).replace("r.", "m."))
    still = df.alias("l").join(moving, of_change, "left_anti")
    seen = newest_before(
        df.alias("l").join(moving, of_change, "left_semi"),
        table.join(moving, on=list(other), how="left_semi"),
        changes,
        keys=dict(zip(mine, other, strict=True)),
        columns=columns,
    )
    found = seen if how == "left" else seen.where("r IS NOT NULL")
    return still.alias("l").join(right, on_key, how).selectExpr(*chosen).unionByName(found.selectExpr(*chosen))


def newest_before(
    left: DataFrame, table: DataFrame, changes: DataFrame, *, keys: Mapping[str, str], columns: Sequence[str]
) -> DataFrame:
    """Rows with the newest row of a table before them in the total order.

    A key's rows are read once, in that order.

    Args:
        left: the rows, with the order columns.
        table: the table's rows before the slice.
        changes: those that the slice brings, with the order columns; a true ``_deleted`` deletes its key.
        keys: columns that are compared: name on the left -> name in the table.
        columns: columns of the table that are kept.

    Returns:
        Structs ``l``, the row, and ``r``, that of the table; null where there is none.
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
    # A row does not see what its own record brings.
    kinds = {name: table.schema[name].dataType.jsonValue() for name in columns}
    order = ["_at", "_turn", "r._is_gone", *by_content(kinds, of="r.")]
    last = (
        f"LAST(r, TRUE) OVER (PARTITION BY {', '.join(names)} ORDER BY {', '.join(order)} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    read = both.selectExpr("l", "_turn", f"{last} AS r").where("_turn = 0")
    return read.selectExpr("l", "IF(r._is_gone, NULL, r) AS r")
