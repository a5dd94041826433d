"""Equality of values of any depth, and of columns whose type has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.topology.ddl import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def row_hashes(frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """128 bits of a row, ``_hash_0`` and ``_hash_1``; nulls count by their place, which xxhash64 skips."""
    from pyspark.sql import functions as F

    columns = [(F.col(quote(name)), frame.schema[name].dataType) for name in names]
    parts = [as_text(column, kind) if _is_nested(kind) else column for column, kind in columns]
    nulls = F.concat(*(F.when(F.col(quote(name)).isNull(), "1").otherwise("0") for name in names))
    return [F.xxhash64(F.lit(seed), nulls, *parts).alias(f"_hash_{seed}") for seed in (0, 1)]


def equal(was: Column, now: Column, before: DataType, after: DataType) -> Column:
    """Whether two values are the same, null being the same as null; of different types as numbers or as text."""
    if not is_comparable(before, after) or _is_nested(before):
        was, now = as_text(was, before), as_text(now, after)
    return was.eqNullSafe(now)


def is_comparable(before: DataType, after: DataType) -> bool:
    """Whether values of two types can be compared as they are."""
    return before == after or (is_number(before) and is_number(after))


def is_number(kind: DataType) -> bool:
    """Whether it is a type of numbers."""
    from pyspark.sql.types import NumericType

    return isinstance(kind, NumericType)


def _is_nested(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    return isinstance(kind, (ArrayType, MapType, StructType))


def as_text(column: Column, kind: DataType) -> Column:
    """A value as text: neither maps nor values of different types can be compared as they are."""
    from pyspark.sql import functions as F

    if not _is_nested(kind):
        return column.cast("string")
    return F.to_json(F.struct(_canonical(column, kind).alias("v")))


def _canonical(column: Column, kind: DataType) -> Column:
    """A value whose JSON is complete: entries of maps in the order of their keys, and times in whole microseconds, of
    which Spark's JSON has only the milliseconds; at any depth.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda item: _canonical(item, kind.elementType))
    if isinstance(kind, StructType):
        fields = [_canonical(column.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, MapType):
        entries = F.array_sort(
            F.map_entries(column),
            lambda one, other: F.when(one["key"] < other["key"], -1).when(one["key"] > other["key"], 1).otherwise(0),
        )
        return F.transform(
            entries,
            lambda entry: F.struct(
                _canonical(entry["key"], kind.keyType).alias("k"), _canonical(entry["value"], kind.valueType).alias("v")
            ),
        )
    return column
