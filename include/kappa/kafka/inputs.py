"""Values of records for tests of topologies: what a test gives as Python's values, in the format of its source."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from kappa.kafka.avro_values import Encode, encoder
from kappa.topology import Source, Topic
from kappa.topology.avro_schema import avro_schema
from kappa.topology.ddl import Column
from kappa.topology.wire_schemas import WriterSchema, WriterSchemas

#: The schema ids of tests: that of values, and that of keys.
_ID, _KEY_ID = 1, 2


def input_value(source: Source, value: Mapping[str, Any] | bytes | str | None) -> bytes | None:
    """A mapping as JSON, or as Avro with a schema made from the source's columns; text as UTF-8; bytes as they are.

    For Avro dates, times and decimals are Python's own, and a column that is absent is null.
    """
    if not isinstance(value, Mapping):
        return value.encode() if isinstance(value, str) else value
    return _avro(value, _ID, _text(source)) if source.format == "avro" else orjson.dumps(value)


def input_key(source: Source, key: Mapping[str, Any] | bytes | str | int | None) -> bytes | None:
    """A mapping as JSON, or as Avro with a schema made from the columns of the source's keys; a number in the bytes of
    its ``key_format``; text as UTF-8; bytes as they are.
    """
    if isinstance(key, Mapping):
        return _avro(key, _KEY_ID, _key_text(source)) if source.key_format == "avro" else orjson.dumps(key)
    if isinstance(key, int):
        sizes = {"int": 4, "long": 8}
        return key.to_bytes(sizes[source.key_format], signed=True) if source.key_format in sizes else str(key).encode()
    return key.encode() if isinstance(key, str) else key


def input_schemas(source: Source, ids: Collection[int]) -> WriterSchemas:
    """The schemas of ids in tests: those of :func:`input_value` and :func:`input_key`, and no others."""
    texts = {_ID: _text, _KEY_ID: _key_text}
    return {number: WriterSchema(text=texts[number](source)) if number in texts else None for number in ids}


def _avro(value: Mapping[str, Any], number: int, schema: str) -> bytes:
    """A value in the wire format of a schema registry."""
    import fastavro

    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(json.loads(schema)), dict(value))
    return b"\0" + number.to_bytes(4) + datum.getvalue()


def output_encoder(topic: Topic, columns: Sequence[Column]) -> Encode | None:
    """What encodes the values of a topic output in tests; None for JSON."""
    if topic.format != "avro":
        return None
    return encoder(_ID, avro_schema(topic.name, columns), [column.name for column in columns])


def _text(source: Source) -> str:
    return avro_schema(source.topic, source.value_columns, is_loose=True)


def _key_text(source: Source) -> str:
    return avro_schema(f"{source.topic}.key", source.key_columns, is_loose=True)
