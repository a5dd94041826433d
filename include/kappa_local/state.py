"""The files of an embedded stack in its home, and the processes of its last start."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kappa.config import Config
from kappa_local.processes import Identity, is_alive


@dataclass(frozen=True, kw_only=True)
class Running:
    """The content of ``processes.json``: recorded identities, whose processes may have ended."""

    supervisor: Identity | None = None
    children: Mapping[str, Identity] = field(default_factory=dict)
    bootstrap_servers: str | None = None
    api_port: int | None = None
    with_airflow: bool = False


def running(config: Config) -> Running:
    """The processes of the last start, from ``processes.json``; an empty record if there was none.

    A file that a power cut left cut short counts as none: it ended the processes too.
    """
    path = processes_file(config)
    if not path.is_file():
        return Running()
    try:
        written = json.loads(path.read_text())
        return Running(
            supervisor=Identity(**written["supervisor"]) if written.get("supervisor") else None,
            children={name: Identity(**child) for name, child in written.get("children", {}).items()},
            bootstrap_servers=written.get("bootstrap_servers"),
            api_port=written.get("api_port"),
            with_airflow=written.get("with_airflow", False),
        )
    except (AttributeError, TypeError, ValueError):
        return Running()


def is_up(config: Config) -> bool:
    """Whether the stack's supervisor runs; its children may still be starting."""
    supervisor = running(config).supervisor
    return supervisor is not None and is_alive(supervisor)


def write_running(config: Config, recorded: Running) -> None:
    """Replace ``processes.json`` in one step."""
    write_json(processes_file(config), dataclasses.asdict(recorded))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file in one step: a reader sees the old or the new one."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=2) + "\n")
    partial.rename(path)


def mark(config: Config) -> tuple[str, str]:
    """The variable that marks every process of this home."""
    return "KAPPA_HOME", str(config.home)


def broker_dir(config: Config) -> Path:
    """The folder of the broker's files."""
    return config.home / "kafka"


def logs(config: Config) -> Path:
    """The folder with one log for each process of the stack."""
    return config.home / "logs"


def processes_file(config: Config) -> Path:
    """The file of :class:`Running`."""
    return config.home / "processes.json"
