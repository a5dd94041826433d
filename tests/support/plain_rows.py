"""Rows as Python values that can be compared bit by bit: times and dates are numbers, other numbers are texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def plain_rows(values: pa.Array) -> list[Any]:
    """Each value; a STRUCT is a dict of its fields, a MAP a list of pairs, null is None."""
    kind = values.type
    if pa.types.is_struct(kind):
        parts = [plain_rows(part) for part in values.flatten()] or [[None] * len(values)]
        names = [field.name for field in kind]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
        return [row if is_one else None for row, is_one in zip(rows, values.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind):
        keys, items = plain_rows(values.keys), plain_rows(values.items)
        return _lists(values, list(zip(keys, items, strict=True)))
    if pa.types.is_list(kind):
        return _lists(values, plain_rows(values.values))
    if pa.types.is_timestamp(kind):
        return list(values.cast(pa.int64()).to_pylist())
    if pa.types.is_date(kind):
        return list(values.cast(pa.int32()).to_pylist())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return [None if value is None else str(value) for value in values.to_pylist()]
    return list(values.to_pylist())


def _lists(values: pa.Array, items: list[Any]) -> list[Any]:
    offsets = values.offsets.to_pylist()
    spans = zip(values.is_valid().to_pylist(), offsets[:-1], offsets[1:], strict=True)
    return [items[start:end] if is_one else None for is_one, start, end in spans]
