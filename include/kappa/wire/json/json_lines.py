"""JSON objects read by Arrow, many at a time: the rows are exactly those of the converter, or are left to it.

Arrow accepts more than JSON, and reads some values differently. Such values are found by their bytes and not passed to
it; values that it refuses are left to the converter. So no value's row depends on whether Arrow read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kappa.wire.json import json_texts
from kappa.wire.json.json_converter import DEEPEST, Timestamps, depth
from kappa.wire.json.json_shapes import Read, Shape, reading, shape_of

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Rows = list[tuple[Places, pa.StructArray]]

#: Largest number of bytes that are parsed at a time.
_BYTES = 64 << 20
#: A block that Arrow refuses is read again in this many parts; the values of a small one are left to the converter.
_PARTS, _SMALL = 8, 64
#: If Arrow could probably read fewer than half of this many values, the block is left to the converter.
_SAMPLE = 32
#: After repeated reads of this many times its size, the rest of a block is left to the converter.
_PATIENCE = 3
#: Words that Arrow accepts as numbers and JSON does not; they may also be within texts.
_NO_NUMBERS = (b"NaN", b"Inf")
#: A power of ten that Arrow may look up beyond the end of its table, which ends the process or gives a wrong number. A
#: text may also be such a number, with escaped letters.
_POWER = re.compile(rb'[":,\[ \t\r\n][+-]?[0-9.]+[eE][+-]?[0-9]{2,}[",\]} \t\r\n]')
_ESCAPED = re.compile(rb"\\u00(?:3[0-9]|2[bdeBDE]|[46]5)")
#: Number of bytes that are searched at a time, so that they stay in the processor's cache; and of the overlap with the
#: next.
_CHUNK, _OVERLAP = 1 << 17, 4
#: Decimal digits that always fit a number of 128 bits. Arrow multiplies by ten to the scale before it checks the size:
#: with more digits the product overflows.
_DIGITS = 38


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the columns of a kind are read in bulk.

    Attributes:
        kind: the declared columns.
        schema: the columns that Arrow reads, in their JSON types: times, dates and bytes are texts.
        shapes: tests of the values that Arrow accepts in each of those, as far as they are cheap.
        others: readers of each other column, from an object of orjson.
        has_decimal: whether Arrow reads decimals.
    """

    kind: pa.StructType
    schema: pa.Schema
    shapes: tuple[tuple[str, Shape], ...]
    others: dict[str, Read]
    has_decimal: bool


@lru_cache(maxsize=64)
def plan_of(kind: pa.StructType, timestamps: Timestamps) -> Plan | None:
    """The plan for these columns; None if only the converter can read one: Arrow has no such type, or orjson loses the
    exact number.
    """
    written: list[pa.Field] = []
    others: dict[str, Read] = {}
    for field in kind:
        leaves = list(_leaves(field.type))
        if all(_is_read(leaf, timestamps) for leaf in leaves):
            written.append(pa.field(field.name, _written(field.type)))
        elif (read := reading(field.type)) is not None:
            others[field.name] = read
        else:
            return None
    return (
        Plan(
            kind=kind,
            schema=pa.schema(written),
            shapes=tuple((field.name, shape_of(field.type)) for field in written),
            others=others,
            has_decimal=any(pa.types.is_decimal(leaf) for field in written for leaf in _leaves(field.type)),
        )
        if written
        else None
    )


def bulk_rows(values: pa.BinaryArray, kind: pa.StructType, timestamps: Timestamps) -> tuple[pa.StructArray, Mask]:
    """A row for each value that Arrow reads, null for the others; and the values, except nulls, that are left to the
    converter.

    Args:
        values: bytes of any content.
        kind: the declared columns.
        timestamps: meaning of numbers in TIMESTAMP columns.
    """
    is_left = values.is_valid().to_numpy(zero_copy_only=False).copy()
    plan = plan_of(kind, timestamps)
    if plan is None or not is_left.any():
        return pa.nulls(len(values), kind), is_left
    places = np.flatnonzero(is_left)
    candidates = values if len(places) == len(values) else values.take(pa.array(places))
    is_clean = _clean(candidates, plan)
    if not is_clean.all():
        places, candidates = places[is_clean], candidates.filter(pa.array(is_clean))
    parts = [part for some, block in _portions(places, candidates) for part in _read_in_parts(some, block, plan)]
    if not parts:
        return pa.nulls(len(values), kind), is_left
    read = np.concatenate([some for some, _ in parts])
    is_left[read] = False
    rows = pa.concat_arrays([rows for _, rows in parts])
    if len(read) == len(values) and (np.diff(read) > 0).all():
        return rows, is_left
    source = np.full(len(values), -1)
    source[read] = np.arange(len(read))
    return rows.take(pa.array(source, mask=source < 0)), is_left


