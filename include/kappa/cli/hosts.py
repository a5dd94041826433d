"""The command that makes this host one for drivers."""

from __future__ import annotations

import dataclasses
import signal
import threading

import typer

from kappa.cli.options import config
from kappa.driver import host


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(drivers)


def drivers() -> None:
    """Be a host for drivers: start those that are wanted and missing, until SIGTERM or Ctrl-C."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    host.host(dataclasses.replace(config(), launcher="here"), stopping)
