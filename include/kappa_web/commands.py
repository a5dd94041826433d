"""``kappa ui``; the command line finds it by its entry point."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.cli.options import config, say

#: Port of ``kappa ui`` unless another is asked for.
PORT = 8099


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ui)


def ui(port: Annotated[int, typer.Option(help="Port on this host's loopback; 0 for a free one.")] = PORT) -> None:
    """Serve the pages and the queries of the lake on this host's loopback until Ctrl-C. They only read."""
    from kappa_web import server

    server.serve(config(), port, ready=lambda url: say(f"Kappa    {url}"))
