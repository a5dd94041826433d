"""Values of records for tests of topologies: Python values of a test in the format of its source."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson

from kappa.errors import TopologyError
from kappa.topology import Source, Topic
from kappa.topology.ddl import Column
from kappa.topology.schemas.value_schemas import value_schema
from kappa.topology.schemas.wire_schemas import BY_SCHEMA_ID, WriterSchema, WriterSchemas
from kappa.wire.avro_values import Encode
from kappa.wire.wire_values import encoder

#: The schema ids in tests: one for values, and one for keys.
_ID, _KEY_ID = 1, 2


def input_value(source: Source, value: Mapping[str, Any] | bytes | str | None) -> bytes | None:
    """A mapping as JSON, or as Avro with a schema made from the source's columns; text as UTF-8; bytes as they are.

    For JSON, each value is in the form that readers of topics take for its type (``docs/json.md``). For Avro, dates,
    times and decimals are Python's own, and an absent column is null. A time without a zone is in UTC.
    """
    if not isinstance(value, Mapping):
        return value.encode() if isinstance(value, str) else value
    if source.envelope != "none" and source.format == "avro":
        raise TopologyError(
            f"Source {source.topic!r} reads change records in Avro, and a mapping has only the row. Give the record's "
            "bytes; or test the topology with format='json' and a mapping with the whole change."
        )
    return _written(source.format, value, _ID, lambda: _schema(source).text)


def input_key(source: Source, key: Mapping[str, Any] | bytes | str | int | None) -> bytes | None:
    """A mapping as JSON, or as Avro with a schema made from the columns of the source's keys; a number in the bytes of
    its ``key_format``; text as UTF-8; bytes as they are.
    """
    if isinstance(key, Mapping):
        return _written(source.key_format, key, _KEY_ID, lambda: _key_schema(source).text)
    if isinstance(key, int):
        sizes = {"int": 4, "long": 8}
        return key.to_bytes(sizes[source.key_format], signed=True) if source.key_format in sizes else str(key).encode()
    return key.encode() if isinstance(key, str) else key


def input_schemas(source: Source, ids: Collection[int]) -> WriterSchemas:
    """The schemas of ids in tests, which are only those of :func:`input_value` and :func:`input_key`."""
    makers = {_ID: _schema, _KEY_ID: _key_schema}
    return {number: makers[number](source) if number in makers else None for number in ids}


def _written(format: str, value: Mapping[str, Any], number: int, schema: Callable[[], str]) -> bytes:
    if format == "avro":
        return _avro(value, number, schema())
    return (b"\0" + number.to_bytes(4) if format == "json_schema" else b"") + orjson.dumps(_form(value))


def _form(value: Any) -> Any:
    """The JSON form of a value of Python: what readers of topics take for its type, without loss."""
    if isinstance(value, Mapping):
        return {name: _form(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_form(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _number(value) if isinstance(value, float | Decimal | int) else value


def _number(value: float | Decimal) -> Any:
    """A number with all its digits, or the word for one that has none."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    is_plain = isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 63)
    return value if is_plain else orjson.Fragment(format(value, "f" if isinstance(value, Decimal) else "d"))


def _avro(value: Mapping[str, Any], number: int, schema: str) -> bytes:
    """A value in the wire format of a schema registry."""
    import fastavro

    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(json.loads(schema)), _in_utc(value))
    return b"\0" + number.to_bytes(4) + datum.getvalue()


def _in_utc(value: Any) -> Any:
    """A value whose times without a zone are in UTC, as JSON has them. For Avro they would be in the host's zone."""
    if isinstance(value, Mapping):
        return {name: _in_utc(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_in_utc(one) for one in value]
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def output_encoder(topic: Topic, columns: Sequence[Column]) -> Encode | None:
    """The encoder of a topic output's values in tests; None for JSON."""
    if topic.format not in BY_SCHEMA_ID:
        return None
    schema = value_schema(topic.format, topic.name, columns)
    return encoder(_ID, schema, [column.name for column in columns])


def _schema(source: Source) -> WriterSchema:
    return value_schema(source.format, source.topic, source.value_columns, is_loose=True)


def _key_schema(source: Source) -> WriterSchema:
    return value_schema(source.key_format, f"{source.topic}.key", source.key_columns, is_loose=True)
