"""Rows back from the JSON that :mod:`kappa.wire.json.json_forms` describes, by the reader of topics' values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kappa.errors import DataLossError
from kappa.topology.ddl import Column, ddl_of
from kappa.wire.json.json_values import decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Largest number of values that are read at a time.
_ROWS = 50_000


def rows_of(values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """A row for each value, in order; fields of an object that are not columns are ignored.

    Args:
        values: values of :func:`kappa.wire.encoding.json_values`.
        schema: the columns.

    Raises:
        DataLossError: a value is not a row of the schema.
    """
    kind = pa.struct([field.with_nullable(True) for field in schema])
    portions = (pa.array(values[first : first + _ROWS], pa.binary()) for first in range(0, len(values), _ROWS))
    batches = [_batch(portion, kind) for portion in portions]
    rows = pa.Table.from_batches(batches, pa.schema(list(kind)))
    absent = [field.name for field in schema if not field.nullable and rows[field.name].null_count]
    if absent:
        raise _unreadable(f"{absent[0]} is NOT NULL and absent")
    return rows.cast(schema)


def frame_of(values: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """The same for a frame with the single column ``value`` BINARY, in tasks of Spark; its job fails with the same
    error.

    Args:
        values: the frame, without null values.
        columns: the columns, all of which are nullable in the result.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl_of(replace(column, nullable=True) for column in columns))
    assert isinstance(schema, StructType)
    kind = pa.struct(list(to_arrow_schema(schema, timezone="UTC")))

    def batches(read: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in read:
            yield _batch(batch["value"], kind)

    return values.mapInArrow(batches, schema)


def _batch(values: pa.BinaryArray, kind: pa.StructType) -> pa.RecordBatch:
    rows, reasons = decoded(values, kind)
    reason = next((reason for reason in reasons if reason is not None), None)
    if reason is not None:
        raise _unreadable(reason)
    return pa.RecordBatch.from_struct_array(rows)


def _unreadable(reason: str) -> DataLossError:
    return DataLossError(
        f"A value of a changelog is not a row of its table: {reason}. Another program wrote to the topic, or the "
        "table's schema has changed. Replay --to-earliest, which computes the table from the records."
    )