def _portions(places: Places, values: pa.BinaryArray) -> Iterator[tuple[Places, pa.BinaryArray]]:
    if len(values) > 1 and len(_bytes(values)) > _BYTES:
        half = len(values) // 2
        yield from _portions(places[:half], values.slice(0, half))
        yield from _portions(places[half:], values.slice(half))
    elif len(values):
        yield places, values


def _read_in_parts(places: Places, values: pa.BinaryArray, plan: Plan) -> Rows:
    """The rows of the parts of a block that can be read; the converter reads the others."""
    parts = _read(places, values, plan)
    if parts is not None:
        return parts
    if sum(_fits(value, plan) for value in values.slice(0, _SAMPLE).to_pylist()) * 2 < min(_SAMPLE, len(values)):
        return []
    is_fit = np.fromiter((_fits(value, plan) for value in values.to_pylist()), np.bool_, len(values))
    if not is_fit.all():
        places, values = places[is_fit], values.filter(pa.array(is_fit))
        parts = _read(places, values, plan)
        if parts is not None:
            return parts
    rows: Rows = []
    waiting = [(0, len(values))]
    patience = _PATIENCE * len(values)
    while waiting and patience > 0:
        start, size = waiting.pop()
        step = max(1, -(-size // _PARTS))
        for first in range(start, start + size, step):
            count = min(step, start + size - first)
            patience -= count
            parts = _read(places[first : first + count], values.slice(first, count), plan)
            if parts is not None:
                rows += parts
            elif count > _SMALL:
                waiting.append((first, count))
    return rows


def _fits(value: bytes, plan: Plan) -> bool:
    """Whether Arrow can probably read a value: this check saves a second reading of the values around it."""
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return type(content) is dict and all(fits(content.get(name)) for name, fits in plan.shapes)


def _read(places: Places, values: pa.BinaryArray, plan: Plan) -> Rows | None:
    """The rows of all values, except those with a text that does not fit its column; None if Arrow refuses one."""
    if not len(values):
        return []
    lines = pc.binary_join_element_wise(values, b"", b"\n")
    text = _bytes(lines)
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=plan.schema, unexpected_field_behavior="ignore"),
        )
        # By the filter before, a value begins and ends with a brace. It has at least one object or is an error: the
        # brace that ends one value is followed by the brace that begins the next, which neither objects nor lists
        # allow, and a line break within a text is an error. So if there are as many rows as values, each value is one
        # object.
        if table.num_rows != len(values):
            return None
        table.validate(full=True)  # Arrow lets a decimal exceed its precision when it adds the zeros of its scale
        columns = [_column(table, field, values, plan) for field in plan.kind]
    except (pa.ArrowInvalid, json_texts.UndecidedError):
        return None
    is_good = np.ones(len(values), dtype=np.bool_)
    for _, is_read in columns:
        if is_read is not None:
            is_good &= is_read
    rows = pa.StructArray.from_arrays([column for column, _ in columns], fields=list(plan.kind))
    return [(places, rows)] if is_good.all() else [(places[is_good], rows.filter(pa.array(is_good)))]


def _column(table: pa.Table, field: pa.Field, values: pa.BinaryArray, plan: Plan) -> tuple[pa.Array, Mask | None]:
    """A column, and which of its values are good; None if all are."""
    if field.name not in plan.others:
        return json_texts.restored(table[field.name].combine_chunks(), field.type)
    read = plan.others[field.name]
    cells, is_read = [], np.ones(len(values), dtype=np.bool_)
    for place, value in enumerate(values.to_pylist()):
        try:
            part = orjson.loads(value).get(field.name)
            cells.append(None if part is None else read(part))
        except (json_texts.UndecidedError, orjson.JSONDecodeError):
            cells.append(None)
            is_read[place] = False
    return pa.array(cells, field.type), is_read


