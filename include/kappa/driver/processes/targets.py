"""The drivers' addresses for Prometheus: a file of targets for its ``file_sd_configs``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kappa.config import Config
from kappa.driver.processes.process import wanted_drivers
from kappa.errors import UNREADABLE
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.store.stores import store_of


def targets(config: Config) -> list[dict[str, Any]]:
    """The endpoint of each driver that should be running, as Prometheus reads a file of targets.

    A driver that died keeps its last endpoint until the next one of its epoch has another: Prometheus then says that it
    is down. One that was stopped has none, and one whose heartbeat newer code wrote.
    """
    entries = []
    for topology, epoch in wanted_drivers(config):
        try:
            beat = heartbeat.read(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).heartbeat)
        except UNREADABLE:  # it must not take the others' targets away
            continue
        if beat is not None and beat.metrics:
            owner = {"owner": beat.owner} if beat.owner else {}
            labels = {"topology": topology, "epoch": str(epoch), **owner}
            entries.append({"targets": [beat.metrics], "labels": labels})
    return entries


def write_targets(config: Config, file: Path) -> None:
    """Replace a file of targets in one step, if they changed; its folder is made."""
    text = json.dumps(targets(config), indent=2) + "\n"
    if file.is_file() and file.read_text() == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    store_of(str(file)).put(str(file), text.encode())
