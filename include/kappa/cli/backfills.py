"""The command that computes an interval of time again."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.cli.options import Execute, Json, Reason, Topology, Wait, actor, config, say, say_json
from kappa.offsets.notation import local_time, parsed_time

From = Annotated[
    str, typer.Option("--from", help="Beginning of the interval, like 2026-03-01T00:00:00Z, or 2026-03-01 with --zone.")
]
To = Annotated[str, typer.Option("--to", help="End of the interval, exclusive, like 2026-03-02T00:00:00Z.")]
Zone = Annotated[
    str | None,
    typer.Option(help="Time zone of days, and of times without an offset, in --from and --to, like Europe/Berlin."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output", help="Append output, or table of closed windows, to replace; may be repeated. All by default."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(backfill)


def backfill(
    topology: Topology,
    begin: From,
    end: To,
    zone: Zone = None,
    output: Outputs = None,
    reason: Reason = "",
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Compute rows of append outputs again for an interval of time, and replace them in the live epoch.

    Rows of windows and joins belong to it by event time; others by the time that the partition of their record had
    reached with it. Records are read from the log or an archive and computed beside the live stream, with the code of
    the live epoch. The driver of the live epoch then replaces the rows between two slices, in one commit. Running
    totals, sessions and joins with the newest rows of a table need `kappa replay`. Topics get nothing.
    """
    from kappa.control.backfills import backfill as backfills
    from kappa.control.backfills import backfill_plan
    from kappa.spark.session import LazySession

    settings = config()
    first, last = (parsed_time(text) if zone is None else local_time(text, zone) for text in (begin, end))
    progress = (lambda _: None) if json else (lambda line: say(f"  {line}"))
    with LazySession(config=settings, name=f"kappa backfill {topology}") as spark:
        proposal = backfill_plan.propose(settings, spark, topology, first, last, output or ())
        if not json:
            say(proposal.render())
        if proposal.refusals:
            if json:
                say_json(proposal)
            else:
                say("Nothing will be changed.")
            raise typer.Exit(1)
        if not execute:
            if json:
                say_json(proposal)
                return
            again = f" --zone {zone}" if zone else ""
            again += "".join(f" --output {name}" for name in output or ())
            say(f"Nothing was changed. To do it: kappa backfill {topology} --from {begin} --to {end}{again} --execute")
            return
        computed = backfills.compute(settings, spark, proposal, progress)
    if not json:
        say(computed.render())
    request = backfills.request(settings, proposal, computed, actor=actor(), reason=reason)
    if not wait:
        if json:
            say_json({"epoch": request.epoch, "asked": request.n, "is_done": False})
        else:
            say(f"Requested; the driver replaces the rows between two slices. Follow it with: kappa history {topology}")
        return
    replacement = backfills.await_replaced(settings, request, progress=progress)
    if json:
        say_json({"epoch": replacement.epoch, "asked": request.n, "is_done": True, **replacement.detail})
    else:
        say(backfills.summary(replacement))
