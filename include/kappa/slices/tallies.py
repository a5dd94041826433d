"""What is counted of records that are read: in Spark's terms, and in Arrow's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The same as :func:`tally`, of rows in memory.
SUMS = [("_offset", "count"), ("_dead", "count"), ("_order_timestamp", "max")]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a slice read.

    Attributes:
        rows_read: records that Kafka or an archive gave, counted before parsing.
        rows_parsed: records that parsed.
        rows_dead: dead letters.
        rows_set_aside: records that a decision set aside.
        max_timestamps: topic -> partition -> running maximum of timestamps, epoch milliseconds.
        stream_times: topic -> partition -> running maximum of event times, epoch milliseconds; of sources with event
            time.
        bytes_read: size of their keys and values; None if some came from an archive, which does not read them.
    """

    rows_read: int
    rows_parsed: int
    rows_dead: int
    max_timestamps: Mapping[str, Mapping[int, int]]
    stream_times: Mapping[str, Mapping[int, int]]
    bytes_read: int | None
    rows_set_aside: int = 0


def read_tally() -> list[Column]:
    """Of rows that tasks added: how many records came in, and how large they were."""
    from pyspark.sql import functions as F

    return [F.expr("SUM(_read) AS read"), F.expr("SUM(_bytes) AS bytes")]


def tally() -> list[Column]:
    """Of parsed rows: how many, how many dead letters, and the largest timestamp."""
    from pyspark.sql import functions as F

    counted = ("COUNT(_offset) AS rows", "COUNT(_dead) AS dead", "MAX(_order_timestamp) AS newest")
    return [F.expr(text) for text in counted]
