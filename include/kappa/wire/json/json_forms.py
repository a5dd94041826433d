"""The JSON form of each type, from Arrow; readers of topics (``docs/json.md``) read it back without loss.

====================  ==========================================================================================
type                  form
====================  ==========================================================================================
integers, BOOLEAN     number; ``true`` or ``false``
DECIMAL               number with all its digits, never with an exponent
DOUBLE, FLOAT         number; ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` as text
STRING                text
BINARY                base64 as text
DATE                  ISO 8601; years past 9999 as ``+10000-01-01``, years before 0 as ``-0001-01-01``
TIMESTAMP             ISO 8601 in UTC with microseconds, years as in a DATE: ``2026-03-01T12:00:00.123000Z``
ARRAY, STRUCT         array, object
MAP                   object when its keys are STRING, else array of ``{"key": ..., "value": ...}``
durations, intervals  ISO 8601, as results of a query have them: ``PT90.5S``, ``P1M2DT0S``
====================  ==========================================================================================
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

#: Largest number of rows that are Python objects at a time.
_CHUNK = 10_000
#: Days from 0001-01-01 to 1970-01-01, and of 400 years, after which the calendar repeats.
_FIRST, _CYCLE = 719_162, 146_097
_DAY = 86_400_000_000
#: First and last day, counted from 1970, of years with four digits.
_DAYS = (-_FIRST, 2_932_896)


def json_rows(rows: pa.Table, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """These columns of each row in their JSON form, as objects for orjson."""
    for batch in rows.select(list(columns)).to_batches(max_chunksize=_CHUNK):
        values = [json_forms(column) for column in batch.columns]
        for row in zip(*values, strict=True):
            yield dict(zip(columns, row, strict=True))


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python objects; columns with dates or times beyond Python's range have their JSON forms."""
    columns = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            columns[name] = column.to_pylist()
        except (OverflowError, ValueError):
            columns[name] = [form for chunk in column.chunks for form in json_forms(chunk)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def json_forms(values: pa.Array) -> list[Any]:
    """The JSON form of each value, None for null."""
    for is_kind, forms in _FORMS:
        if is_kind(values.type):
            return forms(values)
    return list(values.to_pylist())


def _each(values: pa.Array, form: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else form(value) for value in values.to_pylist()]


def _numbers(values: pa.Array) -> list[Any]:
    return _each(values, _number) if _has_strange(values) else list(values.to_pylist())


def _structs(values: pa.StructArray) -> list[Any]:
    names = [field.name for field in values.type]
    parts = [json_forms(child) for child in values.flatten()]
    rows = zip(values.is_valid().to_pylist(), zip(*parts, strict=True), strict=True)
    return [dict(zip(names, row, strict=True)) if ok else None for ok, row in rows]


def _arrays(values: pa.Array) -> list[Any]:
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return _lists(values, json_forms(values.values.slice(first, last - first)))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_array(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _decimal(value: Decimal) -> orjson.Fragment:
    return orjson.Fragment(format(value, "f"))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _durations(values: pa.Array) -> list[Any]:
    micros = values.cast(pa.duration("us"), safe=False).cast(pa.int64())
    return _each(micros, lambda value: f"PT{_seconds(value * 1000)}S")


def _interval(value: Any) -> str:
    months, days, nanos = value
    return f"P{months}M{days}DT{_seconds(nanos)}S"


def _seconds(nanos: int) -> str:
    return format(Decimal(nanos).scaleb(-9).normalize(), "f")


def _has_strange(values: pa.Array) -> bool:
    return not pc.all(pc.is_finite(values), min_count=0).as_py()


def _lists(values: pa.Array, items: list[Any]) -> list[Any]:
    """Lists of items, which begin at the first list."""
    offsets = values.offsets.to_numpy() - values.offsets[0].as_py()
    spans = zip(values.is_valid().to_pylist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return [items[start:end] if ok else None for ok, start, end in spans]


def _maps(values: pa.MapArray) -> list[Any]:
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    keys, items = (json_forms(part.slice(first, last - first)) for part in (values.keys, values.items))
    entries = _lists(values, list(zip(keys, items, strict=True)))
    if pa.types.is_string(values.type.key_type) or pa.types.is_large_string(values.type.key_type):
        return [None if entry is None else dict(entry) for entry in entries]
    return [None if entry is None else [{"key": k, "value": v} for k, v in entry] for entry in entries]


def time_texts(values: pa.Array) -> pa.Array:
    """The JSON form of each timestamp, as large text."""
    micros = values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64())  # nanoseconds are cut off
    end = "" if values.type.tz is None else "Z"
    near, far = _DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1
    texts = _texts(micros, near, far, _time, pa.timestamp("us"))
    kind = pa.large_string()
    return pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T"), pa.scalar(end, kind), pa.scalar("", kind))


def date_texts(values: pa.Array) -> pa.Array:
    """The JSON form of each date, as large text."""
    return _texts(values.cast(pa.date32()).cast(pa.int32()), *_DAYS, _date, pa.date32())


def replaced(texts: pa.Array, where: pa.Array, others: Iterable[str]) -> pa.Array:
    """Texts with replacements in some places; a null in ``where`` is not such a place."""
    return pc.replace_with_mask(texts, where.fill_null(False), pa.array(others, texts.type))


def _texts(numbers: pa.Array, first: int, last: int, text: Callable[[int], str], kind: pa.DataType) -> pa.Array:
    """Arrow's text for numbers within years of four digits, and ours for the others."""
    is_near = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    near = pc.if_else(is_near, numbers, pa.scalar(None, numbers.type))
    texts = near.cast(kind).cast(pa.large_string())
    if near.null_count == numbers.null_count:
        return texts
    far = pc.invert(is_near)
    return replaced(texts, far, [text(number) for number in numbers.filter(far).to_pylist()])


def _date(days: int) -> str:
    cycles, day = divmod(days + _FIRST, _CYCLE)
    at = date.fromordinal(day + 1)
    year = at.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{at.month:02d}-{at.day:02d}"


def _time(micros: int) -> str:
    days, rest = divmod(micros, _DAY)
    seconds, micros = divmod(rest, 1_000_000)
    return f"{_date(days)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"


#: Types whose values from Arrow are not JSON.
_FORMS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]]] = [
    (pa.types.is_timestamp, lambda values: list(time_texts(values).to_pylist())),
    (pa.types.is_date, lambda values: list(date_texts(values).to_pylist())),
    (pa.types.is_floating, _numbers),
    (pa.types.is_decimal, lambda values: _each(values, _decimal)),
    (pa.types.is_duration, _durations),
    (pa.types.is_interval, lambda values: _each(values, _interval)),
    (_is_bytes, lambda values: _each(values, _base64)),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
    (_is_array, _arrays),
]