def _clean(values: pa.BinaryArray, plan: Plan) -> Mask:
    """The values that Arrow may see, by their bytes. Usually these are all, which must be fast."""
    is_clean = _mask(pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}")))
    if not is_clean.all():
        others = np.flatnonzero(~is_clean)
        trimmed = [value.strip(b" \t\r\n") for value in values.take(pa.array(others)).to_pylist()]
        is_clean[others] = [value[:1] == b"{" and value[-1:] == b"}" for value in trimmed]
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        is_clean &= np.array([_is_utf8(value) for value in values.to_pylist()])
    for place in np.unique(_suspects(values, plan)).tolist():
        is_clean[place] &= _is_plain(values[place].as_py(), plan)
    return is_clean


def _suspects(values: pa.BinaryArray, plan: Plan) -> Places:
    """Values that may contain something that Arrow must not see."""
    text = np.frombuffer(_bytes(values), dtype=np.uint8)
    if not len(text):
        return np.empty(0, dtype=np.int64)
    _, offsets, _ = values.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    places, brackets = [], []
    for start in range(0, len(text), _CHUNK):
        part = text[start : start + _CHUNK + _OVERLAP]
        places += [start + _numbers(part)] + ([start + _powers(part)] if plan.has_decimal else [])
        brackets.append(start + np.flatnonzero((part[:_CHUNK] & 0xDF) == ord("[")))  # and braces
    of_levels = np.concatenate(brackets)
    is_near = of_levels[DEEPEST:] - of_levels[:-DEEPEST] < np.diff(ends).max()
    hits = np.concatenate([*places, of_levels[:-DEEPEST][is_near]])
    suspects = np.searchsorted(ends - ends[0], hits, side="right") - 1
    if plan.has_decimal and ord("\\") in text:
        escaped = np.flatnonzero(_mask(pc.match_substring_regex(values, _ESCAPED.pattern.decode())))
        suspects = np.concatenate([suspects, escaped])
    return np.asarray(suspects)


def _numbers(text: Bytes) -> Places:
    """The places of NaN or Infinity."""
    nans = np.flatnonzero((text[1:-1] == ord("a")) & (text[2:] == ord("N")))
    infinities = np.flatnonzero((text[:-2] == ord("I")) & (text[2:] == ord("f")))
    return np.concatenate([nans[text[nans] == ord("N")], infinities[text[infinities + 1] == ord("n")]])


def _powers(text: Bytes) -> Places:
    """The places where a number, or a text that looks like one, may have a power of ten."""
    candidates: Places = np.flatnonzero(((text[1:-2] | 0x20) == ord("e")) & (text[:-3] - np.uint8(ord(".")) < 12))
    following = text[candidates + 2]
    is_digit = (following - np.uint8(ord("0")) < 10) & (text[candidates + 3] - np.uint8(ord("0")) < 10)
    powers: Places = candidates[is_digit | (following == ord("-")) | (following == ord("+"))]
    return powers


def _is_plain(value: bytes, plan: Plan) -> bool:
    if any(number in value for number in _NO_NUMBERS):
        return False
    if plan.has_decimal and (_POWER.search(value) or _ESCAPED.search(value)):
        return False
    return value.count(b"[") + value.count(b"{") <= DEEPEST or depth(value) <= DEEPEST


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of single values in a type of structs and lists, at every depth."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type)
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_type)
    else:
        yield kind


def _is_read(kind: pa.DataType, timestamps: Timestamps) -> bool:
    """Whether Arrow reads single values of this type from JSON, or their texts."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision + kind.scale <= _DIGITS)
    return not pa.types.is_map(kind) and (timestamps == "text" or not pa.types.is_timestamp(kind))


def _written(kind: pa.DataType) -> pa.DataType:
    """The type of its JSON form, nulls allowed."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _written(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_written(kind.value_type))
    is_text = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind)
    return pa.string() if is_text else kind


def _mask(flags: pa.BooleanArray) -> Mask:
    return np.array(flags.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _bytes(values: pa.BinaryArray) -> pa.Buffer:
    """The bytes of an array's values, one after the other."""
    _, offsets, text = values.buffers()
    if text is None or not len(values):
        return pa.py_buffer(b"")
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return text.slice(int(ends[0]), int(ends[-1] - ends[0]))
