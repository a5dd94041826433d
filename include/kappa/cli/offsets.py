"""The command for consumer groups: Kafka's reset verbs, without the clamping."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappa.acts import Act
from kappa.cli.options import Execute, Json, config, say, say_json, show, table, write_file
from kappa.cli.starts import group_start
from kappa.errors import UsageError
from kappa.offsets.notation import offsets_to_csv, parsed_partitions
from kappa.offsets.vector import Offsets
from kappa.replay.starts import Start, ToCurrent

if TYPE_CHECKING:
    from kappa.control import groups
    from kappa.replay.group_reset import GroupReset

Group = Annotated[str, typer.Option("--group", help="Name of the consumer group.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="A topic (pos) or some of its partitions (pos:0,2); may be repeated."),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export", help="Write the offsets to a CSV that --from-file and Kafka's tools read.", dir_okay=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(offsets)


@group_start
def offsets(
    group: Group,
    start: Start | ToCurrent | None,
    topic: Topics = None,
    export: Export = None,
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Show the offsets of a consumer group, or set them, for any group but those of Kappa's epochs.

    A request that cannot be met exactly is refused with exit code 1, and the group stays as it is: an offset outside
    the log, a time without a record, an unknown topic or partition, a group with active members.
    """
    from kappa.control import groups
    from kappa.kafka.broker import Broker
    from kappa.replay.group_reset import GroupRequest

    if not group.strip():
        raise UsageError("The name of the consumer group is empty. Name one: --group orders-reader")
    selected = parsed_partitions(topic or ())
    with Broker(config().bootstrap_servers) as broker:
        if start is None:
            if execute:
                raise UsageError("Say where to set the group: --to-earliest, --to-datetime, --to-offset or another.")
            if selected:
                raise UsageError(
                    "--topic selects the partitions to set. Say where to, or omit it to see the whole group."
                )
            _show(groups.positions(broker, group), export, json)
            return
        reset = groups.plan_reset(broker, GroupRequest(group=group, start=start, partitions=selected))
        act = Act(effects=(), outcome=lambda: None) if reset.is_refused else groups.apply_reset.planned(broker, reset)
        if export and not reset.is_refused:  # first: a file that cannot be written must not leave a group that is set
            write_file(export, offsets_to_csv(reset.after), "CSV of the offsets")
        if execute:
            act.make()
    _say(reset, act, execute and not reset.is_refused, json)
    if reset.is_refused:
        raise typer.Exit(1)


def _show(partitions: list[groups.GroupPartition], export: Path | None, json: bool) -> None:
    if export:
        after = Offsets.of(((row.topic, row.partition), row.offset) for row in partitions)
        write_file(export, offsets_to_csv(after), "CSV of the offsets")
    rows = [[row.topic, row.partition, row.offset, row.low, row.high, row.lag] for row in partitions]
    names = ["topic", "partition", "offset", "low", "high", "lag"]
    say_json([dict(zip(names, row, strict=True)) for row in rows]) if json else table(rows, names)


def _say(reset: GroupReset, act: Act[None], is_done: bool, json: bool) -> None:
    moves = [[*at, reset.before.get(*at), offset] for at, offset in reset.after.items()]
    names = ["topic", "partition", "from", "to"]
    if json:
        partitions = [dict(zip(names, move, strict=True)) for move in moves]
        about: dict[str, Any] = {"group": reset.group, "partitions": partitions, "findings": reset.findings}
        say_json({"executed": True, **about}) if is_done else show(act, json=True, **about)
        return
    if moves:
        table(moves, names)
    for finding in reset.findings:
        say(f"  {finding.line}")
    if reset.is_refused:
        say("Nothing was changed.")
    elif is_done:
        say(f"Group {reset.group} is set.")
    else:
        show(act, otherwise=f"no partition of group {reset.group} is selected")
