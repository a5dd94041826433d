"""The command that shows why records are dead letters."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.cli.options import Json, Topology, config_of, say, say_json
from kappa.errors import UnknownEpochError, visible


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dead-letters")(dead_letters)


def dead_letters(
    topology: Topology,
    reason: Annotated[str, typer.Option("--reason", help="Show only reasons that contain this text.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Records to show per reason.")] = 3,
    epoch: Annotated[int | None, typer.Option("--epoch", help="The epoch; by default the live one.")] = None,
    json: Json = False,
) -> None:
    """Show why records are dead letters: how many for each reason, and the newest of them.

    Values of sensitive sources are not in the lake; their stored substitute is shown.
    """
    from kappa.names import EpochPaths
    from kappa.record.epochs import epochs_of
    from kappa.record.ledger import Ledger
    from kappa.serving.dead_letter_reasons import MOST, reasons_of

    settings = config_of(topology)
    record = epochs_of(settings.lake).record(topology)
    number = epoch if epoch is not None else record.live
    number = record.candidate_epoch() if number is None else record.readable_epoch(number)
    paths = EpochPaths(lake=settings.lake, topology=topology, epoch=number)
    committed = Ledger(paths.ledger).last_commit()
    if committed is None:
        raise UnknownEpochError(f"Epoch {number} of {topology!r} has committed nothing yet.", epoch=number)
    reasons = reasons_of(paths, committed, reason=reason, samples=limit)
    if json:
        say_json({"topology": topology, "epoch": number, "reasons": reasons})
        return
    total = sum(one.count for one in reasons)
    say(f"Epoch {number} of {topology} has {total:,} dead letters{f' by reasons with {reason!r}' if reason else ''}.")
    for one in reasons:
        say(f"{one.count:>9,}  {visible(one.reason)}")
        for letter in one.letters:
            value, at = "null" if letter.value is None else letter.value, letter.timestamp or "unread"
            say(f"           {letter.topic}[{letter.partition}] at {letter.offset}, {at}: {value}")
    if limit and len(reasons) > MOST:
        say(f"Records are shown of the {MOST} most frequent reasons. For those of another one: --reason TEXT")
