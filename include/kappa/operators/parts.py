"""State that merges: the contribution of a row to its group, and how several contributions become one.

A :class:`Part` is a column of such a state. :func:`lifted` makes a part of each row, :func:`merged` combines parts of
rows with the state before the slice. Parts merge in any order and in any number of steps. A null part adds nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.keys import of_keys
from kappa.topology.ddl import Column, quote, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Column of a merged group: whether one of its parts came from the rows of the slice.
CHANGED = "_changed"
#: Columns of rows, by name.
Types = Mapping[str, Column]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One column of an operator's state.

    Attributes:
        name: the column.
        type: its type as Spark DDL.
        of_row: SQL, a scalar over a row: the value of a group with only this row. Empty for a column that is only
            derived.
        of_parts: SQL, an aggregate over this column: the value of several parts together. Likewise empty.
        derived: SQL, a scalar over the merged columns: the column's final value. Empty if that is the merged value.
        undone: SQL, a scalar over a row: a part that removes the row again. Empty if there is no such part.
        is_value: whether an author declared it; the others are kept in order to merge, and readers do not get them
            (:attr:`kappa.topology.Table.internal`).
        revision: that of an operator that keeps it, see :attr:`kappa.topology.operator.Operator.revision`.
        hashed: type of the values of which hashes are kept: equal values of two types have different ones. Empty for
            other aggregates, whose columns have the types of what is kept.
    """

    name: str
    type: str
    of_row: str = ""
    of_parts: str = ""
    derived: str = ""
    undone: str = ""
    is_value: bool = False
    revision: int = 1
    hashed: str = ""

    @property
    def ddl(self) -> str:
        """The column as Spark DDL."""
        return f"{quote(self.name)} {self.type}"


#: The origin of an emitted row, as a part; for operators that emit rows.
ORIGIN = Part(name=origin.ORIGIN, type=origin.ORIGIN_TYPE, of_row=origin.OF_ROW, of_parts=origin.OF_PARTS)


def value_sql(types: Types, column: str, what: str) -> str:
    """SQL of a column's value for an aggregate, in one form for equal values.

    Raises:
        TopologyError: there is no such column, or its values cannot be compared.
    """
    if column not in types:
        near = difflib.get_close_matches(column, types, n=1, cutoff=0.0)
        raise TopologyError(
            f"agg.{what}({column!r}): the rows have no such column. Did you mean {near[0] if near else None!r}? They "
            f"have {sorted(types)}.",
            column=column,
        )
    if what != "count" and _has_map(types[column].delta):
        raise TopologyError(
            f"agg.{what}({column!r}): the column is {types[column].type}; maps have no order. Name a column without "
            "maps.",
            column=column,
        )
    return _unsigned_zeros(quote(column), types[column].delta)


def revision_of_values(types: Types, *columns: str) -> int:
    """The revision of an operator whose first one kept the signs of zeros within values of these columns."""
    kinds = [types[column].delta for column in columns]
    return 2 if any(isinstance(kind, dict) and _has_zeros(kind) for kind in kinds) else 1


def _unsigned_zeros(sql: str, kind: Any, depth: int = 0) -> str:
    """SQL of a value with 0.0 for -0.0, at any depth: they are equal, and a result would show which one came first."""
    if not _has_zeros(kind):
        return sql
    if isinstance(kind, str):
        return f"CAST({sql} + 0D AS {kind.upper()})"
    if kind["type"] == "array":
        each = f"_e{depth}"
        return f"TRANSFORM({sql}, {each} -> {_unsigned_zeros(each, kind['elementType'], depth + 1)})"
    fields = [(quote(field["name"]), field["type"]) for field in kind["fields"]]
    values = ", ".join(f"{_unsigned_zeros(f'{sql}.{name}', one, depth)} AS {name}" for name, one in fields)
    return f"IF({sql} IS NULL, NULL, STRUCT({values}))"


def _has_zeros(kind: Any) -> bool:
    """Whether a type is one of numbers whose zeros have signs, or has such values within it."""
    if isinstance(kind, dict):
        parts = [field["type"] for field in kind["fields"]] if kind["type"] == "struct" else [kind.get("elementType")]
        return any(map(_has_zeros, parts))
    return kind in ("double", "float")


def with_nulls(sql: str, kind: Any, depth: int = 0) -> str:
    """SQL of a value that says where nulls are within another one, which hashes of Spark leave out.

    Args:
        sql: the value.
        kind: its type, as Delta writes it.
        depth: of lambdas around the value.
    """
    if not isinstance(kind, dict):
        return sql
    if kind["type"] == "struct":
        fields = [(f"{sql}.{quote(field['name'])}", field["type"]) for field in kind["fields"]]
        return f"STRUCT({', '.join(f'{of} IS NULL, {with_nulls(of, one, depth)}' for of, one in fields)})"
    each = f"_e{depth}"
    of_each = f"STRUCT({each} IS NULL, {with_nulls(each, kind['elementType'], depth + 1)})"
    return f"STRUCT(SIZE({sql}), TRANSFORM({sql}, {each} -> {of_each}))"


