"""Rows as JSON by columns: each column becomes text as a whole, and the texts of a row are joined.

The bytes are those that orjson makes from :mod:`kappa.wire.json.json_forms`, in a fraction of the time: Arrow's kernels
write integers, booleans, decimals, dates, times and text. Floating-point numbers and nested values go through orjson
one by one, so that a key keeps its bytes, on which compaction depends.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kappa.wire.json.json_forms import date_texts, json_forms, replaced, time_texts

#: Largest number of rows whose texts are in memory at a time.
CHUNK = 20_000
_TEXT = pa.large_string()
#: Characters that a JSON text must escape.
_ESCAPED = r'["\\\x00-\x1f]'
#: Digits after the point up to which Arrow's text of a decimal has no exponent.
_PLAIN_SCALE = 6


def json_objects(rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Array]:
    """These columns of each row as a JSON object, in arrays of large text.

    Raises:
        ValueError: a text is not UTF-8.

    Examples:
        >>> rows = pa.table({"id": ["a"], "total": pa.array([1.5], pa.float64())})
        >>> [text.to_pylist() for text in json_objects(rows, ["id", "total"])]
        [['{"id":"a","total":1.5}']]
    """
    if not columns:
        raise ValueError("A JSON object of a row needs a column.")
    for batch in rows.select(list(columns)).to_batches(max_chunksize=CHUNK):
        parts: list[pa.Array | str] = []
        for number, (name, values) in enumerate(zip(columns, batch.columns, strict=True)):
            parts += [f"{',' if number else '{'}{orjson.dumps(name).decode()}:", json_texts(values)]
        yield _joined([*parts, "}"])


def json_lists(rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Array]:
    """These columns of each row as a JSON array, in arrays of large text; errors as :func:`json_objects`."""
    for batch in rows.select(list(columns)).to_batches(max_chunksize=CHUNK):
        parts: list[pa.Array | str] = []
        for number, values in enumerate(batch.columns):
            parts += ["," if number else "[", json_texts(values)]
        yield _joined([*parts, "]"])


def json_texts(values: pa.Array) -> pa.Array:
    """The JSON of each value as large text; null for a null.

    Raises:
        ValueError: a text is not UTF-8.
    """
    for is_kind, texts in _TEXTS:
        if is_kind(values.type):
            return texts(values)
    return _one_by_one(values)


def _joined(parts: list[pa.Array | str]) -> pa.Array:
    scalars = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", _TEXT), null_handling="replace", null_replacement="null")


def _one_by_one(values: pa.Array) -> pa.Array:
    return pa.array([None if form is None else _dumped(form) for form in json_forms(values)], _TEXT)


def _dumped(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def _strings(values: pa.Array) -> pa.Array:
    texts = values.cast(_TEXT)
    texts.validate(full=True)  # Spark's own text may be any bytes
    quoted = _quoted(texts)
    needs = pc.match_substring_regex(texts, _ESCAPED)
    if not pc.any(needs, min_count=0).as_py():
        return quoted
    return replaced(quoted, needs, [_dumped(text) for text in texts.filter(needs).to_pylist()])


def _quoted(texts: pa.Array) -> pa.Array:
    mark = pa.scalar('"', _TEXT)
    return pc.binary_join_element_wise(mark, texts, mark, pa.scalar("", _TEXT))


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(_TEXT)


def _decimals(values: pa.Array) -> pa.Array:
    texts = values.cast(_TEXT)
    if 0 <= values.type.scale <= _PLAIN_SCALE:
        return texts
    has_exponent = pc.match_substring(texts, "E")
    return replaced(texts, has_exponent, [format(value, "f") for value in values.filter(has_exponent).to_pylist()])


def _base64(values: pa.Array) -> pa.Array:
    return pa.array(
        [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in values.to_pylist()], _TEXT
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


#: Types that Arrow's kernels write; any other type goes through orjson.
_TEXTS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = [
    (_is_text, _strings),
    (pa.types.is_integer, _plain),
    (pa.types.is_boolean, _plain),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_timestamp, lambda values: _quoted(time_texts(values))),
    (pa.types.is_date, lambda values: _quoted(date_texts(values))),
    (_is_bytes, _base64),
]
