"""``kappa ui``, and a report as HTML; the command line finds them by an entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kappa.cli.options import config, say
from kappa.verify.report import WRITERS, Format

if TYPE_CHECKING:
    from kappa.replay.proof.verdict import DiffReport

#: Default port of ``kappa ui``.
PORT = 8099


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ui)
    WRITERS[Format.HTML] = page


def page(report: DiffReport) -> str:
    """A verification's report as on the page, in one file."""
    from kappa_web.pages.difference import file

    return file(report)


def ui(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this host's loopback; 0 for a free one.")] = PORT,
) -> None:
    """Serve the pages and the queries of the lake on this host's loopback until Ctrl-C. They only read."""
    from kappa_web import server

    server.serve(config(), port, ready=lambda url: say(f"Kappa    {url}"))
