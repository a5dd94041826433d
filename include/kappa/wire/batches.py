"""The records of Arrow batches as rows: their columns, the reasons of dead letters, and their event time.

The same functions work in a task of Spark, batch after batch, and in the driver's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kappa.errors import Terminal
from kappa.topology.schemas.envelopes import CHANGE_COLUMNS, OF_KEY, SOURCE_TIME, WITH_ROW
from kappa.topology.schemas.wire_schemas import WriterSchemas
from kappa.wire.decoders import Decode, decoder, key_decoder, texts
from kappa.wire.running_times import NEVER, Ints, Mask, Released, RunningMaximum, StreamTime, least_times

if TYPE_CHECKING:
    from kappa.topology import Source

#: Reasons of dead letters that do not depend on the format.
NO_VALUE = "the value is null"
ABSENT = "{} is NOT NULL and absent"
NO_KEY = "{} is a column of the key, and absent"
NO_TIME = "the event time {} is absent"
TOO_FAR = "the event time {} lies too far past the record's timestamp, or is not a time"
#: The earliest event time, where the range of microseconds ends.
EARLIEST_MS = -9_000_000_000_000_000
#: Partition -> offset -> why the record there is a dead letter by a decision.
Aside = Mapping[int, Mapping[int, str]]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the records of a source become rows; goes to Spark's workers.

    Attributes:
        source: the source, which decides how keys and values are read.
        kind: the source's columns, all nullable.
        value_kind: the columns of the value.
        key_kind: the columns of the key.
        schemas: for formats with schema ids, the known schemas.
    """

    source: Source
    kind: pa.StructType
    value_kind: pa.StructType
    key_kind: pa.StructType
    schemas: WriterSchemas = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Start:
    """The state of a source before a slice; all times are epoch milliseconds.

    Attributes:
        timestamps: partition -> running maximum of Kafka's timestamps; absent before the first record.
        stream_times: partition -> stream time; absent before the first record.
        released: releases of this slice and of earlier ones.
        floors: partition -> offset -> least frontier from there on.
        now_ms: the time of the slice, for a source on the wall clock.
        aside: partition -> offset -> why the record there is a dead letter by a decision.
    """

    timestamps: Mapping[int, int] = field(default_factory=dict)
    stream_times: Mapping[int, int] = field(default_factory=dict)
    released: Released = field(default_factory=dict)
    floors: Released = field(default_factory=dict)
    now_ms: int = 0
    aside: Aside = field(default_factory=dict)


