"""What is counted of records that are read: in Spark's terms, and in Arrow's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The same as :func:`tally`, of rows in memory.
SUMS = [("_offset", "count"), ("_dead", "count"), ("_order_timestamp", "max")]


def read_tally() -> list[Column]:
    """Of rows that tasks added: how many records came in, and how large they were."""
    from pyspark.sql import functions as F

    return [F.expr("SUM(_read) AS read"), F.expr("SUM(_bytes) AS bytes")]


def tally() -> list[Column]:
    """Of parsed rows: how many, how many dead letters, and the largest timestamp."""
    from pyspark.sql import functions as F

    counted = ("COUNT(_offset) AS rows", "COUNT(_dead) AS dead", "MAX(_order_timestamp) AS newest")
    return [F.expr(text) for text in counted]
