"""A schema registry for one machine: Confluent's REST routes for Avro and JSON Schema, over HTTP on loopback.

It stores everything in one file of the home, so that ids survive a restart. Its only compatibility is ``BACKWARD``: the
new schema reads the values of the latest one. It has no deletion, references or contexts, and is for demo and tests.

Source of routes and error codes: Confluent, "Schema Registry API Reference".
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kappa_local.compatibility import reads, reads_json
from kappa_local.state import write_json

HOST = "127.0.0.1"

AVRO = "AVRO"
#: Types of schemas that it accepts.
KINDS = (AVRO, "JSON")
_TYPE = "application/vnd.schemaregistry.v1+json"
_Answer = tuple[int, Any]


class _Server(ThreadingHTTPServer):
    """A server that ends its connections when it is closed; otherwise clients with open connections would still get
    answers.
    """

    def __init__(self, *arguments: Any) -> None:
        self._open: set[Any] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):  # its client has closed it
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()


def server(home: Path, port: int) -> ThreadingHTTPServer:
    """A registry that is bound to its port; ``serve_forever`` answers. Port 0 means any free port."""
    store = SchemaStore(home / "registry.json")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(store.get(self._parts()))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                request = json.loads(body)
                schema, kind = request["schema"], request.get("schemaType") or AVRO
                json.loads(schema)
            except (ValueError, KeyError, TypeError):
                self._answer(_error(422, 42201, "The body has no schema of Avro or JSON Schema."))
                return
            if kind not in KINDS:
                self._answer(_error(422, 42201, f"This registry does not support schemas of type {kind}."))
                return
            self._answer(store.post(self._parts(), schema, kind))

        def _parts(self) -> list[str]:
            return [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]

        def _answer(self, answer: _Answer) -> None:
            status, content = answer
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Do not log requests."""

    return _Server((HOST, port), Handler)


class SchemaStore:
    """The content of a registry: schemas by id, and versions by subject.

    Args:
        path: its file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        content = json.loads(path.read_text()) if path.is_file() else {}
        self._schemas: list[str] = content.get("schemas", [])
        self._subjects: dict[str, list[int]] = content.get("subjects", {})
        #: Ids of schemas that are not Avro, as text, with their type.
        self._kinds: dict[str, str] = content.get("types", {})

    def get(self, parts: list[str]) -> _Answer:
        """The answer to a GET of this path."""
        answer = _error(404, 404, "HTTP 404 Not Found")
        match parts:
            case ["subjects"]:
                answer = 200, sorted(self._subjects)
            case ["subjects", subject, "versions"]:
                versions = self._subjects.get(subject)
                answer = (200, list(range(1, len(versions) + 1))) if versions else _no_subject(subject)
            case ["subjects", subject, "versions", version]:
                answer = self._version(subject, version)
            case ["schemas", "ids", number]:
                is_known = number.isdigit() and 1 <= int(number) <= len(self._schemas)
                answer = _error(404, 40403, f"Schema {number} not found.")
                answer = (200, self._schema(int(number))) if is_known else answer
            case ["schemas", "types"]:
                answer = 200, list(KINDS)
            case ["config", *_]:
                answer = 200, {"compatibilityLevel": "BACKWARD"}
        return answer

    def post(self, parts: list[str], schema: str, kind: str = AVRO) -> _Answer:
        """The answer to a POST of a schema to this path."""
        with self._lock:
            match parts:
                case ["subjects", subject]:
                    return self._lookup(subject, schema, kind)
                case ["subjects", subject, "versions"]:
                    return self._register(subject, schema, kind)
                case ["compatibility", "subjects", subject, "versions", *version]:
                    status, latest = self._version(subject, *version or ["latest"])
                    is_compatible = status == 200 and _is_compatible(schema, kind, latest)
                    return (200, {"is_compatible": is_compatible}) if status == 200 else (status, latest)
        return _error(404, 404, "HTTP 404 Not Found")

    def _version(self, subject: str, version: str) -> _Answer:
        versions = self._subjects.get(subject)
        if not versions:
            return _no_subject(subject)
        at = len(versions) if version == "latest" else int(version) if version.isdigit() else 0
        if not 1 <= at <= len(versions):
            return _error(404, 40402, f"Version {version} not found.")
        number = versions[at - 1]
        return 200, {"subject": subject, "version": at, "id": number, **self._schema(number)}

    def _schema(self, number: int) -> dict[str, str]:
        """A schema, with its type if that is not Avro."""
        kind = self._kind(number)
        return {"schema": self._schemas[number - 1], **({} if kind == AVRO else {"schemaType": kind})}

    def _kind(self, number: int) -> str:
        return self._kinds.get(str(number), AVRO)

    def _is(self, number: int, schema: str, kind: str) -> bool:
        return self._kind(number) == kind and json.loads(self._schemas[number - 1]) == json.loads(schema)

    def _lookup(self, subject: str, schema: str, kind: str) -> _Answer:
        versions = self._subjects.get(subject)
        if not versions:
            return _no_subject(subject)
        for at, number in enumerate(versions, start=1):
            if self._is(number, schema, kind):
                return 200, {"subject": subject, "version": at, "id": number, **self._schema(number)}
        return _error(404, 40403, "Schema not found.")

    def _register(self, subject: str, schema: str, kind: str) -> _Answer:
        status, content = self._lookup(subject, schema, kind)
        if status == 200:
            return 200, {"id": content["id"]}
        status, latest = self._version(subject, "latest")
        if status == 200 and not _is_compatible(schema, kind, latest):
            message = (
                f"Schema being registered is incompatible with version {latest['version']} of subject {subject!r}."
            )
            return _error(409, 409, message)
        same = [n for n in range(1, len(self._schemas) + 1) if self._is(n, schema, kind)]
        if not same:
            self._schemas.append(schema)
            if kind != AVRO:
                self._kinds[str(len(self._schemas))] = kind
        self._subjects.setdefault(subject, []).append(number := same[0] if same else len(self._schemas))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, {"schemas": self._schemas, "subjects": self._subjects, "types": self._kinds})
        return 200, {"id": number}


def _is_compatible(schema: str, kind: str, latest: dict[str, Any]) -> bool:
    """Whether a schema may follow the latest one of its subject, which is of the same type."""
    before = json.loads(latest["schema"])
    if kind != latest.get("schemaType", AVRO):
        return False
    return reads(json.loads(schema), before) if kind == AVRO else reads_json(json.loads(schema), before)


def _no_subject(subject: str) -> _Answer:
    return _error(404, 40401, f"Subject {subject!r} not found.")


def _error(status: int, code: int, message: str) -> _Answer:
    return status, {"error_code": code, "message": message}
