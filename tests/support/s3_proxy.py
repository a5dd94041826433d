"""A proxy in front of an S3 server that counts requests and injects faults.

Bytes are forwarded as they came, the Host header too, so that signatures stay valid. A request is read whole before it
goes on: one that was held is carried out after its client died, as a request in a network is.

    with s3_proxy(server) as proxy:
        held = proxy.hold(r"_delta_log/0+1\\.json")
        ...                                  # a writer behind `proxy.server` commits version 1
        held.await_arrival()
        held.release()
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs, unquote, urlsplit

from kappa_local.kafka import HOST
from support.s3_server import S3Server

#: The answer of a server that closes the connection instead.
CUT = None
#: What S3 calls the statuses that it gives.
_CODES = {
    400: "ExpiredToken",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    500: "InternalError",
    503: "SlowDown",
}
_PIECE = 1 << 16
_IN_MEMORY = 8 << 20
#: How long a test waits for a request, and a held request for its release.
_WAIT_SECONDS = 30.0
_HELD_SECONDS = 600.0
#: Queries of a bucket that list its objects; a bucket without a query is listed too.
_LISTINGS = {"list-type", "delimiter", "prefix", "marker", "versions", "uploads"}

#: Headers that are not the answer's: the proxy keeps a client's connection though the server closes its own.
_OF_ONE_CONNECTION = {"connection", "keep-alive"}
_BODILESS = {204, 304}
_ACCESS_KEY = re.compile(r"Credential=([^/]+)/")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request that arrived.

    Attributes:
        method: its HTTP method.
        kind: GET, HEAD, PUT, LIST, DELETE or POST. A POST that deletes objects is a DELETE.
        key: the object, without its bucket; for a LIST the prefix.
        query: parameters.
    """

    method: str
    kind: str
    key: str
    query: dict[str, list[str]]


class Treatment(Enum):
    """What happens to a request."""

    REFUSE = auto()
    HOLD = auto()
    HOLD_ANSWER = auto()
    LOSE_ANSWER = auto()


