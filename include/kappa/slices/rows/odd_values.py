"""Dates and texts within a value that not every writer and reader of a table takes: as SQL, and in Arrow's columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kappa.topology.ddl import quote
from kappa.topology.times.dates import FIRST_DAY, LAST_DAY
from kappa.wire.decoders import texts


@dataclass(frozen=True, kw_only=True)
class Odd:
    """Values of a type that are odd.

    Attributes:
        kind: the type, as a Delta schema has it.
        is_kind: whether a type of Arrow is it.
        sql: true of an odd value, whose place is in braces.
        mask: which of some values are odd.
        problem: what they are, for people; the column's place is in braces.
        remedy: what to do other than to leave them out, for people.
        is_sound: whether no value of a column is odd, at any depth, where that is known sooner than which are.
    """

    kind: str
    is_kind: Callable[[pa.DataType], bool]
    sql: str
    mask: Callable[[pa.Array], pa.Array]
    problem: str
    remedy: str
    is_sound: Callable[[pa.ChunkedArray], bool] = lambda _: False


def condition(odd: Odd, sql: str, kind: Any, depth: int = 0) -> str:
    """SQL: whether a value holds an odd one, never true of a null; empty if its type has none.

    Args:
        odd: says which are odd.
        sql: the value.
        kind: its type, as a Delta schema has it.
        depth: of lambdas around the value.
    """
    if isinstance(kind, str):
        return odd.sql.format(sql) if kind == odd.kind else ""
    if kind["type"] == "struct":
        fields = (condition(odd, f"{sql}.{quote(field['name'])}", field["type"], depth) for field in kind["fields"])
        parts = [part for part in fields if part]
    elif kind["type"] == "map":
        keys = _any(odd, f"MAP_KEYS({sql})", kind["keyType"], depth)
        parts = keys + _any(odd, f"MAP_VALUES({sql})", kind["valueType"], depth)
    else:
        parts = _any(odd, sql, kind["elementType"], depth)
    return f"({' OR '.join(parts)})" if parts else ""


def _any(odd: Odd, sql: str, kind: Any, depth: int) -> list[str]:
    each = f"_e{depth}"
    of_each = condition(odd, each, kind, depth + 1)
    return [f"EXISTS({sql}, {each} -> {of_each})"] if of_each else []


def odd_rows(odd: Odd, column: str, rows: pa.Table) -> pa.ChunkedArray | None:
    """Which rows hold an odd value in a column; None for none."""
    if odd.is_sound(rows[column]):
        return None
    return pa.chunked_array([_mask(odd, chunk) for chunk in rows[column].chunks], pa.bool_())


def _mask(odd: Odd, values: pa.Array) -> pa.Array:
    kind = values.type
    mask = pa.array(np.zeros(len(values), np.bool_))
    if pa.types.is_struct(kind):
        for field in kind:
            mask = pc.or_(mask, _mask(odd, pc.struct_field(values, [field.name])))
    elif pa.types.is_map(kind):
        entries = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        mask = _mask(odd, values.cast(pa.list_(entries)))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(values).filter(_mask(odd, pc.list_flatten(values)))
        mask = pa.array(np.isin(np.arange(len(values)), parents.to_numpy()))
    elif odd.is_kind(kind):
        mask = pc.fill_null(odd.mask(values), False)
    return pc.and_(mask, values.is_valid())


def _is_far(values: pa.Array) -> pa.Array:
    days = values.cast(pa.int32())
    return pc.or_(pc.less(days, FIRST_DAY), pc.greater(days, LAST_DAY))


def _is_broken(values: pa.Array) -> pa.Array:
    return texts(values.cast(pa.binary())).is_null()


def _is_utf8(values: pa.ChunkedArray) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


FAR_DATES = Odd(
    kind="date",
    is_kind=pa.types.is_date,
    sql=f"UNIX_DATE({{}}) NOT BETWEEN {FIRST_DAY} AND {LAST_DAY}",
    mask=_is_far,
    problem="a date in column {!r} before year -262143 or after year 262142",
    remedy="give them another date",
)
#: Of Spark's own text, which may be any bytes. Both writers write it, and no reader but Spark opens the table then.
BROKEN_TEXTS = Odd(
    kind="string",
    is_kind=lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    sql="NOT IS_VALID_UTF8({})",
    mask=_is_broken,
    problem="text in column {!r} that is not UTF-8",
    remedy="replace what is not UTF-8: MAKE_VALID_UTF8(text), or declare the column BINARY",
    is_sound=_is_utf8,
)
