"""JSON objects parsed in Arrow, in bulk: exactly what Spark's ``from_json`` makes of them, or refused.

Every record is refused whose result could differ; the caller gives those to ``from_json``. Arrow accepts less than
Spark does, so what is left to watch is what both accept and read differently: see the guards below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kappa.kafka.json_reading import is_native, leaves

Mask = npt.NDArray[np.bool_]

#: Jackson's limits are on depth (1000), on digits of a number (1000) and on a name's length (50,000). Arrow has none,
#: and parses by recursion: a deeper value would end the process. A shorter value cannot reach them.
_LIMIT = 1_000
_LONG = 40_000
#: A refused batch is read again in parts: in eighths, and below this size around the row that Arrow complained about.
_SMALL = 512
_PARTS = 8
#: After this many times its size in rows read again, the rest of a batch is refused as a whole.
_PATIENCE = 6


def is_exact(kind: pa.DataType) -> bool:
    """Whether values of this type can be read here; not dates, times, maps, binary and floats: Spark has its way."""
    return all(map(is_native, leaves(kind)))


def rows_of(values: pa.StringArray, kind: pa.StructType) -> tuple[pa.StructArray, Mask]:
    """One row for each value, and which values were refused; their rows are null.

    Args:
        values: JSON texts, none of them null.
        kind: the columns, of types that :func:`is_exact` allows.
    """
    refused = _suspects(values)
    if refused is None:
        return _rows(values, kind)
    kept = np.flatnonzero(~refused)
    rows, more = _rows(values.take(pa.array(kept)), kind)
    refused[kept] = more
    place = np.cumsum(~refused) - 1
    rows = rows.filter(pa.array(~more))
    return rows.take(pa.array(place, mask=refused)), refused


def _rows(values: pa.StringArray, kind: pa.StructType) -> tuple[pa.StructArray, Mask]:
    parts: list[pa.StructArray] = []
    refused = np.zeros(len(values), dtype=np.bool_)
    place = 0
    for part, size in _parts(values, kind):
        if part is None:
            refused[place : place + size] = True
        parts.append(pa.nulls(size, kind) if part is None else part)
        place += size
    return (parts[0] if len(parts) == 1 else pa.concat_arrays([pa.nulls(0, kind), *parts])), refused


def _parts(values: pa.StringArray, kind: pa.StructType) -> Iterator[tuple[pa.StructArray | None, int]]:
    """The values in order, in parts: read, or refused (None)."""
    waiting = [(0, len(values))]
    patience = _PATIENCE * len(values)
    while waiting:
        start, size = waiting.pop()
        if size == 0:
            continue
        patience -= size
        read = _read(values.slice(start, size), kind) if patience >= 0 else None
        if isinstance(read, pa.StructArray):
            yield read, size
        elif size == 1 or patience < 0:
            yield None, size
        else:
            cuts = _cuts(size, read)
            waiting.extend((start + a, b - a) for a, b in zip(cuts[-2::-1], cuts[:0:-1], strict=True))


def _cuts(size: int, row: int | None) -> list[int]:
    if size <= _SMALL and row is not None and row < size:
        return [0, row, row + 1, size]
    step = max(1, -(-size // _PARTS))
    return [*range(0, size, step), size]


def _read(values: pa.StringArray, kind: pa.StructType) -> pa.StructArray | int | None:
    """The rows; or the number of the first bad one, a hint; or None, where Arrow does not tell."""
    lines = pc.binary_join_element_wise(values, "", "\n")
    text = _text(lines)
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=_schema(kind), unexpected_field_behavior="ignore"),
        )
        columns = [table[field.name].combine_chunks() for field in kind]
        rows = pa.StructArray.from_arrays(columns, fields=list(kind))
        rows.validate(full=True)  # Arrow lets a decimal grow past its precision when it adds the zeros of its scale
    except pa.ArrowInvalid as error:
        row = re.search(r"in row (\d+)", str(error))
        return int(row[1]) if row else None
    # A line holds whole objects only, by what was refused before, and at least one: with as many rows as lines, each
    # line holds one. A brace that ends a line is followed by one that begins the next, which is an error within an
    # object or a list, and so is a line break within a text.
    return None if len(rows) != len(values) or _has_strange_double(rows) else rows


def _suspects(values: pa.StringArray) -> Mask | None:
    """Values that Arrow may not see; None when there are none, which is the usual case and has to be quick."""
    text = _text(values).to_pybytes()
    found = ~_mask(pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}")))
    if found.any():  # what cannot be an object, found at once: each failure of the parser below costs a second reading
        others = np.flatnonzero(found)
        trimmed = pc.ascii_trim(values.take(pa.array(others)), " \t\r\n")
        found[others] = ~_mask(pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}")))
    if b"\n" in text or b"\r" in text:  # a line break would end the line
        found |= _mask(pc.match_substring_regex(values, r"[\n\r]"))
    if b"\\" in text and b"\\u" in text:  # half of a surrogate pair: '?' for Spark; one byte is found sooner
        found |= _mask(pc.match_substring_regex(values, r"(?i)\\ud[89a-f]"))
    lengths = pc.binary_length(values).to_numpy()
    if len(text) > _LIMIT and (lengths > _LIMIT).any():
        long = np.flatnonzero(lengths > _LIMIT)
        found[long] |= _has_extremes(values.take(pa.array(long))) | (lengths[long] > _LONG)
    return found if found.any() else None


def _has_extremes(values: pa.StringArray) -> Mask:
    brackets = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{")).to_numpy()
    digits = _mask(pc.match_substring_regex(values, rf"[0-9.eE+-]{{{_LIMIT}}}"))
    return np.asarray(digits | (brackets > _LIMIT - 100), dtype=np.bool_)


def _has_strange_double(rows: pa.Array) -> bool:
    """Whether a double is infinite (Arrow's limit is not Java's) or a negative zero (Spark reads -0 as 0)."""
    if pa.types.is_struct(rows.type):
        return any(_has_strange_double(child) for child in rows.flatten())
    if pa.types.is_list(rows.type):
        return _has_strange_double(rows.flatten())
    if not pa.types.is_float64(rows.type):
        return False
    numbers = rows.drop_null().to_numpy()
    return bool(np.isinf(numbers).any() or (np.signbit(numbers) & (numbers == 0)).any())


def _mask(found: pa.BooleanArray) -> Mask:
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _text(values: pa.StringArray) -> pa.Buffer:
    """The bytes of an array's strings, one after the other."""
    _, offsets, text = values.buffers()
    if text is None or not len(values):
        return pa.py_buffer(b"")
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return text.slice(int(ends[0]), int(ends[-1] - ends[0]))


@lru_cache(maxsize=8)
def _schema(kind: pa.StructType) -> pa.Schema:
    return pa.schema(list(kind))
