"""The command that computes an interval of time again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.acts import Act, Effect
from kappa.cli.options import Execute, Json, Reason, Topology, Wait, actor, config_of, plain, say, say_json, show
from kappa.offsets.notation import local_time, parsed_time

if TYPE_CHECKING:
    from kappa.config import Config
    from kappa.control.backfills.backfill_plan import Computed
    from kappa.control.backfills.proposal import Backfill
    from kappa.record.events import Event
    from kappa.spark.session import LazySession

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
        "--output", help="Append output, or table of closed windows, to replace; may be repeated. By default all."
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

    Rows of windows and joins belong to the interval by event time; other rows by the time that the partition of their
    record had reached with that record. Records are read from the log or an archive and computed beside the live
    stream, with the code of the live epoch. The driver of the live epoch then replaces the rows between two slices, in
    one commit. Running totals, sessions and joins with the newest rows of a table need `kappa replay`. Nothing is sent
    to topics.
    """
    from kappa.control.backfills import backfill as backfills
    from kappa.control.backfills import backfill_plan
    from kappa.spark.session import LazySession

    settings = config_of(topology)
    first, last = (parsed_time(text) if zone is None else local_time(text, zone) for text in (begin, end))
    progress = (lambda _: None) if json else (lambda line: say(f"  {line}"))
    with ExitStack() as stack:
        spark = stack.enter_context(LazySession(config=settings, name=f"kappa backfill {topology}"))
        proposal = backfill_plan.propose(settings, spark, topology, first, last, output or ())
        act = _backfill(settings, spark, proposal, reason, progress, stack.close, json)
        if not json:
            say(proposal.render())
        if proposal.refusals:
            say_json({"executed": False, **plain(proposal), "effects": []}) if json else say("Nothing will be changed.")
            raise typer.Exit(1)
        if not execute:
            show(act, json=json, **plain(proposal))
            return
        request = act.make()
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


def _backfill(
    settings: Config,
    spark: LazySession,
    proposal: Backfill,
    reason: str,
    progress: Callable[[str], None],
    end_spark: Callable[[], None],
    json: bool,
) -> Act[Event]:
    """A backfill from its computation to its request. Spark ends in between, because the driver may need its cores."""
    from kappa.control.backfills import backfill as backfills

    requests: list[Event] = []
    results: list[Computed] = []

    def compute() -> None:
        results.append(backfills.compute(settings, spark, proposal, progress))
        end_spark()
        if not json:
            say(results[0].render())

    def request() -> None:
        requests.append(backfills.request(settings, proposal, results[0], actor=actor(), reason=reason))

    epoch = f"epoch {proposal.epoch} of {proposal.topology}"
    computation = f"compute {proposal.offsets:,} offsets again in the folder {proposal.folder} of {epoch}, and compare"
    replacement = (
        f"let the driver of live {epoch} replace the rows between two slices, unless the epoch or its code has changed "
        "by then, and start the driver unless it runs or should stop"
    )
    return Act(
        effects=(
            Effect(what=computation, values={"folder": proposal.folder}, make=compute),
            Effect(what=replacement, values={"topology": proposal.topology, "epoch": proposal.epoch}, make=request),
        ),
        outcome=lambda: requests[0],
    )
