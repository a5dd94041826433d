"""Event time of parsed records: their own time, and the frontier of their partition at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kappa.topology import Source
from kappa.topology.ddl import quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

#: Largest event time of good rows, in epoch milliseconds: an aggregate for a tally by partition.
LATEST = "event_ms"


def in_memory(
    rows: pa.Table, source: Source, before: Mapping[int, int], newest: Mapping[int, int], now_ms: int
) -> tuple[pa.Table, dict[int, int]]:
    """Good rows with ``_event_time`` and ``_frontier``, and the stream times behind them.

    Args:
        rows: parsed records that are no dead letters, in any order.
        source: a source with event time.
        before: partition -> stream time before the first row, epoch milliseconds.
        newest: partition -> largest Kafka timestamp up to the end of the slice, dead letters included: the stream time
            of a source on Kafka's timestamp.

    Returns:
        The rows, by partition and offset; partition -> stream time behind the last of them, epoch milliseconds.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    assert source.grace_ms is not None
    rows = rows.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    kind = rows.schema.field("_timestamp").type
    times = pc.cast(_event_time(rows, source, now_ms), kind)
    micros = times.cast(pa.int64()).to_numpy()
    followed = times if source.time is not None else rows["_order_timestamp"]
    latest = followed.cast(pa.int64()).to_numpy().copy()
    partitions = rows["_partition"].to_numpy()
    reached = dict(before)
    for partition in np.unique(partitions):
        mine = np.flatnonzero(partitions == partition)
        so_far = np.maximum.accumulate(latest[mine])
        if int(partition) in reached:
            so_far = np.maximum(so_far, reached[int(partition)] * 1000)
        latest[mine] = so_far
        reached[int(partition)] = int(so_far[-1] // 1000)
    if source.time is None:
        reached = {**before, **newest}
    # Stream time is kept in whole milliseconds from slice to slice: the frontier at a record is cut to them as well.
    frontier = (latest // 1000 - source.grace_ms) * 1000
    found = rows.append_column("_event_time", pa.array(micros).cast(kind))
    return found.append_column("_frontier", pa.array(frontier).cast(kind)), reached


def by_spark(rows: DataFrame, source: Source, before: Mapping[int, int], now_ms: int) -> DataFrame:
    """The same rows, computed where they are: one sort by partition and offset unless Kafka's timestamp is the time."""
    from pyspark.sql import functions as F

    assert source.grace_ms is not None
    timed = rows.withColumn("_event_time", F.expr(event_time_sql(source, now_ms)))
    followed = "unix_millis(_order_timestamp)"
    if source.time is not None:
        so_far = "MAX(unix_millis(_event_time)) OVER (PARTITION BY _partition ORDER BY _offset)"
        carried = ", ".join(f"{partition}, {millis}L" for partition, millis in sorted(before.items()))
        first = f"element_at(map({carried}), _partition)" if carried else "CAST(NULL AS BIGINT)"
        followed = f"GREATEST({so_far}, {first})"
    return timed.withColumn("_frontier", F.expr(f"timestamp_millis({followed} - {source.grace_ms}L)"))


def latest(source: Source, is_good: str, now_ms: int) -> Column:
    """An aggregate: the largest stream time of a partition's rows, epoch milliseconds; null where there is none.

    Args:
        source: the source; for one without event time the aggregate is null.
        is_good: SQL condition of rows that are no dead letters.
        now_ms: as for :func:`in_memory`.
    """
    from pyspark.sql import functions as F

    if source.grace is None:
        return F.lit(None).cast("bigint").alias(LATEST)
    if source.time is None:
        return F.expr(f"MAX(unix_millis(_order_timestamp)) AS {LATEST}")
    return F.expr(f"MAX(IF({is_good}, unix_millis({event_time_sql(source, now_ms)}), NULL)) AS {LATEST}")


def event_time_sql(source: Source, now_ms: int) -> str:
    """The event time of a good row; a tombstone has no column of its own, and takes Kafka's timestamp."""
    if source.time is None:
        return "_timestamp"
    if source.is_wall_clock:
        return f"timestamp_millis({now_ms}L)"
    kinds = {column.name: column.type for column in source.columns}
    own = quote(source.time)
    return f"COALESCE({own if kinds[source.time] == 'TIMESTAMP' else f'timestamp_millis({own})'}, _timestamp)"


def _event_time(rows: pa.Table, source: Source, now_ms: int) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if source.time is None:
        return rows["_timestamp"]
    kind = rows.schema.field("_timestamp").type
    if source.is_wall_clock:
        return pa.chunked_array([pa.array([now_ms * 1000] * rows.num_rows, pa.int64()).cast(kind)])
    own = rows[source.time]
    if pa.types.is_integer(own.type):
        own = pc.multiply(own, 1000).cast(kind)
    return pc.coalesce(own.cast(kind), rows["_timestamp"])
