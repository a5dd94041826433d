"""The schema of a topic's values, in the language of its format."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.topology.ddl import Column
from kappa.topology.schemas.avro_schema import avro_schema
from kappa.topology.schemas.json_schema import json_schema
from kappa.topology.schemas.wire_schemas import WriterSchema


def value_schema(format: str, name: str, columns: Iterable[Column], *, is_loose: bool = False) -> WriterSchema:
    """The schema of columns.

    Args:
        format: ``avro`` or ``json_schema``.
        name: name of the topic.
        columns: the declared columns.
        is_loose: whether every column may be null.

    Raises:
        TopologyError: the format does not support such columns.
    """
    if format == "json_schema":
        return WriterSchema(text=json_schema(name, columns, is_loose=is_loose), kind="JSON")
    return WriterSchema(text=avro_schema(name, columns, is_loose=is_loose))
