"""The command that explains a topology, or a plan that was written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kappa.cli.options import Json, config, say, say_json
from kappa.config import Config
from kappa.drawing import Graph, graph_of, text
from kappa.errors import UsageError
from kappa.topology import registry


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explain)


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TOPOLOGY|FILE",
            help="Name of a deployed topology, or a file with a plan, as `kappa plan --json` printed it.",
        ),
    ],
    json: Json = False,
) -> None:
    """Draw a deployed topology: sources, step, tables with the operators whose state they are, outputs. Or explain a
    plan that was written to a file: exactly the stages that its driver would run.

    A name that is both is taken for the topology; ./NAME is the file.
    """
    settings = config()
    names = {item.name for item in registry.declared(settings.topologies)}
    if what not in names and Path(what).is_file():
        _explain_plan(Path(what), json)
        return
    if what not in names and (Path(what).suffix == ".json" or Path(what).name != what):
        raise UsageError(f"There is no file {what}. A plan is written by: kappa plan <topology> --json > {what}")
    graph = _deployed(settings, what)
    say_json(graph) if json else typer.echo(text(graph), nl=False)


def _explain_plan(file: Path, json: bool) -> None:
    from kappa.replay.explain import explain as explain_plan
    from kappa.replay.plan import ReplayPlan

    try:
        plan = ReplayPlan.from_json(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The file {file} cannot be read: {error}.", file=str(file)) from error
    typer.echo(plan.to_json()) if json else say(explain_plan(plan))


def _deployed(settings: Config, name: str) -> Graph:
    return graph_of(registry.load(settings.topologies, name))