def values(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts that an author declared."""
    return tuple(part for part in parts if part.is_value)


def internal(parts: Iterable[Part]) -> tuple[str, ...]:
    """Names of the others, which a table keeps in order to merge."""
    return tuple(part.name for part in parts if not part.is_value)


def revision(parts: Iterable[Part]) -> int:
    """The revision of an operator that keeps them."""
    return max((part.revision for part in parts), default=1)


def ddl_of(parts: Iterable[Part]) -> str:
    """Parts as Spark DDL."""
    return ", ".join(part.ddl for part in parts)


def lifted(rows: DataFrame, keep: Sequence[str], parts: Sequence[Part], *, undo: bool = False) -> DataFrame:
    """Each row as a part of a state.

    Args:
        rows: rows with the aggregates' columns and, for ``first``, ``last``, ``collect`` and :data:`ORIGIN`, the order
            columns.
        keep: SQL of further columns to keep, including the groups, for example ``quote("symbol")``.
        parts: parts of the aggregates and of the operator.
        undo: whether the parts remove the rows again.
    """
    return rows.selectExpr(
        *keep, *(f"{part.undone if undo else part.of_row} AS {quote(part.name)}" for part in parts if part.of_parts)
    )


def merged(
    rows: DataFrame,
    before: DataFrame | None,
    group: Sequence[str],
    parts: Sequence[Part],
    *,
    also: str = "TRUE",
    seeks: bool = False,
) -> DataFrame:
    """Parts of rows and the state before the slice, merged and derived: one row per group.

    The rows are evaluated and shuffled once, and so is the state. If ``also`` excludes groups, the state is not sorted
    and only the requested groups are merged: with a large state this is several times as fast.

    Args:
        rows: result of :func:`lifted`.
        before: the state so far, one row per group, with the group columns and the parts'; None for none.
        group: names of the columns that define a group.
        parts: the parts with which ``rows`` were lifted.
        also: SQL condition on rows of ``before``: further groups of the result, in which no row is. ``FALSE`` for none.
        seeks: whether groups are sought in the state; only with ``FALSE``.

    Returns:
        The group columns, the parts' columns, and ``_changed BOOLEAN``: whether a row of ``rows`` is in the group.
    """
    keys, columns = quoted(group), [part.name for part in parts if part.of_parts]
    both = rows.selectExpr(*keys, *quoted(columns), f"TRUE AS {CHANGED}")
    if before is not None and also == "TRUE":
        both = both.union(before.selectExpr(*keys, *quoted(columns), f"FALSE AS {CHANGED}"))
    elif before is not None:
        both = _side_by_side(_grouped(both, keys, parts), before, group, [*quoted(columns), CHANGED], also, seeks)
    whole = _grouped(both, keys, parts)
    return derived(whole, [*keys, CHANGED], parts).select(*keys, *quoted(part.name for part in parts), CHANGED)


def derived(merged_parts: DataFrame, keep: Sequence[str], parts: Sequence[Part]) -> DataFrame:
    """Merged parts with the columns that are derived from them.

    Args:
        merged_parts: one row per group, with the columns of the parts that merge.
        keep: SQL of further columns to keep.
        parts: all of them.
    """
    return merged_parts.selectExpr(
        *keep, *(f"{part.derived or quote(part.name)} AS {quote(part.name)}" for part in parts)
    )


def _grouped(rows: DataFrame, keys: Sequence[str], parts: Sequence[Part]) -> DataFrame:
    """Parts of each group as one."""
    from pyspark.sql import functions as F

    return rows.groupBy(*keys).agg(
        *(F.expr(f"{part.of_parts} AS {quote(part.name)}") for part in parts if part.of_parts),
        F.expr(f"BOOL_OR({CHANGED}) AS {CHANGED}"),
    )


def _side_by_side(
    changed: DataFrame, before: DataFrame, group: Sequence[str], columns: Sequence[str], also: str, seeks: bool
) -> DataFrame:
    """The parts of changed groups, those of the same groups in the state, and those of requested groups."""
    keys, packed = quoted(group), f"STRUCT({', '.join(columns)})"
    # The changes are hashed, since they are usually smaller than the state: Spark would sort both.
    new = changed.selectExpr(*keys, f"{packed} AS _new").hint("shuffle_hash")
    old = before.selectExpr("*", f"FALSE AS {CHANGED}").selectExpr(*keys, f"{packed} AS _old", f"{also} AS _also")
    if also == "FALSE":
        old = of_keys(old, changed, group, seeks=seeks)
    joined = new.join(old, on=list(group), how="left" if also == "FALSE" else "full")
    pair = "CASE WHEN _old IS NULL THEN ARRAY(_new) WHEN _new IS NULL THEN ARRAY(_old) ELSE ARRAY(_new, _old) END"
    return joined.where("_new IS NOT NULL OR _also").selectExpr(*keys, f"INLINE({pair})")


def _has_map(kind: Any) -> bool:
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "struct":
        return any(_has_map(part["type"]) for part in kind["fields"])
    return kind["type"] == "map" or _has_map(kind["elementType"])
