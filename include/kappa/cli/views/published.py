"""The command that shows published tables, and registers them in other engines."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kappa import control
from kappa.cli.options import Json, completed, config, say, say_json, table
from kappa.errors import UNREADABLE
from kappa.serving.registrations import Engine, rivals, statements

if TYPE_CHECKING:
    from kappa.record.topology_records import TopologyRecords
    from kappa.serving.published_tables import ServedTable


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tables)


def tables(
    topology: Annotated[
        str | None, typer.Argument(help="Name of the topology; by default all.", autocompletion=completed)
    ] = None,
    ddl: Annotated[
        Engine | None, typer.Option("--ddl", help="Print the statements that register the tables in this engine.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the published tables: Delta tables at paths that never change, whichever epoch is live.

    Each table and append output has one. The driver of the live epoch publishes its commits there, at most one per
    KAPPA_PUBLISH_SECONDS. `kappa path` has the present path of the epoch's own table instead, which another epoch takes
    over at the next cutover.
    """
    from kappa.record.epochs import epochs_of
    from kappa.serving.published_tables import of_record

    settings = config()
    epochs = epochs_of(settings.lake)
    records = epochs.records()
    names = [topology] if topology else [name for name in epochs.topologies() if records.of(name).live is not None]
    if topology:
        control.check_name(settings, topology)
        records.of(topology).live_epoch()  # a topology without one is named
    shown, problems = {}, {}
    for name in names:
        try:
            shown[name] = of_record(settings, records.of(name))
        except UNREADABLE as error:  # it must not hide other topologies
            if topology:
                raise
            problems[name] = str(error)
    if ddl:
        of_engine = partial(statements, ddl, topologies=_oldest_first(records))
        paths = {name: {one.name: one.path for one in served} for name, served in shown.items()}
        if json:
            say_json(
                {
                    name: [
                        {"table": one, "statements": of_engine(name, paths[name], tables=[one.name])} for one in served
                    ]
                    for name, served in shown.items()
                }
            )
        else:
            for name in shown:
                say(of_engine(name, paths[name]))
    elif json:
        say_json({name: list(served) for name, served in shown.items()})
    else:
        _show(shown.items())
    for name, problem in problems.items():
        typer.echo(f"PROBLEM: {name}: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


def _oldest_first(records: TopologyRecords) -> list[str]:
    """The topologies of the lake; of those that an engine would give one name, the first on record comes first."""

    def age(name: str) -> int:
        return records.of(name).events[0].n if len(rivals(name, records.topologies)) > 1 else -1

    return sorted(records.topologies, key=lambda name: (age(name), name))


def _show(shown: Iterable[tuple[str, tuple[ServedTable, ...]]]) -> None:
    rows = [
        [
            name,
            one.name,
            one.kind,
            one.path,
            one.version,
            one.epoch,
            one.seq,
            one.published_at and f"{one.published_at:%Y-%m-%d %H:%M:%S}",
            one.standing,
        ]
        for name, served in shown
        for one in served
    ]
    table(rows, ["topology", "table", "kind", "path", "version", "epoch", "slice", "published", "standing"])
    if not rows:
        say("No epoch is live. Start one: kappa start <topology> --execute")


def lines(topology: str, served: Iterable[ServedTable]) -> list[str]:
    """How far published tables are behind, a line for each."""
    return [f"{topology}, published {one.kind} {one.name}: {one.standing}" for one in served]
