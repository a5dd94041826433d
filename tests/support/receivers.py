"""A receiver of notices on loopback, which answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: What a request gets instead of an answer: nothing, until the receiver is closed.
HANG = -1


class Receiver:
    """Keeps what it got.

    Attributes:
        url: where it listens; it has a secret part.
        requests: bodies of all requests, also of those that it did not take.
        taken: bodies of those that it took.
        later: what it answers when it has given its first answers.
    """

    def __init__(self, answers: Sequence[int]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.taken: list[dict[str, Any]] = []
        self.later = 204
        self._answers = list(answers)
        self._closed = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["Idempotency-Key"] == body["id"]
                receiver.requests.append(body)
                answer = receiver._answers.pop(0) if receiver._answers else receiver.later
                if answer == HANG:
                    receiver._closed.wait(300)
                    return
                if 200 <= answer < 300:
                    receiver.taken.append(body)
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", receiver.url)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hooks/s3cret"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receiver(*answers: int) -> Iterator[Receiver]:
    """A receiver that gives these answers first, and 204 from then on."""
    hook = Receiver(answers)
    try:
        yield hook
    finally:
        hook.close()
