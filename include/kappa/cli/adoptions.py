"""The command that takes over a stream that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kappa import control
from kappa.cli.options import Allow, Execute, Json, Reason, Topology, Wait, actor, config, say
from kappa.cli.replays import planned_act, run_plan, show_plan
from kappa.cli.starts import from_file as offsets_file
from kappa.errors import UsageError
from kappa.offsets.notation import is_number

TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        help="The Delta table that has the rows of one of the topology's tables: NAME=ADDRESS, or NAME=ADDRESS@VERSION "
        "for a Delta version that is not the newest. May be repeated.",
    ),
]
OutputOption = Annotated[
    list[str] | None,
    typer.Option("--output", help="The same for an append output, which otherwise begins empty. May be repeated."),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint", help="Go on where a query of Structured Streaming stood: the folder of its query checkpoint."
    ),
]
GroupOption = Annotated[
    str | None, typer.Option("--group", help="Go on at the offsets of a consumer group, which has no members.")
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--from-file", help="Go on at the offsets of a CSV of TOPIC,PARTITION,OFFSET, as Kafka's tools write it."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(adopt)


def adopt(
    topology: Topology,
    table: TableOption = None,
    output: OutputOption = None,
    checkpoint: CheckpointOption = None,
    group: GroupOption = None,
    from_file: FileOption = None,
    allow: Allow = None,
    reason: Reason = "adopt",
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Take over a stream that runs: begin with the rows of its Delta tables, and go on where its job stood.

    Stop the old job first. Its tables, its query checkpoint and its consumer group are only read. Nothing that it has
    read is sent again.
    """
    from kappa.replay.explain import explain

    options = {"--checkpoint": checkpoint, "--group": group, "--from-file": from_file}
    present = [name for name, value in options.items() if value is not None]
    if len(present) != 1:
        raise UsageError(f"Say where the job stood, by one of {', '.join(options)}; there are {present or 'none'}.")
    tables = dict(_existing("tables", text) for text in table or ())
    tables |= dict(_existing("outputs", text) for text in output or ())
    if len(tables) < len(table or ()) + len(output or ()):
        raise UsageError("A name is given to --table or --output twice: each begins with one table.")
    if not tables:
        raise UsageError("Name the tables to begin with: --table NAME=ADDRESS.")
    if checkpoint is not None:
        position = control.by_checkpoint(checkpoint)
    elif group is not None:
        position = control.by_group(group)
    else:
        assert from_file is not None
        position = control.by_file(offsets_file(from_file))
    settings = config()
    plan = control.adoption_plan(settings, topology, tables, position, actor=actor(), reason=reason, allow=allow or ())
    if not json:
        say(explain(plan))
    act = planned_act(plan, reason, is_shown=json and not execute, acting=control.adopt)
    if not execute:
        show_plan(plan, act, json)
        return
    run_plan(plan, act, wait, json)


def _existing(kind: str, text: str) -> tuple[str, tuple[str, int | None]]:
    """Place, address and version from ``NAME=ADDRESS@VERSION``; the path of a table may end in ``@`` and digits too."""
    name, _, address = text.partition("=")
    if not name or not address:
        option = "--table" if kind == "tables" else "--output"
        raise UsageError(f"{option} {text!r} is not NAME=ADDRESS, for example spending=/srv/tables/spending.")
    from kappa.delta import tables
    from kappa.store.address import table_address

    path, _, version = address.rpartition("@")
    if path and is_number(version) and not tables.exists(table_address(address)):
        return f"{kind}/{name}", (path, int(version))
    return f"{kind}/{name}", (address, None)
