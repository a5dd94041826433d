"""Transforms that a step is made of: DataFrame in, DataFrame out, nothing else touched.

Each needs the columns of :data:`kappa.topology.ORDER` and keeps every column that it is given. Where one of them
follows another on the same key, Spark shuffles and sorts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.topology import ORDER
from kappa.topology.ddl import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Key = str | Sequence[str]


def running_total(df: DataFrame, *, key: Key, amount: str, total: str, before: DataFrame | None = None) -> DataFrame:
    """The rows of ``df`` with, at each, the total of its key so far (what ``aggregate`` forwards in Kafka Streams).

    Rows of a key are added up in the total order. A null amount adds nothing; a key that is null has no history.

    Args:
        df: rows with the key, the amount and the order columns.
        key: column or columns that a total belongs to, named alike in ``before``.
        amount: numeric column to add up; may be null.
        total: name of the new column, never null. It has the type of ``before``'s, else that of Spark's ``sum``.
        before: the totals so far, at most one row a key: usually ``slice.table(...)``, with columns ``key`` and
            ``total``. None means that there are none.
    """
    from pyspark.sql import functions as F

    so_far = f"SUM(COALESCE({_sql(amount)}, 0)) OVER ({_order(key)} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    if before is None:
        return df.withColumn(total, F.expr(so_far))
    carried = before.selectExpr(*map(_sql, _columns(key)), f"{_sql(total)} AS _before")
    kind = before.schema[total].dataType.simpleString()
    joined = df.join(carried, on=list(_columns(key)), how="left")
    return joined.withColumn(total, F.expr(f"CAST(COALESCE(_before, 0) + {so_far} AS {kind})")).drop("_before")


def newest(df: DataFrame, *, key: Key) -> DataFrame:
    """The last row of each key in the total order (what a KTable keeps of a stream).

    Args:
        df: rows with the key and the order columns.
        key: column or columns of which each value keeps one row.
    """
    from pyspark.sql import functions as F

    # "Has no next row" rather than "is first when sorted backwards": the sort of running_total serves it too.
    has_next = F.expr(f"LEAD(TRUE) OVER ({_order(key)})")
    return df.withColumn("_has_next", has_next).where("_has_next IS NULL").drop("_has_next")


def _columns(key: Key) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


def _order(key: Key) -> str:
    """SQL of a window over the rows of a key in the total order; made with Spark's functions it takes a call for each
    word.
    """
    return f"PARTITION BY {', '.join(map(_sql, _columns(key)))} ORDER BY {', '.join(ORDER)}"


def _sql(name: str) -> str:
    """A column, or a field of one, as SQL takes the name that Spark's functions take."""
    return name if "`" in name else ".".join(map(quote, name.split(".")))
