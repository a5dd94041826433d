"""Nulls within a value, where its type says NOT NULL: as SQL, and in Arrow's columns.

A path leads from a column to the field: a name for the field of a STRUCT, None for each element of an ARRAY and each
value of a MAP. A null STRUCT, ARRAY or MAP lacks nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kappa.topology.ddl import Path, quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Path", "condition", "nulls_at", "shown"]


def shown(column: str, path: Path) -> str:
    """A field for people: ``items[].sku``."""
    return column + "".join("[]" if part is None else f".{part}" for part in path)


def condition(sql: str, kind: Any, path: Path, depth: int = 0) -> str:
    """SQL: whether a value has a null there.

    Args:
        sql: the value.
        kind: its type, as a Delta schema has it.
        path: leads to the field.
        depth: of lambdas around the value.
    """
    if not path:
        return f"{sql} IS NULL"
    part, rest = path[0], path[1:]
    if part is not None:
        field = next(field["type"] for field in kind["fields"] if field["name"] == part)
        return f"({sql} IS NOT NULL AND {condition(f'{sql}.{quote(part)}', field, rest, depth)})"
    each = f"_e{depth}"
    elements, of = (f"MAP_VALUES({sql})", "valueType") if kind["type"] == "map" else (sql, "elementType")
    return f"EXISTS({elements}, {each} -> {condition(each, kind[of], rest, depth + 1)})"


def nulls_at(rows: pa.ChunkedArray, path: Path) -> pa.ChunkedArray:
    """Which values of a column have a null there."""
    import pyarrow as pa

    return pa.chunked_array([_nulls_at(chunk, path) for chunk in rows.chunks], pa.bool_())


def _nulls_at(values: pa.Array, path: Path) -> pa.Array:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not path:
        return values.is_null()
    if path[0] is not None:
        return pc.and_(values.is_valid(), _nulls_at(pc.struct_field(values, [path[0]]), path[1:]))
    if pa.types.is_map(values.type):
        entries = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        values = values.cast(pa.list_(entries))
        path = (None, "value", *path[1:])
    parents = pc.list_parent_indices(values).filter(_nulls_at(pc.list_flatten(values), path[1:]))
    return pa.array(np.isin(np.arange(len(values)), parents.to_numpy()))
