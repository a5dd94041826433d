"""The application on this host's loopback."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from kappa.config import Config
from kappa.errors import UsageError

HOST = "127.0.0.1"
#: The longest request line with headers: that of a scan whose parameters are all as long as they may be, encoded.
REQUEST_BYTES = 1 << 20


def serve(config: Config, port: int, *, ready: Callable[[str], None]) -> None:
    """Serve until the process is told to end.

    Requests with another host in their header than this one's loopback are refused: a page of another site could else
    read the lake through the browser of this host (DNS rebinding).

    Args:
        config: where the lake and the broker are.
        port: 0 for a free one.
        ready: is told the address once requests are taken.

    Raises:
        UsageError: another process has the port.
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
        raise UsageError(f"Port {port} of {HOST} is taken. Name another one: kappa ui --port 0") from error
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
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C, which the server has taken already
            server.run(sockets=[listening])
