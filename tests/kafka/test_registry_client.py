"""What a schema registry answers, over HTTP: references, compatibility, and logins."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.avro import record

from kappa.errors import RegistryUnreachableError
from kappa.kafka.registry import Registry
from kappa.topology.schemas.wire_schemas import WriterSchema

COLOUR = json.dumps({"type": "enum", "name": "Colour", "symbols": ["RED"]})
CAR = json.dumps(record(("colour", "Colour")))
REFERENCES = [{"name": "Colour", "subject": "colours", "version": 1}]
DELETED = {"error_code": 40401, "message": "Subject 'colours' not found."}
KEPT = {"subject": "colours", "version": 1, "id": 1, "schema": COLOUR}


@contextmanager
def registry_with(answers: dict[str, tuple[int, Any]]) -> Iterator[str]:
    """The address of a registry that has these answers by path, and knows no other schema."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?normalize=")[0]
            status, content = answers.get(path, (404, {"error_code": 40403, "message": "Schema not found"}))
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Do not log requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("of_deleted", "expected"),
    [((200, KEPT), WriterSchema(text=CAR, references=(COLOUR,))), ((404, DELETED), None)],
    ids=["as deleted", "for good"],
)
def test_a_schema_is_read_after_what_it_refers_to_was_deleted(of_deleted: tuple[int, Any], expected: object) -> None:
    versions = "/subjects/colours/versions/1?deleted="
    schema = {"schema": CAR, "references": REFERENCES}
    answers = {"/schemas/ids/2": (200, schema), f"{versions}false": (404, DELETED), f"{versions}true": of_deleted}
    with registry_with(answers) as address:
        assert Registry(f"http://{address}").schema(2) == expected


@pytest.mark.parametrize(
    ("latest", "others", "is_compatible"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_schema_is_compatible_with_all_versions_that_its_subject_asks_for(
    latest: bool, others: bool, is_compatible: bool
) -> None:
    versions = "/compatibility/subjects/cars-value/versions"
    answers = {f"{versions}/latest": (200, {"is_compatible": latest}), versions: (200, {"is_compatible": others})}
    with registry_with(answers) as address:
        assert Registry(f"http://{address}").is_compatible("cars-value", CAR) == is_compatible


@pytest.mark.parametrize("password", ["secret", "se@cret", "se,cret", "se/cret", "se:cret@,@"])
def test_no_part_of_a_password_is_in_a_message(password: str) -> None:
    host = "127.0.0.1"
    registry = Registry(f"http://{host}:1,https://user:{password}@{host}:2/path,http://{host}:3")

    assert registry.name == f"http://{host}:1,https://{host}:2/path,http://{host}:3"
    with pytest.raises(RegistryUnreachableError, match="does not answer") as error:
        registry.schema(1)
    assert "cret" not in str(error.value)
