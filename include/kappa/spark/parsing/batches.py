"""What a Python worker does with the Arrow batches of a topic: it puts the running maximum beside each record and,
where it can, parses the JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kappa.errors import Terminal
from kappa.spark.parsing import avro
from kappa.spark.parsing.json_lines import rows_of
from kappa.topology.wire_schemas import WriterSchemas

Ints = npt.NDArray[np.int64]

#: What has become of a value: done with, for ``from_json``, not text, a tombstone, or not decoded.
DONE, LEFT, NOT_TEXT, TOMBSTONE, REFUSED = 0, 1, 2, 3, 4
#: Why a record is a dead letter, as far as it is known here.
NOT_UTF8 = "the value is not UTF-8"
ABSENT = "{} is NOT NULL and absent"
NO_TIME = "the event time {} is absent"
TOO_FAR = "the event time {} lies too far past the record's timestamp, or is no time"
#: No event time lies before this: what is kept in microseconds ends there.
EARLIEST_MS = -9_000_000_000_000_000
#: More than this share of a batch refused: the rest of the task is left to ``from_json`` unread.
_TOO_MANY = 0.5


class RunningMaximum:
    """Largest timestamp so far of each partition, in microseconds; carries over from batch to batch.

    Spark's Kafka reader gives a task the records of one partition in the order of their offsets, and a partition to one
    task, as long as neither ``minPartitions`` nor ``maxRecordsPerPartition`` is set. The order is checked here.
    """

    def __init__(self, before: Mapping[int, int]) -> None:
        self._largest = dict(before)
        self._last: dict[int, int] = {}

    def follow(self, partitions: Ints, offsets: Ints, times: Ints) -> Ints:
        """The running maximum at each of the next records.

        Raises:
            Terminal: the offsets of a partition do not grow.
        """
        largest = np.empty_like(times)
        starts = np.flatnonzero(np.diff(partitions)) + 1
        for start, end in zip([0, *starts], [*starts, len(times)], strict=True):
            partition = int(partitions[start])
            run = offsets[start:end]
            if run[0] <= self._last.get(partition, -1) or (np.diff(run) <= 0).any():
                raise Terminal(
                    f"Records of partition {partition} come out of order near offset {int(run[0])}: the running "
                    "maximum of their timestamps would be wrong. Read the topic with one task for each partition.",
                    partition=partition,
                )
            first = max(self._largest.get(partition, int(times[start])), int(times[start]))
            np.maximum.accumulate(times[start:end], out=largest[start:end])
            np.maximum(largest[start:end], first, out=largest[start:end])
            self._largest[partition], self._last[partition] = int(largest[end - 1]), int(run[-1])
        return largest


def counted(
    batches: Iterable[pa.RecordBatch], work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """What a work makes of the batches, and behind it one row that tells how many records came in and how large they
    were.

    The count is data of the task, taken before the work: a task or stage that runs again replaces it, while an
    accumulator of Spark would add to it. The columns ``_read`` and ``_bytes`` are null but for that row, where all
    others are.

    Raises:
        Terminal: records came in and nothing came out.
    """
    read = size = 0

    def incoming() -> Iterator[pa.RecordBatch]:
        nonlocal read, size
        for batch in batches:
            read, size = read + batch.num_rows, size + size_of(batch)
            yield batch

    schema = None
    for done in work(incoming()):
        nothing = pa.nulls(done.num_rows, pa.int64())
        made = done.append_column("_read", nothing).append_column("_bytes", nothing)
        schema = made.schema
        yield made
    if not read:
        return
    if schema is None:
        raise Terminal(f"{read} records were read and none came out of parsing: the parser lost them.", read=read)
    told = {"_read": read, "_bytes": size}
    yield pa.RecordBatch.from_arrays([pa.array([told.get(field.name)], field.type) for field in schema], schema=schema)


def size_of(records: pa.RecordBatch | pa.Table) -> int:
    """Bytes of keys and values; a key that is no text is not there any more and does not count."""
    lengths = [pc.sum(pc.binary_length(records[name])).as_py() for name in ("_key", "_value")]
    return sum(length or 0 for length in lengths)


def ordered(batches: Iterable[pa.RecordBatch], before: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
    """The batches with the column ``_order_timestamp`` added at the end.

    Args:
        batches: with columns ``_partition``, ``_offset`` and ``_timestamp``.
        before: partition -> largest timestamp before the first record, in microseconds.

    Raises:
        Terminal: the offsets of a partition do not grow.
    """
    maximum = RunningMaximum(before)
    for batch in batches:
        if not batch.num_rows:
            continue
        times = batch["_timestamp"]
        largest = maximum.follow(
            batch["_partition"].to_numpy().astype(np.int64),
            batch["_offset"].to_numpy(),
            times.cast(pa.int64()).to_numpy(),
        )
        yield batch.append_column("_order_timestamp", pa.array(largest).cast(times.type))


@dataclass(frozen=True, kw_only=True)
class EventTime:
    """Which column holds the time of a record, and how far past Kafka's timestamp it may lie.

    Attributes:
        column: TIMESTAMP or BIGINT in epoch milliseconds.
        ahead_ms: milliseconds.
    """

    column: str
    ahead_ms: int


def parsed(
    batches: Iterable[pa.RecordBatch], kind: pa.StructType, required: Sequence[str], time: EventTime | None = None
) -> Iterator[pa.RecordBatch]:
    """The batches with the columns of ``kind`` in front, ``_state`` and ``_dead`` behind; ``_value`` only where still
    needed.

    Args:
        batches: with the column ``_value``.
        kind: the columns to parse.
        required: columns without which a record is a dead letter: its value is kept.
        time: the event time, where a column holds it; a record without one is a dead letter.
    """
    is_worth_it = True
    for batch in batches:
        rows, state = _rows(batch["_value"], kind, is_worth_it)
        is_worth_it = is_worth_it and (state == LEFT).mean() <= _TOO_MANY
        yield _finished(batch, rows, state, _dead(rows, state, required), time)


def parsed_beside(
    batches: Iterable[pa.RecordBatch], values: str, kinds: Mapping[str, pa.StructType]
) -> Iterator[pa.RecordBatch]:
    """The batches with a STRUCT behind for each name: ``row``, the columns of its kind, and ``state``.

    Args:
        batches: with the values in one of their columns.
        values: that column.
        kinds: name -> the columns to parse.
    """
    is_worth_it = dict.fromkeys(kinds, True)
    for batch in batches:
        done = batch
        for name, kind in kinds.items():
            rows, state = _rows(batch[values], kind, is_worth_it[name])
            is_worth_it[name] &= bool((state == LEFT).mean() <= _TOO_MANY)
            done = done.append_column(name, pa.StructArray.from_arrays([rows, pa.array(state)], names=["row", "state"]))
        yield done


def parsed_avro(
    batches: Iterable[pa.RecordBatch],
    kind: pa.StructType,
    required: Sequence[str],
    time: EventTime | None,
    schemas: WriterSchemas,
) -> Iterator[pa.RecordBatch]:
    """The same of Avro values; nothing of them is left.

    Args:
        schemas: schemas by id. A record of another id is a dead letter whose reason begins with ``avro.UNRESOLVED``.
    """
    known = avro.readers(schemas, kind)
    for batch in batches:
        rows, reasons = avro.decoded(batch["_value"], kind, known)
        refused = pa.array(reasons, pa.string())
        state = np.where(batch["_value"].is_null().to_numpy(zero_copy_only=False), TOMBSTONE, DONE).astype(np.int8)
        state[refused.is_valid().to_numpy(zero_copy_only=False)] = REFUSED
        yield _finished(batch, rows, state, pc.coalesce(refused, _dead(rows, state, required)), time)


def _finished(
    batch: pa.RecordBatch,
    rows: pa.StructArray,
    state: npt.NDArray[np.int8],
    dead: pa.StringArray,
    time: EventTime | None,
) -> pa.RecordBatch:
    """A batch with the columns of its values in front; ``_value`` only where still needed."""
    if time is not None:
        dead = pc.coalesce(dead, _untimely(rows.field(time.column), batch["_timestamp"], state, time))
    is_needed = pc.or_(pc.is_valid(dead), pa.array(state == LEFT))
    kept = pc.if_else(is_needed, batch["_value"], pa.scalar(None, pa.binary()))
    others = {name: kept if name == "_value" else batch[name] for name in batch.schema.names}
    return pa.RecordBatch.from_arrays(
        [*rows.flatten(), *others.values(), pa.array(state), dead],
        names=[*(field.name for field in rows.type), *others, "_state", "_dead"],
    )


def _dead(rows: pa.StructArray, state: npt.NDArray[np.int8], required: Sequence[str]) -> pa.StringArray:
    """Why a record is a dead letter; null for a good one, and for one that is left."""
    found = pa.nulls(len(rows), pa.string())
    for reason, is_dead in [
        (NOT_UTF8, state == NOT_TEXT),
        *(
            (ABSENT.format(n), (state == DONE) & ~rows.field(n).is_valid().to_numpy(zero_copy_only=False))
            for n in required
        ),
    ]:
        if is_dead.any():
            found = pc.coalesce(found, pc.if_else(pa.array(is_dead), pa.scalar(reason), pa.scalar(None, pa.string())))
    return found


def _untimely(own: pa.Array, timestamps: pa.Array, state: npt.NDArray[np.int8], time: EventTime) -> pa.StringArray:
    """Why the event time of a record makes it a dead letter; null where it does not."""
    millis = (
        own if pa.types.is_integer(own.type) else pc.divide(pc.cast(own, pa.timestamp("us", "UTC")).cast("int64"), 1000)
    )
    known = pc.fill_null(millis, 0).to_numpy(zero_copy_only=False)
    latest = timestamps.cast(pa.int64()).to_numpy() // 1000 + time.ahead_ms
    is_done = state == DONE
    is_absent = is_done & ~own.is_valid().to_numpy(zero_copy_only=False)
    is_far = is_done & ((known > latest) | (known < EARLIEST_MS))
    reasons = np.where(is_absent, NO_TIME.format(time.column), TOO_FAR.format(time.column))
    return pa.array(reasons, pa.string(), mask=~(is_absent | is_far))


def _rows(
    values: pa.BinaryArray, kind: pa.StructType, is_worth_it: bool
) -> tuple[pa.StructArray, npt.NDArray[np.int8]]:
    """A row for each value, null unless the state says that it was parsed; and the states."""
    texts = _texts(values)
    is_text = texts.is_valid().to_numpy(zero_copy_only=False)
    state = np.where(values.is_null().to_numpy(zero_copy_only=False), TOMBSTONE, NOT_TEXT).astype(np.int8)
    state[is_text] = LEFT
    if not is_worth_it:
        return pa.nulls(len(values), kind), state
    rows, is_refused = rows_of(texts.drop_null() if texts.null_count else texts, kind)
    state[np.flatnonzero(is_text)[~is_refused]] = DONE
    if texts.null_count:
        rows = rows.take(pa.array(np.cumsum(is_text) - 1, mask=~is_text))
    return rows, state


def _texts(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes as UTF-8 text, null where they are none."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
