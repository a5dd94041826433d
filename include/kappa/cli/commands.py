"""All commands of the command line, with those that other packages bring by their entry points."""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points

import typer

from kappa.cli import (
    approvals,
    archives,
    backfills,
    hosts,
    lakes,
    moves,
    offsets,
    replays,
    restores,
    savepoints,
    set_asides,
    starters,
    topics,
    upgrades,
)
from kappa.cli.options import KappaGroup
from kappa.cli.views import dead_letters, explanations, profiles, reads, sql
from kappa.errors import KappaError

app = typer.Typer(
    name="kappa",
    cls=KappaGroup,
    help="Change the code of a running stream, recompute its history beside it, prove it, swap it over, and back.",
    epilog="A command that changes something is a dry run unless --execute is given. Exit codes: 0 done, 1 refused, 2 "
    "usage, 3 unreachable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in entry_points(group="kappa.commands"):
    command.load()(app)
for module in (
    hosts,
    reads,
    profiles,
    sql,
    explanations,
    replays,
    backfills,
    dead_letters,
    moves,
    approvals,
    upgrades,
    restores,
    savepoints,
    set_asides,
    archives,
    lakes,
    topics,
    offsets,
    starters,
):
    module.register(app)


def main() -> None:
    """Run a command; an error becomes one message on standard error and an exit code."""
    try:
        app()
    except KappaError as error:
        if "--json" in sys.argv:
            print(json.dumps({"error": type(error).__name__, "message": str(error), "data": error.data}, default=str))
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


__all__ = ["app", "main"]
