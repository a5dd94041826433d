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
    """Whether two values are the same, null being the same as null."""
    return comparable(was, before, after).eqNullSafe(comparable(now, after, before))


def comparable(column: Column, kind: DataType, other: DataType) -> Column:
    """A value in a form that is the same for equal values of another type: numbers by their digits, the rest as text.

    Spark would compare numbers in a type common to both, which may have no room for all digits of either.
    """
    if is_number(kind) and is_number(other) and kind != other:
        return _digits(column.cast("string"))
    return column if kind == other and not _is_nested(kind) else as_text(column, kind, is_retyped=kind != other)


def _digits(text: Column) -> Column:
    """A number in any notation as its significant digits and their power of ten; NaN and infinity as they are."""
    from pyspark.sql import functions as F

    sign, number = F.regexp_extract(text, "^-", 0), F.regexp_extract(text, "[0-9.]+", 0)
    power = F.coalesce(F.nullif(F.regexp_extract(text, "E(.+)", 1), F.lit("")).cast("int"), F.lit(0))
    digits = F.replace(number, F.lit("."), F.lit(""))
    significant = F.ltrim(digits, F.lit("0"))
    power += F.length(F.substring_index(number, ".", 1)) - F.length(digits) + F.length(significant)
    form = F.concat(sign, F.rtrim(significant, F.lit("0")), F.lit("E"), power)
    return F.when(number == "", text).when(significant == "", "0").otherwise(form)


def is_number(kind: DataType) -> bool:
    """Whether it is a type of numbers."""
    from pyspark.sql.types import NumericType

    return isinstance(kind, NumericType)


def _is_nested(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    return isinstance(kind, (ArrayType, MapType, StructType))


def as_text(column: Column, kind: DataType, *, is_retyped: bool = False) -> Column:
    """A value as text: neither maps nor values of different types can be compared as they are.

    Args:
        is_retyped: whether it is compared with a value of another type, so that all numbers within are digits, and
            fields of a STRUCT, which may have another order there, are in that of their names.
    """
    from pyspark.sql import functions as F

    if not _is_nested(kind):
        return column.cast("string")
    return F.to_json(F.struct(_canonical(column, kind, is_retyped).alias("v")))


def _canonical(column: Column, kind: DataType, is_retyped: bool) -> Column:
    """A value whose JSON is complete and the same for equal values: entries of maps in the order of their keys, zeros
    without a sign, and times in whole microseconds, of which Spark's JSON has only the milliseconds; at any depth.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType, TimestampType

    if isinstance(kind, (DoubleType, FloatType)) or (is_retyped and is_number(kind)):
        return _digits(column.cast("string"))
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda item: _canonical(item, kind.elementType, is_retyped))
    if isinstance(kind, StructType):
        parts = sorted(kind.fields, key=lambda f: f.name) if is_retyped else kind.fields
        fields = [_canonical(column.getField(f.name), f.dataType, is_retyped).alias(f.name) for f in parts]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, MapType):
        entries = F.array_sort(
            F.map_entries(column),
            lambda one, other: F.when(one["key"] < other["key"], -1).when(one["key"] > other["key"], 1).otherwise(0),
        )
        return F.transform(
            entries,
            lambda entry: F.struct(
                _canonical(entry["key"], kind.keyType, is_retyped).alias("k"),
                _canonical(entry["value"], kind.valueType, is_retyped).alias("v"),
            ),
        )
    return column
