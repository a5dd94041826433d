"""Waiting for an epoch with a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from kappa import control
from kappa.config import Config
from kappa.errors import StuckError

PAUSE_SECONDS = 0.5


def watch(
    config: Config, topology: str, epoch: int, *, until: Callable[[control.Progress], bool], quiet: bool = False
) -> control.Progress:
    """Show an epoch's progress until a condition holds; a dead driver is restarted.

    Raises:
        MoveRefusedError: somebody stopped, aborted, rejected or released the epoch: the condition will not hold.
        StuckError: the driver waits for a decision.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from kappa.driver.processes.process import Revival

    console = Console(stderr=True, quiet=quiet, markup=False)
    columns = (
        TextColumn("epoch {task.fields[epoch]} {task.fields[stage]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}% {task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    shown = ""
    revival = Revival(config, {topology: epoch})
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty() or quiet) as bar:
        task = bar.add_task("", total=None, epoch=epoch, stage="", rate="", doing="")
        while True:
            progress = control.progress(config, topology, epoch)
            if progress.driver.state == "stuck":
                answered = control.answered_reason(config, topology, epoch)
                if answered and answered in progress.driver.message:
                    time.sleep(PAUSE_SECONDS)
                    continue  # the heartbeat is still that of the previous attempt
            rate = f"{progress.records_per_second:,.0f} records/s" if progress.records_per_second else ""
            bar.update(
                task,
                total=progress.total or 1,
                completed=progress.done,
                stage=progress.stage,
                rate=rate,
                doing=progress.driver.message,
            )
            if not sys.stderr.isatty() and progress.message != shown:
                shown = progress.message
                console.print(shown, highlight=False)
            if until(progress):
                return progress
            if not progress.is_wanted:
                control.check_wanted(control.record(config, topology), epoch)
            if progress.driver.state == "stuck":
                raise StuckError(
                    f"Epoch {epoch} of {topology!r} is {progress.driver.message}. Its log has the error; after a "
                    f"failed slice `kappa start {topology} --epoch {epoch} --execute` tries again.",
                    epoch=epoch,
                )
            if not progress.driver.is_running:
                revival.look()
            time.sleep(PAUSE_SECONDS)


def watch_together(config: Config, members: Mapping[str, int], *, quiet: bool = False) -> None:
    """Show what the drivers of epochs that go live together are doing, until they are live; dead ones are restarted.

    Raises:
        MoveRefusedError: the handover was withdrawn, or ended otherwise, or an epoch of it was stopped: nothing has
            moved.
        StuckError: a driver of the new epochs waits for a decision.
    """
    from rich.console import Console

    from kappa.control import cutover
    from kappa.driver.handovers.expiry import Expiry
    from kappa.driver.processes.process import Revival
    from kappa.record.epochs import epochs_of

    console = Console(stderr=True, quiet=quiet, markup=False)
    shown: dict[str, str] = {}
    epochs = epochs_of(config.lake)
    expiries = {
        name: Expiry(
            config=config,
            epochs=epochs,
            actor="kappa cutover",
            state_of=lambda name, epoch: control.driver_status(config, name, epoch).state,
        )
        for name in members
    }
    revival = Revival(config, members)
    while not cutover.is_live(config, members):
        for name, epoch in members.items():
            expiries[name].look(epochs.record(name))
            progress = control.progress(config, name, epoch)
            if progress.message != shown.get(name):
                shown[name] = progress.message
                console.print(f"{name}: {progress.message}", highlight=False)
            if not progress.is_wanted:
                control.check_wanted(epochs.record(name), epoch)
            if progress.driver.state == "stuck":
                raise StuckError(
                    f"Epoch {epoch} of {name!r} is {progress.driver.message}. See its log; none of "
                    f"{', '.join(members)} has moved.",
                    epoch=epoch,
                )
        revival.look()
        time.sleep(PAUSE_SECONDS)
