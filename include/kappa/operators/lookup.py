"""A stream with the rows of a small table, which every executor has whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.join_columns import JoinKey, is_equal, right_names, sides_of
from kappa.operators.keys import is_present
from kappa.operators.records import is_deleted
from kappa.topology import ORDER
from kappa.topology.ddl import quote, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AT_LEFT = f"STRUCT({', '.join(f'l.{name}' for name in ORDER)})"
#: SQL: whether row ``l`` sees span ``r``, which no later row of its key before ``l`` has ended.
IS_SEEN = f"(r._from IS NULL OR r._from < {_AT_LEFT}) AND (r._until IS NULL OR r._until >= {_AT_LEFT})"


def lookup(
    df: DataFrame,
    table: DataFrame,
    *,
    on: JoinKey,
    how: Literal["inner", "left"] = "left",
    changes: DataFrame | None = None,
) -> DataFrame:
    """The rows of ``df`` with those of a small table (Kafka Streams: ``KStream.join`` with a ``GlobalKTable``).

    The table goes to every executor, so that ``df`` is not shuffled. With ``changes``, a row sees the table's newest
    row before it in the total order, within the slice too. Without it every row of a slice sees the table as it is
    given.

    Columns: all of ``df``, then those of the table but for its key and for names that begin with ``_``; one of a name
    that ``df`` has too ends in ``_right``. A row of ``df`` whose key is null finds nothing; with ``left`` it stays.

    No state of its own; the table is one of the topology, or made in the step. Class: time cut with ``changes``;
    without it any cut where the table never changes, else cut-bound.

    Args:
        df: the rows; with the order columns where ``changes`` are given.
        table: at most one row a key: ``slice.table(...)``, some megabytes at most.
        on: column or columns that both have, or column of ``df`` -> table's column.
        how: ``left`` keeps rows that find nothing.
        changes: rows of the table's source in this slice, with the table's columns and the order columns; a true
            ``_deleted`` deletes its key.

    Raises:
        TopologyError: a column is missing, comes out twice, or ``how`` is not one of those.

    Examples:
        >>> from kappa.operators import lookup
        >>> orders = spark.sql("SELECT 'o1' AS id, 'x' AS sku")
        >>> lookup(orders, spark.sql("SELECT 'x' AS sku, 'Lamp' AS name"), on="sku").collect()
        [Row(id='o1', sku='x', name='Lamp')]
    """

    from pyspark.sql import functions as F

    if how not in ("inner", "left"):
        raise TopologyError(f"lookup: how={how!r} is not one of inner, left.", how=how)
    mine, other = sides_of(on)
    for name, known in [*((name, df.columns) for name in mine), *((name, table.columns) for name in other)]:
        if name not in known:
            raise TopologyError(f"lookup: there is no column {name!r} among {known}. Correct on=.", column=name)
    columns = [name for name in table.columns if not name.startswith("_")]
    named = right_names("lookup", df.columns, [name for name in columns if name not in other])
    condition = is_equal(mine, other)
    if changes is None:
        right = table.selectExpr(*quoted(columns))
    else:
        right = spans(table, changes, key=other, columns=columns)
        condition = f"{condition} AND {IS_SEEN}"
    joined = df.alias("l").join(F.broadcast(right).alias("r"), F.expr(condition), how)
    return joined.selectExpr("l.*", *(f"r.{quote(name)} AS {quote(shown)}" for name, shown in named.items()))


def spans(table: DataFrame, changes: DataFrame, *, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Rows of a table with the part of the total order in which each is the newest of its key.

    Args:
        table: the rows before the slice.
        changes: those that the slice brings, with the order columns; a true ``_deleted`` ends the span before.
        key: the table's key.
        columns: what is kept, key included.

    Returns:
        The columns, ``_from``, the place of the row's record, null for a row of before, and ``_until``, that of the
        next one.
    """
    names = quoted(columns)
    new = changes.where(is_present(key)).selectExpr(
        *names, f"{origin.OF_ROW} AS _from", f"{is_deleted(changes)} AS _is_tombstone"
    )
    both = table.selectExpr(*names, "NULL AS _from", "FALSE AS _is_tombstone").unionByName(new)
    until = f"LEAD(_from) OVER (PARTITION BY {', '.join(quoted(key))} ORDER BY _from) AS _until"
    return both.selectExpr("*", until).where("NOT _is_tombstone").drop("_is_tombstone")
