"""The application on this host's loopback."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable

from kappa.config import Config
from kappa.errors import UsageError

HOST = "127.0.0.1"
#: The longest request line with headers: an encoded scan with all parameters at full length.
REQUEST_BYTES = 1 << 20


def serve(config: Config, port: int, *, ready: Callable[[str], None]) -> None:
    """Serve until the process is told to end.

    Requests whose host header is not this host's loopback are refused: otherwise a page of another site could read the
    lake through a browser on this host (DNS rebinding).

    Args:
        config: where the lake and the broker are.
        port: the port; 0 for a free one.
        ready: called with the address once requests are accepted.

    Raises:
        UsageError: another process uses the port, or this user may not.
    """
    import uvicorn
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from kappa_web.access import loopback
    from kappa_web.app import build

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise UsageError(f"Port {port} of {HOST} {why}. Name another one: kappa ui --port 0") from error
    app = build(config, loopback)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:  # Ctrl-C ends it from here on
                ready(f"http://{HOST}:{listening.getsockname()[1]}")

    server = Server(
        uvicorn.Config(
            app, log_level="warning", access_log=False, http="h11", h11_max_incomplete_event_size=REQUEST_BYTES
        )
    )
    with listening:
        listening.listen(128)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C, which the server has already handled
            server.run(sockets=[listening])