def counted(
    batches: Iterable[pa.RecordBatch], work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """The output of some work on the batches, followed by one row with the number and the size of the input records.

    The count is part of the task's rows and taken before the work: a task or stage that runs again replaces it, while
    an accumulator of Spark would add to it. The columns ``_read`` and ``_bytes`` are null except in that row, in which
    all others are null.

    Raises:
        Terminal: there was input but no output.
    """
    read = size = 0

    def incoming() -> Iterator[pa.RecordBatch]:
        nonlocal read, size
        for batch in batches:
            read, size = read + batch.num_rows, size + size_of(batch)
            yield batch

    schema = None
    for output in work(incoming()):
        nothing = pa.nulls(output.num_rows, pa.int64())
        rows = output.append_column("_read", nothing).append_column("_bytes", nothing)
        schema = rows.schema
        yield rows
    if not read:
        return
    if schema is None:
        raise Terminal(f"{read} records were read and none came out of parsing: the parser lost them.", read=read)
    counts = {"_read": read, "_bytes": size}
    yield pa.RecordBatch.from_arrays(
        [pa.array([counts.get(column.name)], column.type) for column in schema], schema=schema
    )


def size_of(records: pa.RecordBatch | pa.Table) -> int:
    """Bytes of keys and values."""
    lengths = [pc.sum(pc.binary_length(records[name])).as_py() for name in ("_key", "_value")]
    return sum(length or 0 for length in lengths)


def placed(
    batches: Iterable[pa.RecordBatch], layout: Layout, start: Start, stream: StreamTime | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows that a layout makes from records, with ``_order_timestamp`` and, if the source has it, event time.

    Args:
        batches: records of each partition in the order of their offsets.
        layout: the layout of the source.
        start: state of the source before the first record.
        stream: follows the stream times; a new one by default.

    Raises:
        Terminal: the offsets of a partition do not grow.
    """
    maximum = RunningMaximum({partition: millis * 1000 for partition, millis in start.timestamps.items()})
    if layout.source.has_event_time and stream is None:
        stream = StreamTime(start.stream_times, start.released)
    read = reader(layout)
    for batch in batches:
        rows = _ordered(_set_aside(read(batch), batch, start.aside), maximum)
        yield rows if stream is None else _timed(rows, layout.source, stream, start)


def reader(layout: Layout) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that makes rows of a batch: the source's columns, ``_key`` as text, ``_tombstone`` if the source has
    it, ``_value`` and ``_dead``; any other columns of the batch stay.

    ``_dead`` is null for a good record, otherwise the reason, which never contains the value. ``_value`` is null for a
    good record. The other columns of a dead letter have no meaning. The batch has ``_key`` and ``_value`` BINARY, and
    ``_timestamp``.

    Args:
        layout: how keys and values are read.
    """
    source = layout.source
    values = decoder(source, layout.value_kind, layout.schemas)
    keys = key_decoder(source, layout.key_kind, layout.schemas)
    required = [c.name for c in source.value_columns if not c.nullable and c.name not in layout.key_kind.names]

    def read(batch: pa.RecordBatch) -> pa.RecordBatch:
        is_null = batch["_value"].is_null().to_numpy(zero_copy_only=False)
        rows, dead = values(batch["_value"])
        columns = dict(zip(rows.type.names, rows.flatten(), strict=True))
        has_no_row, has_no_key = is_null, np.zeros(len(is_null), dtype=np.bool_)
        if source.envelope != "none":
            has_no_row, has_no_key = (~_is_one_of(columns["_operation"], some) for some in (WITH_ROW, OF_KEY))
        if keys is not None:
            dead = _with_keys(columns, batch["_key"], dead, has_no_row, has_no_key, layout, keys)
        absences = [(ABSENT.format(name), ~has_no_row & _is_missing(columns, name)) for name in required]
        dead = _reasoned(dead, absences)
        if not source.tombstones and source.envelope == "none":
            dead = _reasoned(dead, [(NO_VALUE, is_null)])
        is_timeless = has_no_row if source.time != SOURCE_TIME else is_null
        dead = pc.coalesce(dead, _untimely(columns, batch["_timestamp"], is_timeless, source))
        value = pc.if_else(pc.is_valid(dead), batch["_value"], pa.scalar(None, pa.binary()))
        changed = {"_key": texts(batch["_key"]), "_value": value}
        others = {name: changed.get(name, batch[name]) for name in batch.schema.names}
        if source.tombstones:
            others["_tombstone"] = pa.array(is_null)
        if source.envelope != "none":
            others |= {name: columns[name] for name in CHANGE_COLUMNS}
        arrays = {**{name: columns[name] for name in layout.kind.names}, **others, "_dead": dead}
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    return read


def beside(batches: Iterable[pa.RecordBatch], layouts: Mapping[str, Layout]) -> Iterator[pa.RecordBatch]:
    """The batches with ``_order_timestamp``, and for each name a STRUCT with the result of one layout: ``dead``,
    ``value``, ``tombstone`` if its source has it, and ``row``, the source's columns.

    Args:
        batches: records of each partition in the order of their offsets.
        layouts: the layouts by name.

    Raises:
        Terminal: the offsets of a partition do not grow.
    """
    maximum = RunningMaximum({})
    readers = {name: reader(layout) for name, layout in layouts.items()}
    for batch in batches:
        output = _ordered(batch, maximum)
        for name, read in readers.items():
            rows, layout = read(batch), layouts[name]
            parts = {"dead": rows["_dead"], "value": rows["_value"]}
            if layout.source.tombstones:
                parts["tombstone"] = rows["_tombstone"]
            columns = [rows[column.name] for column in layout.kind]
            parts["row"] = pa.StructArray.from_arrays(columns, fields=list(layout.kind))
            output = output.append_column(name, pa.StructArray.from_arrays(list(parts.values()), names=list(parts)))
        yield output


def _with_keys(
    columns: dict[str, pa.Array],
    keys: pa.BinaryArray,
    dead: pa.StringArray,
    has_no_row: Mask,
    has_no_key: Mask,
    layout: Layout,
    read: Decode,
) -> pa.StringArray:
    """Take columns that a value does not have from the key; return the reasons of dead letters."""
    names = layout.key_kind.names
    is_missing = has_no_row.copy()
    for name in names:
        is_missing |= _is_absent(columns[name]) if name in columns else True
    places = np.flatnonzero(is_missing)
    rows, reasons = read(keys.take(pa.array(places)))
    back = pa.array(np.cumsum(is_missing) - 1, mask=~is_missing)
    dead = pc.coalesce(dead, reasons.take(back))
    # Flattened, so that a column of a null row is null, whatever its memory holds.
    for column, part in zip(layout.key_kind, rows.flatten(), strict=True):
        of_keys = part.take(back)
        columns[column.name] = pc.coalesce(columns[column.name], of_keys) if column.name in columns else of_keys
    return _reasoned(dead, [(NO_KEY.format(name), ~has_no_key & _is_absent(columns[name])) for name in names])


def _is_one_of(operations: pa.StringArray, some: Sequence[str]) -> Mask:
    return np.asarray(pc.is_in(operations, pa.array(some)).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _is_missing(columns: Mapping[str, pa.Array], name: str) -> Mask:
    """Whether a column is null and not because a change left it unchanged."""
    is_absent = _is_absent(columns[name])
    if "_unchanged" in columns and is_absent.any():
        is_unchanged = [name in (names or ()) for names in columns["_unchanged"].to_pylist()]
        is_absent &= ~np.array(is_unchanged, dtype=np.bool_)
    return is_absent


def _is_absent(values: pa.Array) -> Mask:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _reasoned(dead: pa.StringArray, reasons: Sequence[tuple[str, Mask]]) -> pa.StringArray:
    """The reasons so far, completed by these where there is none yet and their mask is true."""
    for reason, is_dead in reasons:
        if is_dead.any():
            dead = pc.coalesce(dead, pc.if_else(pa.array(is_dead), pa.scalar(reason), pa.scalar(None, pa.string())))
    return dead


def _untimely(
    columns: Mapping[str, pa.Array], timestamps: pa.Array, is_timeless: Mask, source: Source
) -> pa.StringArray:
    """Why the event time of a record makes it a dead letter; null if it does not."""
    if not source.has_event_time or source.time is None or source.is_wall_clock:
        return pa.nulls(len(timestamps), pa.string())
    own = columns[source.time]
    unit = 1 if pa.types.is_integer(own.type) else 1000
    units = own if unit == 1 else pc.cast(own, pa.timestamp("us", "UTC")).cast("int64")
    times = pc.fill_null(units, 0).to_numpy(zero_copy_only=False) // unit
    latest = timestamps.cast(pa.int64()).to_numpy() // 1000 + source.ahead_ms
    is_absent = ~is_timeless & _is_absent(own)
    is_far = ~is_timeless & ((times > latest) | (times < EARLIEST_MS))
    reasons = np.where(is_absent, NO_TIME.format(source.time), TOO_FAR.format(source.time))
    return pa.array(reasons, pa.string(), mask=~(is_absent | is_far))


def _set_aside(rows: pa.RecordBatch, batch: pa.RecordBatch, aside: Aside) -> pa.RecordBatch:
    """The rows, with those that a decision sets aside as dead letters with their values."""
    if not aside:
        return rows
    places = zip(batch["_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True)
    reasons = pa.array([aside.get(partition, {}).get(offset) for partition, offset in places], pa.string())
    if reasons.null_count == len(reasons):
        return rows
    values = pc.if_else(pc.is_valid(reasons), batch["_value"], rows["_value"])
    changed = {"_value": values, "_dead": pc.coalesce(reasons, rows["_dead"])}
    columns = [changed.get(name, rows[name]) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _ordered(batch: pa.RecordBatch, maximum: RunningMaximum) -> pa.RecordBatch:
    times = batch["_timestamp"]
    largest = maximum.follow(
        batch["_partition"].to_numpy().astype(np.int64), batch["_offset"].to_numpy(), times.cast(pa.int64()).to_numpy()
    )
    return batch.append_column("_order_timestamp", pa.array(largest).cast(times.type))


def _timed(batch: pa.RecordBatch, source: Source, stream: StreamTime, start: Start) -> pa.RecordBatch:
    """The rows with ``_event_time``, ``_frontier`` and ``_is_released``, which have no meaning for dead letters."""
    assert source.grace_ms is not None
    kind = batch["_timestamp"].type
    of_kafka = batch["_timestamp"].cast(pa.int64()).to_numpy()
    is_good = batch["_dead"].is_null().to_numpy(zero_copy_only=False)
    is_null = batch["_value"].is_null().to_numpy(zero_copy_only=False) & ~is_good
    if source.tombstones:
        is_null = batch["_tombstone"].to_numpy(zero_copy_only=False)
    if source.envelope != "none":
        is_null = _has_no_time(batch["_operation"], source) & is_good
    own = _own_times(batch, source, of_kafka, start.now_ms)
    partitions, offsets = batch["_partition"].to_numpy().astype(np.int64), batch["_offset"].to_numpy()
    reached, is_released = stream.follow(partitions, offsets, own, is_good & ~is_null)
    # If a column has the time, a null value has none of its own: it gets the stream time of its partition.
    is_unknown = reached == NEVER
    if source.time is not None and not source.is_wall_clock:
        own = np.where(is_null & ~is_unknown, np.minimum(own, reached // 1000 * 1000), own)
    # Stream time is kept in whole milliseconds from slice to slice, so the frontier at a record is cut to them as well.
    frontier = (np.where(is_unknown, own, reached) // 1000 - source.grace_ms) * 1000
    for partition, by_offset in start.floors.items():
        at = np.flatnonzero(partitions == partition)
        frontier[at] = np.maximum(frontier[at], least_times(by_offset, offsets[at]))
    rows = batch.append_column("_event_time", pa.array(own).cast(kind))
    # The upstream epoch's frontier does not make its own records late: they were in time there.
    of_rows = pa.nulls(len(frontier), pa.int64()) if source.follows_upstream else pa.array(frontier)
    rows = rows.append_column("_frontier", of_rows.cast(kind))
    return rows.append_column("_is_released", pa.array(is_released))


def _has_no_time(operations: pa.StringArray, source: Source) -> Mask:
    """Which change records have no event time of their own; :mod:`kappa.wire.row_times` has the same in SQL."""
    if source.time is None or source.is_wall_clock or source.time == SOURCE_TIME:
        return _is_absent(operations)
    return ~_is_one_of(operations, WITH_ROW)


def _own_times(batch: pa.RecordBatch, source: Source, of_kafka: Ints, now_ms: int) -> Ints:
    """Event times from the record alone, epoch microseconds; Kafka's timestamp if a record has none."""
    if source.time is None:
        return of_kafka
    if source.is_wall_clock:
        return np.full(batch.num_rows, now_ms * 1000, dtype=np.int64)
    own = batch[source.time]
    if pa.types.is_integer(own.type):
        # A dead letter may have any time, so it is not checked.
        millis = own.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        own = pa.array(np.where(abs(millis) <= -EARLIEST_MS, millis, 0) * 1000, mask=_is_absent(own))
    micros = pc.coalesce(own.cast(pa.int64()), pa.array(of_kafka))
    return np.asarray(micros.to_numpy(zero_copy_only=False), dtype=np.int64)