@dataclass(kw_only=True)
class Fault:
    """What a proxy does with some requests.

    Attributes:
        treatment: what it does.
        key: pattern that is searched in the key.
        kinds: kinds of requests; empty for all.
        nth: the first matching request that it happens to, from 1.
        times: how many requests it happens to; None until :meth:`release`.
        seconds: how long it happens after the first; None for as long as `times` says.
        status: what the client gets; :data:`CUT` closes the connection.
        requests: those that it happened to.
        answers: statuses that the server gave to those it carried out; None where it gave none.
    """

    treatment: Treatment
    key: str
    kinds: frozenset[str]
    nth: int = 1
    times: int | None = 1
    seconds: float | None = None
    status: int | None = CUT
    code: str = ""
    requests: list[Request] = field(default_factory=list)
    answers: list[int | None] = field(default_factory=list)
    _matches: int = 0
    _until: float | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let held requests go on, and leave later ones alone. Idempotent."""
        self._released.set()

    def await_arrival(self, count: int = 1, seconds: float = _WAIT_SECONDS) -> None:
        """Wait until it happened to this many requests; one that is held counts."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.requests) >= count, seconds)
        assert arrived, f"Not within {seconds} s: {count} requests of {self}"

    def await_answer(self, count: int = 1, seconds: float = _WAIT_SECONDS) -> None:
        """Wait until the server answered this many of the requests."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.answers) >= count, seconds)
        assert arrived, f"Not within {seconds} s: {count} answers to requests of {self}"

    def takes(self, request: Request) -> bool:
        """Whether it happens to a request, which counts from then on."""
        if (self.kinds and request.kind not in self.kinds) or not re.search(self.key, request.key):
            return False
        with self._changed:
            self._matches += 1
            if self._released.is_set() or self._matches < self.nth:
                return False
            if self.times is not None and self._matches >= self.nth + self.times:
                return False
            if self.seconds is not None:
                self._until = self._until or time.monotonic() + self.seconds
                if time.monotonic() > self._until:
                    return False
            self.requests.append(request)
            self._changed.notify_all()
            return True

    def note_answer(self, status: int | None) -> None:
        """Record what the server answered."""
        with self._changed:
            self.answers.append(status)
            self._changed.notify_all()

    def await_release(self) -> None:
        """Wait as a held request does."""
        self._released.wait(_HELD_SECONDS)


class Proxy:
    """A proxy that listens.

    Attributes:
        server: the server as clients reach it through the proxy.
        delay_ms: how long each request waits before it goes on.
        requests: all requests that arrived, oldest first.
        refusals: those among them whose key was not permitted.
        permits: whether a request may use an access key.
        defects: errors of the proxy itself.
    """

    def __init__(
        self, upstream: S3Server, *, certificate: Path | None = None, permits: Callable[[str], bool] = lambda _: True
    ) -> None:
        self.delay_ms = 0.0
        self.requests: list[Request] = []
        self.refusals: list[Request] = []
        self.permits = permits
        self.defects: list[BaseException] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._connections: set[socket.socket] = set()
        address = urlsplit(upstream.endpoint)
        self._upstream = (address.hostname or HOST, address.port or 80)
        self._listener = _Listener(self)
        scheme = "http" if certificate is None else "https"
        if certificate is not None:
            self._listener.socket = encrypted(self._listener.socket, certificate)
        self.server = replace(upstream, endpoint=f"{scheme}://{HOST}:{self._listener.server_port}")
        threading.Thread(target=self._listener.serve_forever, args=(0.05,), name="s3-proxy", daemon=True).start()

    def counts(self, since: int = 0) -> Counter[str]:
        """How many requests of each kind arrived.

        Args:
            since: how many of :attr:`requests` to leave out.
        """
        return Counter(request.kind for request in self.requests[since:])

    def methods(self, since: int = 0) -> Counter[str]:
        """How many requests of each HTTP method arrived; `since` as in :meth:`counts`."""
        return Counter(request.method for request in self.requests[since:])

    def hold(self, key: str, *kinds: str, nth: int = 1, times: int | None = 1) -> Fault:
        """Hold requests before the server gets them, PUTs unless kinds are given, until they are released."""
        return self.add(Fault(treatment=Treatment.HOLD, key=key, kinds=_kinds(kinds), nth=nth, times=times))

    def hold_answer(self, key: str, *kinds: str, nth: int = 1, times: int | None = 1) -> Fault:
        """Carry requests out, PUTs unless kinds are given, and hold their answers until they are released."""
        return self.add(Fault(treatment=Treatment.HOLD_ANSWER, key=key, kinds=_kinds(kinds), nth=nth, times=times))

    def lose_answer(
        self, key: str, *kinds: str, status: int | None = CUT, nth: int = 1, times: int | None = 1
    ) -> Fault:
        """Carry requests out, PUTs unless kinds are given, and give a status or a cut connection for the answer."""
        return self.add(
            Fault(treatment=Treatment.LOSE_ANSWER, key=key, kinds=_kinds(kinds), status=status, nth=nth, times=times)
        )

    def refuse(
        self,
        key: str = "",
        *kinds: str,
        status: int | None = 503,
        nth: int = 1,
        times: int | None = None,
        seconds: float | None = None,
        code: str = "",
    ) -> Fault:
        """Refuse requests of all kinds unless some are given, with a status or a cut connection.

        They are refused until `times` of them were, `seconds` are over, or the fault is released. The code is that of
        S3 for the status, unless one is given.
        """
        return self.add(
            Fault(
                treatment=Treatment.REFUSE,
                key=key,
                kinds=frozenset(kinds),
                status=status,
                code=code,
                nth=nth,
                times=times,
                seconds=seconds,
            )
        )

    def add(self, fault: Fault) -> Fault:
        """Inject a fault; earlier ones go first."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Release all faults and forget them."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            fault.release()

    def close(self) -> None:
        """Listen no more; what is held is never carried out."""
        self._closed.set()
        self.clear()
        self._listener.shutdown()
        self._listener.server_close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            _cut(connection)

    def is_closed(self) -> bool:
        """Whether it listens no more."""
        return self._closed.is_set()

    def open_connection(self) -> http.client.HTTPConnection:
        """A new connection to the server: one that is used again may be closed already, and nobody could tell."""
        return http.client.HTTPConnection(*self._upstream, timeout=_HELD_SECONDS)

    def arrive(self, request: Request) -> Fault | None:
        """Count a request, wait as long as each does, and return what is to happen to it."""
        with self._lock:
            self.requests.append(request)
            faults = list(self._faults)
        if self.delay_ms:
            self._closed.wait(self.delay_ms / 1000)
        # Each fault counts the requests that match it, also those that an earlier one takes.
        return next(iter([fault for fault in faults if fault.takes(request)]), None)

    def watch(self, connection: socket.socket, *, is_open: bool) -> None:
        """Keep a client's connection in mind, to cut it in the end."""
        with self._lock:
            (self._connections.add if is_open else self._connections.discard)(connection)


