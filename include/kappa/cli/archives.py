"""Commands for archives: every record of a topic kept in Delta, beyond what Kafka keeps."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kappa.acts import Act, Effect
from kappa.cli.options import Execute, Json, config, say, say_json, show, table
from kappa.errors import Terminal

if TYPE_CHECKING:
    from kappa.archive.overview import Outlook
    from kappa.archive.writer import Archiver

Name = TypeVar("Name")
Result = TypeVar("Result")
Topics = Annotated[list[str], typer.Argument(help="Kafka topics, for example pos.")]

group = typer.Typer(
    name="archive", help="Keep every record of a topic in Delta, and replay from there.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group)


@group.command()
def start(
    topics: Topics,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue until stopped: Ctrl-C, or `kappa archive stop`.")
    ] = False,
    every: Annotated[float, typer.Option("--every", help="Seconds between two slices while following.")] = 60.0,
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="Continue after records that retention removed before they were archived."),
    ] = False,
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Archive topics from the ends of their archives up to the stable ends of the topics.

    The run ends there; the next one continues from there. A topic that cannot be archived is named, and the others are.
    """
    from kappa.archive import overview
    from kappa.archive.writer import Archiver
    from kappa.kafka.broker import Broker

    settings, stopping = config(), threading.Event()
    errors: list[Terminal] = []
    with Broker(settings.bootstrap_servers) as broker:
        outlooks = _each(dict.fromkeys(topics), lambda topic: overview.outlook(settings, broker, topic), errors)
    if not execute and not json:
        say(line for outlook in outlooks for line in _described(outlook))
    with ExitStack() as stack:

        def opening(outlook: Outlook) -> tuple[Outlook, Archiver, Act[None]]:
            archiver = stack.enter_context(closing(Archiver(settings, outlook.topic, skip_lost=skip_lost)))
            return outlook, archiver, archiver.opening()

        openings = _each(outlooks, opening, errors)
        names = ", ".join(outlook.topic for outlook, _, _ in openings)
        archive = Effect(
            what=f"archive {sum(outlook.lag for outlook, _, _ in openings):,} offsets of {names}"
            + (" and follow" if follow else ""),
            make=lambda: _run(
                {archiver: outlook for outlook, archiver, _ in openings},
                stopping,
                follow=follow,
                every=every,
                quiet=json,
            ),
        )
        claims = (claim for _, _, one in openings for claim in one.effects)
        act = Act(effects=(*claims, archive), outcome=lambda: None)
        if execute:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopping.set())
            act.make()
        else:
            show(act, json=json, topics=[outlook for outlook, _, _ in openings])
    if execute:
        statuses = [overview.status(settings, outlook.topic) for outlook, _, _ in openings]
        if json:
            say_json({"executed": True, "topics": statuses})
        for status in () if json else statuses:
            covered = ", ".join(map(str, status.facts.covered)) or "nothing"
            say(f"Archived {covered}: {status.records:,} records.")
    if errors:
        raise typer.Exit(errors[0].exit_code)


@group.command()
def status(
    topic: Annotated[str | None, typer.Argument(help="Kafka topic; by default all that are archived.")] = None,
    json: Json = False,
) -> None:
    """Show the offsets that archives cover without a gap, and how far they are behind the log."""
    from kappa.archive import overview

    settings, errors = config(), list[Terminal]()
    names = [topic] if topic else overview.topics_of(settings)
    statuses = _each(names, lambda name: overview.status(settings, name), errors)
    if json:
        say_json(statuses)
    rows = [
        [
            s.topic,
            " ".join(f"[{r.partition}]={r.start}..{r.end}" for r in s.facts.covered) or "nothing",
            s.records,
            "topic gone or recreated" if s.is_same_topic is False else s.lag,
            s.archiver,
            s.message,
        ]
        for s in statuses
    ]
    if not json:
        table(rows, ["topic", "covered", "records", "behind", "archiver", "doing"])
        if not rows:
            say("No topic is archived. Begin with one: kappa archive start <topic> --execute")
    if errors:
        raise typer.Exit(errors[0].exit_code)


@group.command()
def stop(topics: Topics, execute: Execute = False) -> None:
    """Stop the archivers of topics, wherever they run, between two slices. Archived records stay."""
    from kappa.archive import overview

    settings = config()
    acts = {topic: overview.stop.planned(settings, topic) for topic in topics}
    if not execute:
        effects = tuple(effect for act in acts.values() for effect in act.effects)
        show(Act(effects=effects, outcome=lambda: None), otherwise=f"{', '.join(topics)} has no archiver")
        return
    for topic, act in acts.items():
        is_ended = act.make()
        say(f"The archiver of {topic} stops." if is_ended else f"{topic} has no archiver: nothing was changed.")


def _each(names: Iterable[Name], look: Callable[[Name], Result], errors: list[Terminal]) -> list[Result]:
    """What a look at each of several gives; one that is refused hides none of the others.

    Args:
        names: what is looked at.
        look: the look.
        errors: gets the errors of those that are refused, which are printed.

    Raises:
        Terminal: all of them are refused.
    """
    results, refusals = [], list[Terminal]()
    for name in names:
        try:
            results.append(look(name))
        except Terminal as error:
            refusals.append(error)
    if refusals and not results:
        raise refusals[0]
    for refusal in refusals:
        typer.echo(f"{type(refusal).__name__}: {refusal}", err=True)
    errors += refusals
    return results


def _described(outlook: Outlook) -> list[str]:
    position = " ".join(f"[{partition}]={offset}" for (_, partition), offset in outlook.position.items())
    lines = [
        f"{outlook.topic}: {outlook.lag:,} offsets from {position} on, parsed by {len(outlook.schemas)} schemas of "
        "deployed topologies"
    ]
    if outlook.lost:
        names = ", ".join(map(str, outlook.lost))
        lines.append(f"  retention removed {names} before it was archived: refused without --skip-lost")
    return lines


def _run(
    archivers: Mapping[Archiver, Outlook], stopping: threading.Event, *, follow: bool, every: float, quiet: bool
) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from kappa.archive import writer

    console = Console(stderr=True, quiet=quiet)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    is_plain = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=is_plain) as bar:
        tasks = {
            one: bar.add_task(outlook.topic, total=outlook.lag or None, rate="") for one, outlook in archivers.items()
        }
        start = time.monotonic()

        def advance(one: Archiver, offsets: int) -> None:
            bar.advance(tasks[one], offsets)
            task = next(task for task in bar.tasks if task.id == tasks[one])
            rate = f"{task.completed / (time.monotonic() - start):,.0f} offsets/s"
            bar.update(tasks[one], rate=rate)
            if is_plain:
                console.print(f"{task.description}: {task.completed:,.0f} offsets archived, {rate}", highlight=False)

        def name(one: Archiver, error: Exception) -> None:
            typer.echo(f"Topic {archivers[one].topic!r} is not archived: {error}", err=True)

        writer.run(
            list(archivers),
            follow=follow,
            every_seconds=every,
            on_slice=advance,
            on_failure=name,
            is_over=stopping.is_set,
        )
