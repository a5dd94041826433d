"""Rows as Avro values in Confluent's wire format, and such values as Python objects."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kappa.topology.schemas.wire_schemas import WriterSchema

#: Function from rows to their values.
Encode = Callable[[pa.Table], Iterator[bytes]]
#: Largest number of rows that are Python objects at a time.
_CHUNK = 10_000
_HEADER = 5


def encoder(number: int, text: str, columns: Sequence[str]) -> Encode:
    """An encoder of these columns of rows with a schema.

    Args:
        number: the schema's id.
        text: the schema, as :func:`kappa.topology.schemas.avro_schema.avro_schema` made it.
        columns: its fields.
    """
    import fastavro

    schema, header = fastavro.parse_schema(_numbers(json.loads(text))), b"\0" + number.to_bytes(_HEADER - 1)

    def values(rows: pa.Table) -> Iterator[bytes]:
        selection = rows.select(list(columns))
        plain = selection.cast(pa.schema([pa.field(field.name, _plain(field.type)) for field in selection.schema]))
        for batch in plain.to_batches(max_chunksize=_CHUNK):
            for row in batch.to_pylist(maps_as_pydicts="lossy"):
                value = io.BytesIO()
                value.write(header)
                fastavro.schemaless_writer(value, schema, row)
                yield value.getvalue()

    return values


def decoder(schemas: Mapping[int, WriterSchema]) -> Callable[[bytes], Any]:
    """A decoder of values that :func:`encoder` wrote with one of these schemas; times become numbers, and other values
    stay as they are.
    """
    import fastavro

    parsed_schemas = {number: fastavro.parse_schema(_numbers(json.loads(one.text))) for number, one in schemas.items()}

    def content(value: bytes) -> Any:
        schema = parsed_schemas.get(int.from_bytes(value[1:_HEADER])) if value[:1] == b"\0" else None
        if schema is None:
            return value
        datum = io.BytesIO(value)
        datum.seek(_HEADER)
        return fastavro.schemaless_reader(datum, schema, None)

    return content


def _numbers(schema: Any) -> Any:
    """A schema whose dates and times are numbers: Python has fewer years than Spark."""
    if isinstance(schema, list):
        return [_numbers(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    drop = schema.get("logicalType") != "decimal"
    return {name: _numbers(part) for name, part in schema.items() if not (drop and name == "logicalType")}


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type whose dates and times are numbers."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        list_of = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return list_of(_plain(kind.value_type))
    return kind
