"""Event time of archived records, whose rows are in no order. For records of a log it is computed while they are parsed
(:mod:`kappa.wire.batches`); both give the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kappa.topology import Source
from kappa.topology.ddl import quote
from kappa.topology.schemas.envelopes import SOURCE_TIME, WITH_ROW
from kappa.wire.batches import Start
from kappa.wire.running_times import Released

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Largest event time of good rows, in epoch milliseconds, as an aggregate per partition.
EVENT_MS = "event_ms"


def timed(rows: DataFrame, source: Source, start: Start) -> DataFrame:
    """Good rows with ``_event_time``, ``_frontier`` and ``_is_released``, by one sort by partition and offset.

    Args:
        rows: parsed records that are not dead letters.
        source: a source with event time.
        start: its state before the first of them.
    """
    from pyspark.sql import functions as F

    assert source.grace_ms is not None
    own = _time_sql(source, start.now_ms)
    without = _timeless(source)
    moving = f"unix_millis({own})" if without is None else f"IF({without}, NULL, unix_millis({own}))"
    reached = [f"MAX({moving}) OVER (PARTITION BY _partition ORDER BY _offset)"]
    if start.stream_times:
        carried = ", ".join(f"{partition}, {millis}L" for partition, millis in sorted(start.stream_times.items()))
        reached.append(f"element_at(map({carried}), _partition)")
    needed = _that_may_hold(start.released, start.stream_times)
    floor = _least_sql(needed) if needed else "CAST(NULL AS BIGINT)"
    reached.append(floor)
    # Null if a partition has had only null values so far.
    with_times = rows.withColumn("_reached", F.expr(f"GREATEST({', '.join(reached)})"))
    event_time = own
    if without is not None and source.time is not None and not source.is_wall_clock:
        event_time = f"IF({without}, LEAST({own}, timestamp_millis(_reached)), {own})"
    frontier = f"COALESCE(_reached, unix_millis({own})) - {source.grace_ms}L"
    frontiers = {partition: reached - source.grace_ms for partition, reached in start.stream_times.items()}
    if least := _that_may_hold(start.floors, frontiers):
        frontier = f"GREATEST({frontier}, {_least_sql(least)})"
    if source.follows_upstream:  # see kappa.wire.batches
        frontier = "CAST(NULL AS BIGINT)"
    columns = {
        "_event_time": event_time,
        "_frontier": f"timestamp_millis({frontier})",
        "_is_released": f"COALESCE({floor} = _reached, FALSE)",
    }
    return with_times.withColumns({name: F.expr(sql) for name, sql in columns.items()}).drop("_reached")


def latest_time(source: Source, is_good: str) -> Column:
    """An aggregate: the largest event time of a partition's rows that moves its stream time, epoch milliseconds.

    Args:
        source: the source; without event time the aggregate is null.
        is_good: SQL condition of rows that are not dead letters.
    """
    return _latest(source, is_good, "_event_time")


def latest_time_of_archive(source: Source, is_good: str, now_ms: int) -> Column:
    """The same for rows that have no event time yet."""
    return _latest(source, is_good, _time_sql(source, now_ms))


def _latest(source: Source, is_good: str, time: str) -> Column:
    from pyspark.sql import functions as F

    if not source.has_event_time:
        return F.lit(None).cast("bigint").alias(EVENT_MS)
    without = _timeless(source)
    moves = is_good if without is None else f"{is_good} AND NOT ({without})"
    return F.expr(f"MAX(IF({moves}, unix_millis({time}), NULL)) AS {EVENT_MS}")


def _that_may_hold(released: Released, before: Mapping[int, int]) -> Released:
    """Entries that a partition's stream time, or its frontier, had not passed before the slice."""
    held = {
        partition: {at: ms for at, ms in by_offset.items() if ms >= before.get(partition, ms)}
        for partition, by_offset in released.items()
    }
    return {partition: by_offset for partition, by_offset in held.items() if by_offset}


def _least_sql(released: Released) -> str:
    """The least time at a record from entries at its offset or before, epoch milliseconds; null if there is none."""
    by_partition = ", ".join(
        f"{partition}, array({', '.join(f'struct({at}L AS at, {ms}L AS ms)' for at, ms in sorted(by_offset.items()))})"
        for partition, by_offset in sorted(released.items())
    )
    own_times = f"filter(element_at(map({by_partition}), _partition), one -> one.at <= _offset)"
    return f"array_max(transform({own_times}, one -> one.ms))"


def _time_sql(source: Source, now_ms: int) -> str:
    """The event time of a row from the record alone; Kafka's timestamp if it has none."""
    if source.time is None:
        return "_timestamp"
    if source.is_wall_clock:
        return f"timestamp_millis({now_ms}L)"
    kinds = {column.name: column.type for column in source.columns}
    own = quote(source.time)
    return f"COALESCE({f'timestamp_millis({own})' if kinds.get(source.time) == 'BIGINT' else own}, _timestamp)"


def _timeless(source: Source) -> str | None:
    """SQL: whether a record has no event time of its own; None where each has one."""
    if source.envelope == "none":
        return "_tombstone" if source.tombstones else None
    if source.time is None or source.is_wall_clock or source.time == SOURCE_TIME:
        return "_operation IS NULL"
    return f"COALESCE(_operation NOT IN ({', '.join(map(repr, WITH_ROW))}), TRUE)"
