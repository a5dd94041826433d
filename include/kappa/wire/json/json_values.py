"""JSON values decoded into the declared columns: by Arrow in bulk, and by the converter if Arrow may not decide.

:mod:`kappa.wire.json.json_converter` defines the row of each value, and ``docs/json.md`` describes it. The result for a
value never depends on the values beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kappa.wire.json.json_converter import NOT_JSON, Timestamps, UnfitError, convert, tree
from kappa.wire.json.json_lines import Mask, bulk_rows


def decoded(
    values: pa.BinaryArray, kind: pa.StructType, timestamps: Timestamps = "text"
) -> tuple[pa.StructArray, list[str | None]]:
    """A row for each value, and why it is a dead letter; rows of those, and of nulls, are null.

    Args:
        values: bytes of any content.
        kind: the declared columns, all nullable. ``NOT NULL`` within a STRUCT is checked here.
        timestamps: meaning of numbers, and of texts of digits, in TIMESTAMP columns.
    """
    reasons: list[str | None] = [None] * len(values)
    rows, is_left = bulk_rows(values, kind, timestamps)
    places = np.flatnonzero(is_left)
    if not len(places):
        return rows, reasons
    row_of = convert(kind, timestamps)
    others = _built(values.take(pa.array(places)), places, kind, lambda value: row_of(tree(value)), reasons)
    return _merged(rows, others, is_left), reasons


def built(
    values: pa.BinaryArray, kind: pa.StructType, row_of: Callable[[bytes], Any]
) -> tuple[pa.StructArray, pa.StringArray]:
    """A row for each value by a function of it alone, and the reason if it is a dead letter; rows of dead letters and
    of nulls are null.

    Args:
        values: bytes of any content.
        kind: the columns, all nullable.
        row_of: gives the row, or raises UnfitError with the reason.
    """
    reasons: list[str | None] = [None] * len(values)
    rows = _built(values, np.arange(len(values)), kind, row_of, reasons)
    return rows, pa.array(reasons, pa.string())


def _built(
    values: pa.BinaryArray, places: Any, kind: pa.StructType, row_of: Callable[[bytes], Any], reasons: list[str | None]
) -> pa.StructArray:
    rows: list[Any] = []
    for place, value in zip(places.tolist(), values.to_pylist(), strict=True):
        try:
            rows.append(None if value is None else row_of(value))
        except UnfitError as error:
            rows.append(None)
            reasons[place] = str(error)
        except Exception:  # any error that hostile bytes cause concerns this value alone
            rows.append(None)
            reasons[place] = NOT_JSON
    return _array(rows, kind, places, reasons)


def _array(rows: list[Any], kind: pa.StructType, places: Any, reasons: list[str | None]) -> pa.StructArray:
    try:
        return pa.array(rows, kind)
    except Exception:  # Arrow refuses one of them: search for it
        for number, row in enumerate(rows):
            try:
                pa.array([row], kind)
            except Exception:
                rows[number], reasons[int(places[number])] = None, NOT_JSON
        return pa.array(rows, kind)


def _merged(rows: pa.StructArray, others: pa.StructArray, is_other: Mask) -> pa.StructArray:
    """Rows with others in some places."""
    if is_other.all():
        return others
    place = np.where(is_other, len(rows) + np.cumsum(is_other) - 1, np.arange(len(rows)))
    return pa.concat_arrays([rows, others]).take(pa.array(place))
