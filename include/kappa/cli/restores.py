"""The command that undoes what another program wrote into an epoch's Delta tables."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.cli.options import Execute, Json, Reason, Topology, actor, config, dry, say, say_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(restore)


def restore(
    topology: Topology,
    epoch: Annotated[int | None, typer.Option("--epoch", help="The epoch; by default the live one.")] = None,
    reason: Reason = "",
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Undo commits of other programs in an epoch's Delta tables; the epoch's driver is stopped meanwhile."""
    from kappa.control import restore as restoring
    from kappa.record.foreign_writes import described

    restoration = restoring.restore(config(), topology, epoch=epoch, actor=actor(), reason=reason, execute=execute)
    if json:
        commits = {place: [commit.version for commit in these] for place, these in restoration.commits.items()}
        say_json({"executed": execute, "epoch": restoration.epoch, "commits": commits, "made": restoration.versions})
        return
    say(f"{place}: {described(commit)}" for place, these in restoration.commits.items() for commit in these)
    if not restoration.commits:
        say(f"Epoch {restoration.epoch} of {topology} has no commit that Kappa did not make.")
    elif not execute:
        dry("undo these commits, one new commit for each table")
    else:
        say(f"{place}: undone by version {version}" for place, version in restoration.versions.items())
        say(f"To go on: kappa start {topology} --execute")
