"""Dates within a value that only one of both writers can write: as SQL, and in Arrow's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kappa.topology.ddl import quote
from kappa.topology.times.dates import FIRST_DAY, LAST_DAY

if TYPE_CHECKING:
    import pyarrow as pa


def condition(sql: str, kind: Any, depth: int = 0) -> str:
    """SQL: whether a value holds such a date, never true of a null; empty if its type has no dates.

    Args:
        sql: the value.
        kind: its type, as a Delta schema has it.
        depth: of lambdas around the value.
    """
    if isinstance(kind, str):
        return f"UNIX_DATE({sql}) NOT BETWEEN {FIRST_DAY} AND {LAST_DAY}" if kind == "date" else ""
    if kind["type"] == "struct":
        fields = (condition(f"{sql}.{quote(field['name'])}", field["type"], depth) for field in kind["fields"])
        parts = [part for part in fields if part]
    elif kind["type"] == "map":
        parts = _any(f"MAP_KEYS({sql})", kind["keyType"], depth) + _any(f"MAP_VALUES({sql})", kind["valueType"], depth)
    else:
        parts = _any(sql, kind["elementType"], depth)
    return f"({' OR '.join(parts)})" if parts else ""


def _any(sql: str, kind: Any, depth: int) -> list[str]:
    each = f"_e{depth}"
    of_each = condition(each, kind, depth + 1)
    return [f"EXISTS({sql}, {each} -> {of_each})"] if of_each else []


def far_dates(column: str, rows: pa.Table) -> pa.ChunkedArray:
    """Which rows hold such a date in a column."""
    import pyarrow as pa

    return pa.chunked_array([_far(chunk) for chunk in rows[column].chunks], pa.bool_())


def _far(values: pa.Array) -> pa.Array:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_date(kind):
        days = values.cast(pa.int32())
        return pc.fill_null(pc.or_(pc.less(days, FIRST_DAY), pc.greater(days, LAST_DAY)), False)
    mask = pa.array(np.zeros(len(values), np.bool_))
    if pa.types.is_struct(kind):
        for field in kind:
            mask = pc.or_(mask, _far(pc.struct_field(values, field.name)))
    elif pa.types.is_map(kind):
        entries = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        mask = _far(values.cast(pa.list_(entries)))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(values).filter(_far(pc.list_flatten(values)))
        mask = pa.array(np.isin(np.arange(len(values)), parents.to_numpy()))
    return pc.and_(mask, values.is_valid())
