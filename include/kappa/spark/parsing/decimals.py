"""Numbers that ``from_json`` would not come back from.

It rounds a DECIMAL by arithmetic on all its digits: ``1e-214748364`` keeps a core busy for hours, and one such record
would hold up a topic for ever. They are found beforehand, with decimals read as text, and become dead letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

#: An exponent of five digits, or a thousand digits on end; neither fits any DECIMAL.
_ENDLESS = "[0-9.][eE][+-]?0*[1-9][0-9]{4}|[0-9]{1000}"
#: What Spark makes of such a number when it is to be text: it goes through a double.
_PAST_DOUBLE = ("0.0", "-0.0", '"Infinity"', '"-Infinity"')


def is_endless(text: Column, wanted: StructType) -> Column:
    """Whether a JSON text may hold such a number where a DECIMAL is wanted, or is too broken to tell; never null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    if not _has_decimal(wanted):
        return F.lit(False)
    as_text = StructType(
        [*(StructField(f.name, _as_text(f.dataType)) for f in wanted), StructField("_broken", StringType())]
    )
    read = F.from_json(text, as_text, {"columnNameOfCorruptRecord": "_broken"})
    # Names and texts such as "5e12345" do no harm: outside the quotes it is a number.
    outside = F.regexp_replace(F.regexp_replace(text, r"(?s)\\.", ""), '"[^"]*+"', "")
    is_number = outside.rlike(_ENDLESS)
    is_one = F.exists(
        F.concat(*_texts(read, wanted)),
        lambda number: number.rlike(_ENDLESS) | (is_number & number.isin(*_PAST_DOUBLE)),
    )
    found = F.when(text.rlike(_ENDLESS), read.getField("_broken").isNotNull() | F.coalesce(is_one, F.lit(False)))
    return F.coalesce(found, F.lit(False))


def _has_decimal(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, StructType):
        return any(_has_decimal(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_decimal(kind.elementType)
    return isinstance(kind, DecimalType) or (isinstance(kind, MapType) and _has_decimal(kind.valueType))


def _as_text(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _as_text(field.dataType)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_as_text(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _as_text(kind.valueType))
    return StringType() if isinstance(kind, DecimalType) else kind


def _texts(value: Column, kind: DataType) -> list[Column]:
    """Arrays of the texts of all decimals in a value; null ones where a part is null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    none = F.array().cast("array<string>")
    if not _has_decimal(kind):
        return []
    if isinstance(kind, StructType):
        return [text for field in kind for text in _texts(value.getField(field.name), field.dataType)]
    if isinstance(kind, (ArrayType, MapType)):
        inner = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        items = value if isinstance(kind, ArrayType) else F.map_values(value)
        return [F.coalesce(F.flatten(F.transform(items, lambda item: F.concat(none, *_texts(item, inner)))), none)]
    return [F.when(value.isNotNull(), F.array(value)).otherwise(none)]
