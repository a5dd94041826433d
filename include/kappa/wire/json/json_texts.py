"""Columns that Arrow read from JSON, converted to their declared types: texts to times, dates and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kappa.wire.json import json_scalars

Mask = npt.NDArray[np.bool_]

#: Texts that Arrow casts like our grammar.
_TIMES = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z?$"
_DATES = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


class UndecidedError(Exception):
    """Left to the converter."""


def restored(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """A column of its declared type, and which of its values are good; None if all are.

    Raises:
        UndecidedError: a part of some value does not have its type.
    """
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return _nested(values, kind), None
    if pa.types.is_timestamp(kind):
        return _cells(values, kind, _time_cast(values), json_scalars.micros)
    if pa.types.is_date(kind):
        return _cells(values, kind, _date_cast(values), json_scalars.days)
    if pa.types.is_binary(kind):
        return _cells(values, kind, None, json_scalars.content)
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(values), min_count=0).as_py():
        raise UndecidedError  # the converter does not accept a number out of range either
    return values, None


def _nested(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(kind):
        items, _ = _whole(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=values.is_null())
    parts = []
    for number, field in enumerate(kind):
        part, _ = _whole(values.field(number), field.type)
        if not field.nullable and pc.any(pc.and_(pc.is_null(part), pc.is_valid(values)), min_count=0).as_py():
            raise UndecidedError
        parts.append(part)
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())


def _whole(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, None]:
    column, is_good = restored(values, kind)
    if is_good is not None:
        raise UndecidedError
    return column, None


def _cells(
    values: pa.Array, kind: pa.DataType, cast: pa.Array | None, number: Callable[[str], Any]
) -> tuple[pa.Array, Mask | None]:
    """The texts cast by Arrow, or one by one if it does not accept all of them."""
    if cast is not None:
        return cast, None
    cells: list[Any] = []
    is_good = np.ones(len(values), dtype=np.bool_)
    for place, text in enumerate(values.to_pylist()):
        try:
            cells.append(None if text is None else number(text))
        except ValueError:
            cells.append(None)
            is_good[place] = False
    return pa.array(cells, kind), None if is_good.all() else is_good


def _time_cast(texts: pa.StringArray) -> pa.Array | None:
    if not pc.all(pc.match_substring_regex(texts, _TIMES), min_count=0).as_py():
        return None
    try:
        return pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return None


def _date_cast(texts: pa.StringArray) -> pa.Array | None:
    if not pc.all(pc.match_substring_regex(texts, _DATES), min_count=0).as_py():
        return None
    try:
        return texts.cast(pa.date32())
    except pa.ArrowInvalid:
        return None
