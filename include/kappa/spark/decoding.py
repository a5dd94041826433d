"""Rows back from the JSON that :mod:`kappa.kafka.json_forms` describes, by Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kappa.topology.ddl import Column, quote

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import DataType


def decoded(text: SparkColumn, columns: Iterable[Column]) -> SparkColumn:
    """A STRUCT of these columns, all nullable, from JSON text; the job fails where the text is of another form."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    wanted = StructType.fromDDL(", ".join(f"{quote(column.name)} {column.type}" for column in columns))
    read = F.from_json(text, _written(wanted), {"mode": "FAILFAST"})  # type: ignore[arg-type]  # a STRUCT stays one
    return _restored(read, wanted)


def _is_odd(kind: DataType) -> bool:
    """Whether a MAP in it has keys that are no names in JSON."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        return any(_is_odd(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_odd(kind.elementType)
    return isinstance(kind, MapType) and (not isinstance(kind.keyType, StringType) or _is_odd(kind.valueType))


def _written(kind: DataType) -> DataType:
    """The type as which JSON has it: an array of entries for a MAP whose keys are no names."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _written(field.dataType)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_written(kind.elementType))
    if not isinstance(kind, MapType):
        return kind
    if isinstance(kind.keyType, StringType):
        return MapType(kind.keyType, _written(kind.valueType))
    entry = [StructField("key", _written(kind.keyType)), StructField("value", _written(kind.valueType))]
    return ArrayType(StructType(entry))


def _restored(value: SparkColumn, kind: DataType) -> SparkColumn:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if not _is_odd(kind):
        return value
    if isinstance(kind, StructType):
        fields = [_restored(value.getField(field.name), field.dataType).alias(field.name) for field in kind]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda item: _restored(item, kind.elementType))
    assert isinstance(kind, MapType)
    inner = kind
    if isinstance(kind.keyType, StringType):
        return F.transform_values(value, lambda _, item: _restored(item, inner.valueType))
    entries = F.transform(
        value,
        lambda entry: F.struct(
            _restored(entry.getField("key"), inner.keyType).alias("key"),
            _restored(entry.getField("value"), inner.valueType).alias("value"),
        ),
    )
    return F.map_from_entries(entries)
