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

#: The one schema id of tests.
_ID = 1


def input_value(source: Source, value: Mapping[str, Any] | bytes | str | None) -> bytes | None:
    """A mapping as JSON, or as Avro with a schema made from the source's columns; text as UTF-8; bytes as they are.

    For Avro dates, times and decimals are Python's own, and a column that is absent is null.
    """
    if not isinstance(value, Mapping):
        return value.encode() if isinstance(value, str) else value
    if source.format != "avro":
        return orjson.dumps(value)
    import fastavro

    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(json.loads(_text(source))), dict(value))
    return b"\0" + _ID.to_bytes(4) + datum.getvalue()


def input_schemas(source: Source, ids: Collection[int]) -> WriterSchemas:
    """The schemas of ids in tests: that of :func:`input_value`, and no other."""
    return {number: WriterSchema(text=_text(source)) if number == _ID else None for number in ids}


def output_encoder(topic: Topic, columns: Sequence[Column]) -> Encode | None:
    """What encodes the values of a topic output in tests; None for JSON."""
    if topic.format != "avro":
        return None
    return encoder(_ID, avro_schema(topic.name, columns), [column.name for column in columns])


def _text(source: Source) -> str:
    return avro_schema(source.topic, source.columns, is_loose=True)
