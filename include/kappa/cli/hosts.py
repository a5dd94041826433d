"""Commands for hosts of drivers: running as one, and the endpoints of drivers for Prometheus."""

from __future__ import annotations

import dataclasses
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from kappa.cli.options import Json, config, say, say_json, table
from kappa.errors import DriverNotRunningError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(drivers)
    app.command()(metrics)


def drivers(
    targets: Annotated[
        Path | None,
        typer.Option("--targets", help="Keep this file up to date with the endpoints of drivers, for Prometheus."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Name each wanted driver that does not run or is stuck, and exit.")
    ] = False,
) -> None:
    """Run as a host of drivers: start each wanted driver that does not run, until SIGTERM or Ctrl-C."""
    from kappa.driver.processes import host

    if check:
        lines = host.check(config())
        if lines:
            raise DriverNotRunningError("\n".join(lines))
        say("Each wanted driver runs.")
        return
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    host.host(dataclasses.replace(config(), launcher="here"), stopping, targets)


def metrics(json: Json = False) -> None:
    """Show where the drivers answer Prometheus; with --json in the format of its file_sd_configs."""
    from kappa.driver.processes.targets import targets as all_targets

    targets = all_targets(config())
    if json:
        say_json(targets)
        return
    rows = [
        [one["labels"]["topology"], one["labels"]["epoch"], f"http://{one['targets'][0]}/metrics"] for one in targets
    ]
    table(rows, ["topology", "epoch", "endpoint"])
    if not rows:
        say("No driver has an endpoint: set KAPPA_METRICS=0 and restart the drivers.")
