"""The command that undoes commits of other programs in an epoch's Delta tables."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kappa.cli.options import Execute, Json, Reason, Topology, actor, config_of, say, say_json, show


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

    settings = config_of(topology)
    act = restoring.restore.planned(settings, topology, epoch=epoch, actor=actor(), reason=reason)
    restoration = act.make() if execute else act.outcome()
    if json:
        commits = {place: [commit.version for commit in these] for place, these in restoration.commits.items()}
        about: dict[str, Any] = {"epoch": restoration.epoch, "commits": commits, "made": restoration.versions}
        say_json({"executed": True, **about}) if execute else show(act, json=True, **about)
        return
    say(f"{place}: {described(commit)}" for place, these in restoration.commits.items() for commit in these)
    if not act.effects:
        say(f"Epoch {restoration.epoch} of {topology} has no commit that Kappa did not make.")
    elif not execute:
        show(act)
    else:
        say(f"{place}: undone by version {version}" for place, version in restoration.versions.items())
        say(f"To continue: kappa start {topology} --epoch {restoration.epoch} --execute")
