"""Commands for savepoints that have a name."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa import control
from kappa.cli.options import Execute, Json, Reason, Topology, actor, config, config_of, say, say_json, show, table

Name = Annotated[str, typer.Argument(help="Name of the savepoint; begins with a letter.")]
AnyTopology = Annotated[str | None, typer.Argument(help="Name of the topology; by default all.")]

group = typer.Typer(name="savepoint", help="Give commits of the live epoch names to replay from.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group)


@group.command()
def create(
    topology: Topology,
    name: Name,
    seq: Annotated[
        int | None, typer.Option("--seq", help="A commit of the live epoch; by default its last one.")
    ] = None,
    reason: Reason = "",
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Give the live epoch's last commit a name; `kappa replay --from-savepoint NAME` starts there."""
    from kappa.record import savepoints

    settings = config_of(topology)
    act = savepoints.create.planned(settings, topology, name, seq=seq, actor=actor(), reason=reason)
    if not execute:
        show(act, otherwise=f"savepoint {name} of {topology} exists", json=json, savepoint=act.outcome())
        return
    savepoint = act.make()
    if json:
        say_json({"executed": True, "savepoint": savepoint})
        return
    at = savepoint.offsets.to_json()
    say(f"Savepoint {name} of {topology} is seq {savepoint.seq} of epoch {savepoint.epoch}: {at}")


@group.command("list")
def list_(topology: AnyTopology = None, json: Json = False) -> None:
    """List the savepoints that have a name, oldest first. A replay can start from those of the live epoch."""
    from kappa.record import savepoints

    settings = config()
    if topology:
        control.check_name(settings, topology)
    entries = savepoints.every(settings, topology)
    if json:
        say_json(entries)
        return
    table(
        [
            [
                s.topology,
                s.name,
                s.epoch,
                s.stage,
                s.seq,
                s.offsets.to_json(),
                f"{s.at:%Y-%m-%d %H:%M:%S}",
                s.actor,
                s.reason,
            ]
            for s in entries
        ],
        ["topology", "name", "epoch", "stage", "seq", "offsets", "at", "actor", "reason"],
    )


@group.command()
def drop(topology: Topology, name: Name, reason: Reason = "", execute: Execute = False, json: Json = False) -> None:
    """Remove a savepoint's name. Its files are then kept no longer than those of other commits."""
    from kappa.record import savepoints

    settings = config_of(topology)
    act = savepoints.drop.planned(settings, topology, name, actor=actor(), reason=reason)
    if not execute:
        show(act, json=json, savepoint=act.outcome())
        return
    savepoint = act.make()
    if json:
        say_json({"executed": True, "savepoint": savepoint})
        return
    say(
        f"Savepoint {name} of {topology} is gone; the files of seq {savepoint.seq} of epoch {savepoint.epoch} are "
        "removed when their time is up."
    )
