"""Event time of parsed records: their own time, and the frontier of their partition at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kappa.topology import Source
from kappa.topology.ddl import quote

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

#: Partition -> offset -> least stream time from there on, epoch milliseconds.
Released = Mapping[int, Mapping[int, int]]
#: Largest event time of good rows, in epoch milliseconds: an aggregate for a tally by partition.
LATEST = "event_ms"


def in_memory(
    rows: pa.Table,
    source: Source,
    before: Mapping[int, int],
    newest: Mapping[int, int],
    now_ms: int,
    released: Released | None = None,
    floors: Released | None = None,
) -> tuple[pa.Table, dict[int, int]]:
    """Good rows with ``_event_time``, ``_frontier`` and ``_is_released``, and the stream times behind them.

    Args:
        rows: parsed records that are no dead letters, in any order.
        source: a source with event time.
        before: partition -> stream time before the first row, epoch milliseconds.
        newest: partition -> largest Kafka timestamp up to the end of the slice, dead letters included: the stream time
            of a source on Kafka's timestamp.
        now_ms: the time of the slice, for a source on the wall clock.
        released: partition -> offset -> least stream time from there on, epoch milliseconds: releases of this slice and
            of those before. What is released behind the last record is not in the stream times that are returned.
        floors: partition -> offset -> least frontier from there on, epoch milliseconds.

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
    partitions, offsets = rows["_partition"].to_numpy(), rows["_offset"].to_numpy()
    reached, is_released = dict(before), np.zeros(len(latest), dtype=bool)
    least_frontier = np.full(len(latest), np.iinfo(np.int64).min)
    for partition in np.unique(partitions):
        mine = np.flatnonzero(partitions == partition)
        so_far = np.maximum.accumulate(latest[mine])
        if int(partition) in reached:
            so_far = np.maximum(so_far, reached[int(partition)] * 1000)
        floor = _least((released or {}).get(int(partition), {}), offsets[mine])
        least_frontier[mine] = _least((floors or {}).get(int(partition), {}), offsets[mine])
        so_far = np.maximum(so_far, floor)
        is_released[mine] = floor // 1000 == so_far // 1000
        latest[mine] = so_far
        reached[int(partition)] = int(so_far[-1] // 1000)
    if source.time is None:
        reached = {p: max(times[p] for times in (before, newest) if p in times) for p in {**before, **newest}}
    # Stream time is kept in whole milliseconds from slice to slice: the frontier at a record is cut to them as well.
    frontier = np.maximum((latest // 1000 - source.grace_ms) * 1000, least_frontier)
    found = rows.append_column("_event_time", pa.array(micros).cast(kind))
    found = found.append_column("_frontier", pa.array(frontier).cast(kind))
    return found.append_column("_is_released", pa.array(is_released)), reached


def _least(by_offset: Mapping[int, int], offsets: np.ndarray) -> np.ndarray:
    """The least time at each of these offsets, microseconds; the least number where none holds yet."""
    import numpy as np

    at = np.array(sorted(by_offset), dtype=np.int64)
    least = np.array([np.iinfo(np.int64).min, *(by_offset[offset] * 1000 for offset in at)], dtype=np.int64)
    found: np.ndarray = np.maximum.accumulate(least)[np.searchsorted(at, offsets, side="right")]
    return found


def by_spark(
    rows: DataFrame,
    source: Source,
    before: Mapping[int, int],
    now_ms: int,
    released: Released | None = None,
    floors: Released | None = None,
) -> DataFrame:
    """The same rows, computed where they are: one sort by partition and offset unless Kafka's timestamp is the time."""
    from pyspark.sql import functions as F

    assert source.grace_ms is not None
    timed = rows.withColumn("_event_time", F.expr(event_time_sql(source, now_ms)))
    followed = ["unix_millis(_order_timestamp)"]
    if source.time is not None:
        followed = ["MAX(unix_millis(_event_time)) OVER (PARTITION BY _partition ORDER BY _offset)"]
    if before and (source.time is not None or source.idle_after is not None):
        carried = ", ".join(f"{partition}, {millis}L" for partition, millis in sorted(before.items()))
        followed.append(f"element_at(map({carried}), _partition)")
    floor = _least_sql(needed) if (needed := _that_may_hold(released or {}, before)) else None
    if floor:
        followed.append(floor)
    reached = f"GREATEST({', '.join(followed)})" if len(followed) > 1 else followed[0]
    timed = timed.withColumn("_frontier", F.expr(f"timestamp_millis({reached} - {source.grace_ms}L)"))
    is_released = f"COALESCE({floor} = unix_millis(_frontier) + {source.grace_ms}L, FALSE)" if floor else "FALSE"
    timed = timed.withColumn("_is_released", F.expr(is_released))
    frontiers = {partition: reached - source.grace_ms for partition, reached in before.items()}
    if least := _that_may_hold(floors or {}, frontiers):
        timed = timed.withColumn("_frontier", F.expr(f"GREATEST(_frontier, timestamp_millis({_least_sql(least)}))"))
    return timed


def _that_may_hold(released: Released, before: Mapping[int, int]) -> Released:
    """Without those that a partition's stream time, or its frontier, had passed before the slice."""
    held = {
        partition: {at: ms for at, ms in by_offset.items() if ms >= before.get(partition, ms)}
        for partition, by_offset in released.items()
    }
    return {partition: by_offset for partition, by_offset in held.items() if by_offset}


def _least_sql(released: Released) -> str:
    """The least time at a record by what holds from its offset or from before, epoch milliseconds; null for none."""
    by_partition = ", ".join(
        f"{partition}, array({', '.join(f'struct({at}L AS at, {ms}L AS ms)' for at, ms in sorted(by_offset.items()))})"
        for partition, by_offset in sorted(released.items())
    )
    mine = f"filter(element_at(map({by_partition}), _partition), one -> one.at <= _offset)"
    return f"array_max(transform({mine}, one -> one.ms))"


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
