"""Transforms that a step is made of: DataFrame in, DataFrame out, nothing else touched.

Each needs the columns of :data:`kappa.topology.ORDER` and keeps every column that it is given. Where one of them
follows another on the same key, Spark shuffles and sorts once.

Where Spark has a word, there is no operator. What Kafka Streams calls

- ``filter``, ``filterNot``: ``rows.where("amount > 0")``
- ``map``, ``mapValues``, ``selectKey``: ``rows.selectExpr("*", "upper(word) AS word_up")``; every operator takes the
  key as an argument, so that a new key needs no repartition topic (:func:`kappa.operators.rekey` says more)
- ``flatMap``: ``rows.selectExpr("*", "explode(split(line, ' ')) AS word")``
- ``split``, ``branch``: a ``where`` for each branch; what comes first excludes the others in their conditions
- ``merge``: ``left.unionByName(right, allowMissingColumns=True)``; the total order covers several topics
- ``peek``: none, a step has no effects but its rows; ``foreach``: an append output or a topic
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.frames import check_rows_of_tables
from kappa.operators.keys import Key, is_present
from kappa.operators.origin import OF_ROW, order_of
from kappa.operators.sequence import in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def newest(df: DataFrame, *, key: Key) -> DataFrame:
    """The last row of each key in the total order (what a KTable keeps of a stream).

    Of several rows of one record the last by content is taken: by their columns, from the first to the last; of rows of
    :func:`running_total` the one that was added last. A row with a null key has no history and is left out.

    What a step keeps as a table of its own. A null value of a source with ``tombstones=True`` is a row with
    ``_tombstone``, and deletes its key there. It is right where records of a key share a partition, as they do in a
    topic with that key. Where they do not, :func:`kappa.operators.newest_by` remembers the order that a row had.

    Args:
        df: rows with the key and the order columns.
        key: column or columns of which each value keeps one row.

    Raises:
        TopologyError: the rows are pairs of a join: in which order a key gets those depends on where slices end.

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
            "newest_by, which compares the places of pairs, and their content where these are equal."
        )
    return last_of_each(df, key=key)


def last_of_each(df: DataFrame, *, key: Key) -> DataFrame:
    """The rows that :func:`newest` keeps, from rows in any order."""
    from pyspark.sql import functions as F

    # "Has no next row" rather than "is first when sorted backwards": the sort of running_total serves it too.
    has_next = F.expr(f"LEAD(TRUE) OVER ({in_order(df, key)})")
    return df.where(is_present(key, df)).withColumn("_has_next", has_next).where("_has_next IS NULL").drop("_has_next")


def last_of_records(df: DataFrame, *, key: Key) -> DataFrame:
    """The rows that are the last of their key within their record."""
    following = f"LEAD({OF_ROW}) OVER ({in_order(df, key)}) AS _following"
    return df.selectExpr("*", following).where(f"_following IS NULL OR _following <> {OF_ROW}").drop("_following")


def is_deleted(df: DataFrame) -> str:
    """SQL: whether a row deletes its key: by ``_deleted``, else by ``_tombstone``, which rows of null values have."""
    if "_deleted" not in df.columns:
        check_rows_of_tables(df, "newest_by, lookup and joins with tables")
    mark = next((name for name in ("_deleted", "_tombstone") if name in df.columns), None)
    return "FALSE" if mark is None else f"COALESCE({mark}, FALSE)"
