"""The command that lets an epoch continue without records that it cannot compute."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.cli.options import Execute, Json, Reason, Topology, actor, config_of, say, say_json, show
from kappa.errors import UsageError
from kappa.offsets import set_asides

#: Maximum number of records in one decision, unless --limit gives another.
_LIMIT = 10_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("set-aside")(set_aside)


def set_aside(
    topology: Topology,
    topic: Annotated[str | None, typer.Option("--topic", help="The topic, where the topology reads several.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="The partition, where it has several.")
    ] = None,
    offset: Annotated[
        str, typer.Option("--offset", help="Offsets to set aside, like 17 or 17,20-25; a range includes both ends.")
    ] = "",
    failing: Annotated[
        str,
        typer.Option(
            "--failing",
            help="List the records that alone fail with this error class, as `kappa status` names it. Starts Spark.",
        ),
    ] = "",
    begin: Annotated[
        int | None,
        typer.Option("--from", min=0, help="With --failing: first offset; by default where the epoch stands."),
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", min=0, help="With --failing: end offset, exclusive; by default the log's end.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=set_asides.MOST, help="Set aside at most this many records.")
    ] = _LIMIT,
    unreadable: Annotated[
        bool,
        typer.Option("--unreadable", help="Set aside the records at --offset unread, because they cannot be read."),
    ] = False,
    epoch: Annotated[int | None, typer.Option("--epoch", help="The epoch; by default the live one.")] = None,
    reason: Reason = "",
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Set aside records at which an epoch is stuck: they become dead letters, and the step does not get them.

    The epoch and those after it leave them out; a replay brings them in with --bring-in. Each record is listed; there
    is no "all that fail". Only records that the epoch has not committed can be set aside.
    """
    from kappa.control import set_aside_listings, setting_aside

    if bool(offset) == bool(failing):
        raise UsageError("Say which records: --offset 17,20-25, or --failing <error class>.")
    if (unreadable or offset) and (begin is not None or end is not None):
        raise UsageError("--from and --to bound a listing by --failing; --offset names each record.")
    if unreadable and failing:
        raise UsageError("Unreadable records cannot be tried: name them with --offset.")
    settings = config_of(topology)
    about = setting_aside.subject(settings, topology, epoch, topic, partition)
    if offset:
        listing = set_aside_listings.named(
            settings, about, set_asides.listed(offset, limit), is_readable=not unreadable
        )
    else:
        progress = (lambda _: None) if json else (lambda line: say(f"  {line}"))
        listing = set_aside_listings.failing(settings, about, failing, begin, end, limit=limit, progress=progress)
    if not json:
        say(listing.render())
    why = reason if execute else reason or "-"  # a dry run needs no reason
    act = setting_aside.set_aside.planned(settings, listing, actor=actor(), reason=why)
    if not execute:
        show(act, json=json, listing=listing)
        return
    event = act.make()
    if json:
        say_json({"executed": True, "decision": event.n, "listing": listing})
    else:
        say(
            f"Decision {event.n} sets {len(listing.offsets):,} records aside. The driver continues without them; to "
            f"see them: kappa dead-letters {topology}"
        )
