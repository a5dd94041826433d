"""Rows as values that begin with the id of a schema, in Confluent's wire format, and such values as Python objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from kappa.topology.schemas.wire_schemas import WriterSchema
from kappa.wire import avro_values
from kappa.wire.avro_values import Encode
from kappa.wire.encoding import json_values

_HEADER = 5
#: More digits than a number in a column has.
_DIGITS = Context(prec=1_000)


def encoder(number: int, schema: WriterSchema, columns: Sequence[str]) -> Encode:
    """An encoder of these columns of rows with a schema: Avro, or JSON as in topics without a schema.

    Args:
        number: the schema's id.
        schema: as :func:`kappa.topology.schemas.value_schemas.value_schema` made it.
        columns: its fields.
    """
    if schema.kind == "AVRO":
        return avro_values.encoder(number, schema.text, columns)
    header = b"\0" + number.to_bytes(_HEADER - 1)

    def values(rows: pa.Table) -> Iterator[bytes]:
        return (header + value for value in json_values(rows, columns) if value is not None)

    return values


def by_digits(value: bytes) -> Any:
    """A JSON value with its numbers by their digits: as doubles, two long DECIMALs may be the same."""
    return json.loads(value, parse_int=_number, parse_float=_number)


def _number(text: str) -> Decimal:
    return Decimal(text).normalize(_DIGITS)


def decoder(schemas: Mapping[int, WriterSchema]) -> Callable[[bytes], Any]:
    """A decoder of values that :func:`encoder` wrote with one of these schemas; other values stay as they are."""
    avro = avro_values.decoder({number: one for number, one in schemas.items() if one.kind == "AVRO"})
    json_ids = {number for number, one in schemas.items() if one.kind == "JSON"}

    def content(value: bytes) -> Any:
        if value[:1] == b"\0" and int.from_bytes(value[1:_HEADER]) in json_ids:
            return by_digits(value[_HEADER:])
        return avro(value)

    return content
