"""The registry of one machine, as Confluent's own client sees it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from support.avro import record

from kappa.errors import RegistryUnreachableError, SchemaRefusedError
from kappa.kafka.registry import Registry
from kappa.topology.schemas.wire_schemas import WriterSchema
from kappa_local.compatibility import reads, reads_json
from kappa_local.registry import server


@contextmanager
def running(home: Path, port: int = 0) -> Iterator[str]:
    """The url of a registry that answers."""
    with server(home, port) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listener.server_address[1]}"
        listener.shutdown()


ONE = json.dumps(record(("n", "int")))
TWO = json.dumps(record(("n", "long")))
OTHER = json.dumps(record(("n", "string")))


def test_an_id_belongs_to_a_schema_whatever_the_subject_and_survives_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as url:
        registry = Registry(url)
        assert [registry.register(subject, ONE) for subject in ("a/b-value", "c-value", "a/b-value")] == [1, 1, 1]
        assert registry.register("a/b-value", TWO) == 2
    with running(tmp_path) as url:
        registry = Registry(url)
        assert registry.schema(2) == WriterSchema(text=TWO)
        assert registry.schema(3) is None
        assert registry.register("c-value", TWO) == 2


def json_schema(required: list[str], **properties: Any) -> str:
    """A closed object."""
    return json.dumps({"type": "object", "properties": properties, "required": required, "additionalProperties": False})


INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
MAYBE = {"oneOf": [{"type": "null"}, TEXT]}


def test_a_json_schema_has_ids_and_versions_of_its_own(tmp_path: Path) -> None:
    text = json_schema(["n"], n=INTEGER)
    with running(tmp_path) as url:
        registry = Registry(url)
        assert registry.register("x-value", text, "JSON") == 1
        assert registry.register("y-value", ONE) == 2
        assert registry.is_compatible("x-value", json_schema(["n"], n=INTEGER, note=MAYBE), "JSON")
        assert not registry.is_compatible("x-value", ONE)
        with pytest.raises(SchemaRefusedError, match="incompatible with version 1"):
            registry.register("x-value", json_schema(["n"], n=TEXT), "JSON")
    with running(tmp_path) as url:
        registry = Registry(url)
        assert registry.schema(1) == WriterSchema(text=text, kind="JSON")
        assert registry.schema(2) == WriterSchema(text=ONE)
        assert registry.register("z-value", text, "JSON") == 1


@pytest.mark.parametrize(
    ("reader", "writer", "is_read"),
    [
        (json_schema(["n"], n=NUMBER), json_schema(["n"], n=INTEGER), True),
        (json_schema(["n"], n=INTEGER), json_schema(["n"], n=NUMBER), False),
        (json_schema([], n=INTEGER), json_schema(["n"], n=INTEGER), True),
        (json_schema(["n"], n=INTEGER), json_schema([], n=INTEGER), False),
        (json_schema([], n=INTEGER, t=MAYBE), json_schema([], n=INTEGER), True),
        (json_schema([], n=INTEGER), json_schema([], n=INTEGER, t=MAYBE), False),
        (json_schema([], t=MAYBE), json_schema([], t=TEXT), True),
        (json_schema([], t=TEXT), json_schema([], t=MAYBE), False),
        (
            json_schema([], a={"type": "array", "items": MAYBE}),
            json_schema([], a={"type": "array", "items": TEXT}),
            True,
        ),
        (
            json_schema([], m={"type": "object", "additionalProperties": TEXT}),
            json_schema([], m={"type": "object", "additionalProperties": NUMBER}),
            False,
        ),
    ],
)
def test_a_json_schema_may_read_the_values_of_another_one(reader: str, writer: str, is_read: bool) -> None:
    assert reads_json(json.loads(reader), json.loads(writer)) is is_read


def test_a_schema_that_cannot_read_its_predecessor_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as url:
        registry = Registry(url)
        assert registry.is_compatible("x-value", OTHER)
        assert registry.register("x-value", ONE) == 1
        assert registry.is_compatible("x-value", TWO)
        assert not registry.is_compatible("x-value", OTHER)
        with pytest.raises(SchemaRefusedError, match="incompatible with version 1 of subject 'x-value'"):
            registry.register("x-value", OTHER)
        with pytest.raises(SchemaRefusedError):
            registry.register("x-value", "no json")


def test_an_absent_or_wrong_registry_is_not_an_unknown_id(tmp_path: Path) -> None:
    with running(tmp_path) as url:
        registry = Registry(url.replace("//", "//user:secret@"))
        wrong = Registry(f"{url}/elsewhere")
        with pytest.raises(RegistryUnreachableError, match="not as a registry"):
            wrong.schema(1)
    with pytest.raises(RegistryUnreachableError, match="does not answer") as error:
        registry.schema(1)
    assert "secret" not in str(error.value)
    with pytest.raises(RegistryUnreachableError, match="KAPPA_SCHEMA_REGISTRY"):
        Registry("").schema(1)


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("long", "int", True),
        ("int", "long", False),
        (["null", "string"], "string", True),
        ("string", ["null", "string"], False),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, False),
        (record(("n", "int"), ("m", "int")), record(("n", "int")), False),
        (record(("n", "int")), record(("n", "int"), ("m", "int")), True),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            False,
        ),
    ],
)
def test_schemas_are_resolved_as_avro_specifies(reader: Any, writer: Any, expected: bool) -> None:
    assert reads(reader, writer) is expected


def test_a_new_field_needs_a_default() -> None:
    reader = record(("n", "int"), ("m", ["null", "int"]))
    assert not reads(reader, record(("n", "int")))
    reader["fields"][1]["default"] = None
    assert reads(reader, record(("n", "int")))


def test_a_closed_registry_answers_no_open_connection(tmp_path: Path) -> None:
    served = server(tmp_path, 0)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    client = HTTPConnection("127.0.0.1", served.server_port, timeout=30)
    client.request("GET", "/subjects")
    assert client.getresponse().read()
    served.shutdown()
    served.server_close()
    assert client.sock is not None, "the client keeps its connection"
    client.auto_open = 0
    with pytest.raises((HTTPException, OSError)):
        client.request("GET", "/subjects")
        client.getresponse()