def encrypted(listener: socket.socket, certificate: Path) -> socket.socket:
    """A listening socket whose connections are TLS; a client's handshake is in the thread that serves it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)


@contextlib.contextmanager
def s3_proxy(
    upstream: S3Server, *, certificate: Path | None = None, permits: Callable[[str], bool] = lambda _: True
) -> Iterator[Proxy]:
    """Within, a proxy listens in front of a server.

    Args:
        upstream: the server.
        certificate: a file with the proxy's certificate and its key, for TLS.
        permits: whether a request may use an access key; it is refused otherwise, as S3 refuses an expired one.
    """
    proxy = Proxy(upstream, certificate=certificate, permits=permits)
    try:
        yield proxy
    finally:
        proxy.close()
    assert proxy.defects == []


def request_of(method: str, target: str) -> Request:
    """A request by its method and target; the bucket is the first part of the path."""
    address = urlsplit("http://host" + target)
    query = parse_qs(address.query, keep_blank_values=True)
    key = unquote(address.path).removeprefix("/").partition("/")[2]
    kind = method
    if method == "GET" and not key and (not query or _LISTINGS & query.keys()):
        kind, key = "LIST", query.get("prefix", [""])[0]
    elif method == "POST" and "delete" in query:
        kind = "DELETE"
    return Request(method=method, kind=kind, key=key, query=query)


def _kinds(kinds: tuple[str, ...]) -> frozenset[str]:
    return frozenset(kinds or ("PUT",))


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _pieces(source: BufferedIOBase, length: int) -> Iterator[bytes]:
    while length > 0:
        piece = source.read(min(length, _PIECE))
        if not piece:
            raise ConnectionError("the body ended early")
        length -= len(piece)
        yield piece


def _chunks(source: BufferedIOBase) -> Iterator[bytes]:
    """A chunked body with its framing, as it came."""
    while True:
        line = source.readline(_PIECE)
        if not line:
            raise ConnectionError("the body ended early")
        yield line
        if not (size := int(line.partition(b";")[0], 16)):
            break
        yield from _pieces(source, size + 2)
    while (line := source.readline(_PIECE)).strip():  # trailers
        yield line
    yield line


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written one after the other
    proxy: Proxy

    def setup(self) -> None:
        super().setup()
        self.proxy.watch(self.connection, is_open=True)

    def finish(self) -> None:
        self.proxy.watch(self.connection, is_open=False)
        super().finish()

    def forward(self) -> None:
        # The target as it came: the class's own path has fewer slashes.
        target = self.requestline.split()[1]
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
            for piece in self._body():
                body.write(piece)
            body.seek(0)
            request = request_of(self.command, target)
            fault = self.proxy.arrive(request)
            key = _ACCESS_KEY.search(self.headers.get("Authorization", ""))
            if not self.proxy.permits(key[1] if key else ""):
                self.proxy.refusals.append(request)
                self._give(HTTPStatus.BAD_REQUEST)
                return
            if fault is not None and fault.treatment is Treatment.REFUSE:
                self._give(fault.status, fault.code)
                return
            if fault is not None and fault.treatment is Treatment.HOLD:
                fault.await_release()
            if self.proxy.is_closed():
                self._give(CUT)
                return
            self._carry_out(target, body, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def _body(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return _chunks(self.rfile)
        return _pieces(self.rfile, int(self.headers.get("Content-Length", 0)))

    def _carry_out(self, target: str, body: IO[bytes], fault: Fault | None) -> None:
        connection = self.proxy.open_connection()
        try:
            answer = self._answer(connection, target, body)
            if fault is not None:
                fault.note_answer(None if answer is None else answer.status)
            if fault is not None and fault.treatment is Treatment.HOLD_ANSWER:
                fault.await_release()
            if answer is None or self.proxy.is_closed():
                self._give(CUT)
            elif fault is not None and fault.treatment is Treatment.LOSE_ANSWER:
                self._give(fault.status, fault.code)
            else:
                self._pass_on(answer)
        finally:
            connection.close()

    def _answer(
        self, connection: http.client.HTTPConnection, target: str, body: IO[bytes]
    ) -> http.client.HTTPResponse | None:
        """The server's answer, or None if the server is gone."""
        try:
            connection.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a server may refuse before the end
                for piece in iter(lambda: body.read(_PIECE), b""):
                    connection.send(piece)
            return connection.getresponse()
        except (OSError, http.client.HTTPException):
            return None

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        has_body = self.command != "HEAD" and answer.status not in _BODILESS
        is_endless = has_body and not answer.chunked and "Content-Length" not in answer.headers
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, value)
        if is_endless:
            self.send_header("Connection", "close")
        self.end_headers()
        if not has_body:
            return
        try:
            while piece := answer.read(_PIECE):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.chunked else piece)
        except http.client.HTTPException:
            self._give(CUT)
            return
        if answer.chunked:
            self.wfile.write(b"0\r\n\r\n")
        elif answer.length:  # the server is gone in the middle: a client would wait for the rest
            self._give(CUT)

    def _give(self, status: int | None, code: str = "") -> None:
        """Answer in the server's place, or cut the connection."""
        if status is CUT:
            self.close_connection = True
            _cut(self.connection)
            return
        code = code or _CODES.get(status, "Fault")
        message = "The provided token has expired." if code == "ExpiredToken" else "A fault of the test"
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


class _Listener(ThreadingHTTPServer):
    """Threads of a proxy; clients that are gone are not defects."""

    request_queue_size = 128

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        super().__init__((HOST, 0), type("_BoundHandler", (_Handler,), {"proxy": proxy}))

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.proxy.defects.append(error)
