"""Transforms for steps: DataFrame in, DataFrame out, without other effects.

Each needs the columns of :data:`kappa.topology.ORDER` and keeps every column of its input. If one of them follows
another on the same key, Spark shuffles and sorts once.

There is no operator for what Spark can express. Kafka Streams' functions and their equivalents:

- ``filter``, ``filterNot``: ``rows.where("amount > 0")``
- ``map``, ``mapValues``, ``selectKey``: ``rows.selectExpr("*", "upper(word) AS word_up")``; every operator takes the
  key as an argument, so that a new key needs no repartition topic (see :func:`kappa.operators.rekey`)
- ``flatMap``: ``rows.selectExpr("*", "explode(split(line, ' ')) AS word")``
- ``split``, ``branch``: a ``where`` for each branch; conditions of later branches exclude the earlier ones
- ``merge``: ``left.unionByName(right, allowMissingColumns=True)``; the total order covers several topics
- ``peek``: none, a step has no effects besides its rows; ``foreach``: an append output or a topic
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.keys import Key, is_present
from kappa.operators.origin import OF_ROW, order_of
from kappa.operators.sequence import in_order
from kappa.topology.operator_inputs import check_no_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def newest(df: DataFrame, *, key: Key) -> DataFrame:
    """The last row of each key in the total order (the content of a KTable).

    If one record has several rows, the last one by content is taken: by their columns, from the first to the last; for
    rows of :func:`running_total` the one that was added last. A row with a null key has no history and is ignored.

    Use it for a table that the step keeps itself. A null value of a source with ``tombstones=True`` is a row with
    ``_tombstone``, and deletes its key there. The result is correct if records of a key share a partition, as they do
    in a topic with that key. If they do not, use :func:`kappa.operators.newest_by`, which remembers the order of a row.

    Args:
        df: rows with the key and the order columns.
        key: column or columns; one row is kept per value.

    Raises:
        TopologyError: the rows are pairs of a join, whose order per key depends on where slices end.

    Examples:
        >>> from kappa.operators import newest
        >>> order = "'orders' AS _topic, 0 AS _partition, n AS _offset, TIMESTAMP'2026-01-01' AS _order_timestamp"
        >>> rows = spark.sql(f"SELECT 'a' AS id, n, {order} FROM VALUES (1), (2) AS t(n)")
        >>> newest(rows, key="id").select("id", "n").collect()
        [Row(id='a', n=2)]
    """
    if order_of(df) in ("contributor", "none"):
        raise TopologyError(
            "newest: the rows are pairs of a join. Which pair of a key comes last depends on where slices end. Use "
            "newest_by, which compares the places of pairs, and their content if these are equal."
        )
    return last_of_each(df, key=key)


def last_of_each(df: DataFrame, *, key: Key) -> DataFrame:
    """The rows that :func:`newest` keeps, from rows in any order."""
    from pyspark.sql import functions as F

    # "Has no next row" rather than "is first when sorted backwards": then it can use the sort of running_total.
    has_next = F.expr(f"LEAD(TRUE) OVER ({in_order(df, key)})")
    return df.where(is_present(key, df)).withColumn("_has_next", has_next).where("_has_next IS NULL").drop("_has_next")


def last_of_records(df: DataFrame, *, key: Key) -> DataFrame:
    """The rows that are the last of their key within their record."""
    following = f"LEAD({OF_ROW}) OVER ({in_order(df, key)}) AS _following"
    return df.selectExpr("*", following).where(f"_following IS NULL OR _following <> {OF_ROW}").drop("_following")


def is_deleted(df: DataFrame) -> str:
    """SQL: whether a row deletes its key: by ``_deleted``, otherwise by ``_tombstone``, which marks null values."""
    if "_deleted" not in df.columns:
        check_no_changes(df.columns, "newest_by, lookup and joins with tables")
    mark = next((name for name in ("_deleted", "_tombstone") if name in df.columns), None)
    return "FALSE" if mark is None else f"COALESCE({mark}, FALSE)"
