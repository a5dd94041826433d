"""Avro values in Confluent's wire format, written by fastavro, and a schema registry in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

from kappa.errors import RegistryUnreachableError
from kappa.topology.schemas.wire_schemas import WriterSchema


def record(*fields: tuple[str, Any], name: str = "Row") -> dict[str, Any]:
    """A record schema of these fields."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def wired(number: int, schema: Any, value: Any) -> bytes:
    """A value as a producer of Confluent's sends it."""
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4) + datum.getvalue()


class FakeRegistry:
    """A registry that knows these schemas, and may be away."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self.schemas = {number: WriterSchema(text=json.dumps(schema)) for number, schema in schemas.items()}
        self.is_away = False
        self.requests: list[int] = []

    def schema(self, number: int) -> WriterSchema | None:
        self.requests.append(number)
        if self.is_away:
            raise RegistryUnreachableError("The registry of this test is away.")
        return self.schemas.get(number)

    def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        if self.is_away:
            raise RegistryUnreachableError("The registry of this test is away.")
        for number, one in self.schemas.items():
            if (one.text, one.kind) == (text, kind):
                return number
        number = max(self.schemas, default=0) + 1
        self.schemas[number] = WriterSchema(text=text, kind=kind)
        return number
