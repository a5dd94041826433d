"""Commands for a lake as a whole: its copy to another address."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.cli.options import Execute, Json, Reason, actor, config, say, say_json, show
from kappa.store.address import is_remote

if TYPE_CHECKING:
    from kappa.control.lakes.transfer import Freight, Progress

#: Pause between two lines where there is no terminal.
_LINE_SECONDS = 10.0

group = typer.Typer(name="lake", help="Move the lake to another address: a disk, or S3.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group)


@group.command()
def copy(
    address: Annotated[
        str, typer.Argument(help="Where the lake is to be: a path, or s3://bucket/prefix; empty until then.")
    ],
    reason: Reason = "",
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Copy the lake to another address, where it continues; it is closed at this one.

    Drivers may run while files are copied that do not change, and have to be stopped for the rest. Interrupted, the
    same command continues.
    """
    from kappa.control.lakes import moving

    settings = config()
    with _bar(quiet=json or not execute) as progress:
        act = moving.copy.planned(settings, address, actor=actor(), reason=reason, progress=progress)
        if execute:
            relocation = act.make()
    if not execute:
        show(act, otherwise=f"the lake is at {address}", json=json)
        return
    if json:
        say_json({"executed": True, "lake": relocation})
        return
    say(f"The lake is at {relocation.lake} now, and closed at {settings.lake}.")
    has_file = is_remote(relocation.lake) and settings.lake_client_file
    file = f" KAPPA_LAKE_CLIENT_FILE={quote(settings.lake_client_file)}" if has_file else ""
    say(f"Set it on each host: KAPPA_LAKE={quote(relocation.lake)}{file}")
    commands = [f"kappa start {name} --epoch {epoch} --execute" for name, epoch in relocation.epochs]
    commands += [f"kappa archive start {topic} --follow --execute" for topic in relocation.archives]
    say(f"Then, where it ran before: {command}" for command in commands)


@group.command("open")
def open_(
    reason: Reason = "",
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Also if nobody can see whether the lake at the other address continues.")
    ] = False,
    execute: Execute = False,
) -> None:
    """Let the lake go on at this address after a copy; the lake at the other address is closed."""
    from kappa.control.lakes import opening

    settings = config()
    with _bar(quiet=not execute) as progress:
        act = opening.reopen.planned(settings, actor=actor(), reason=reason, gives_up=give_up, progress=progress)
        if execute:
            act.make()
    if not execute:
        show(act, otherwise=f"the lake is at {settings.lake}")
        return
    say(f"The lake is at {settings.lake}. Look at it: kappa status")


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal, and a line now and then elsewhere: what, files, bytes, rate, time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True, quiet=quiet)
    is_plain = quiet or not sys.stderr.isatty()
    files = TextColumn("{task.fields[files]:,} of {task.fields[all_files]:,} files")
    columns = (TextColumn("{task.description}"), BarColumn(), files, DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=is_plain) as bar:
        task = bar.add_task("", total=None, files=0, all_files=0)
        present: tuple[str, int, int] | None = None
        begin = line = 0.0

        def show_freight(freight: Freight) -> None:
            nonlocal present, begin, line
            now, whole = time.monotonic(), (freight.what, freight.all_files, freight.all_bytes)
            if whole != present:
                present, begin, line = whole, now, now
                bar.reset(task)
            bar.update(
                task,
                description=freight.what,
                completed=freight.size_bytes,
                total=freight.all_bytes,
                files=freight.files,
                all_files=freight.all_files,
            )
            if is_plain and (now - line > _LINE_SECONDS or freight.files == freight.all_files):
                line = now
                rate = freight.size_bytes / max(now - begin, 0.001)
                console.print(
                    f"{freight.what}: {freight.files:,} of {freight.all_files:,} files, {freight.size_bytes:,} of "
                    f"{freight.all_bytes:,} bytes, {rate / 1e6:,.1f} MB/s, "
                    f"{(freight.all_bytes - freight.size_bytes) / max(rate, 1):,.0f} s left",
                    highlight=False,
                )

        yield show_freight
