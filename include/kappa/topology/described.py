"""Definitions in files of topologies, reported by a process that imports them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kappa.errors import CodeError
from kappa.topology import Topology, registry


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A topology that a file defines.

    Attributes:
        version: its version.
        sources: topics that it reads.
        tables: tables that it keeps.
        outputs: append outputs, then topics.
    """

    name: str
    version: str
    sources: tuple[str, ...]
    tables: tuple[str, ...]
    outputs: tuple[str, ...]


def report(descriptor: int, files: Sequence[str]) -> None:
    """In the child: import each file, and write a line before and a line after it."""
    with os.fdopen(descriptor, "w", buffering=1) as out:
        for file in files:
            out.write(json.dumps({"begins": file}) + "\n")
            try:
                content: Any = [asdict(_deployed(topology)) for topology in registry.import_file(Path(file))]
            except CodeError as error:
                content = str(error)
            out.write(json.dumps({"found": content}) + "\n")


def _deployed(topology: Topology) -> Deployed:
    return Deployed(
        name=topology.name,
        version=topology.version,
        sources=tuple(source.topic for source in topology.sources),
        tables=tuple(table.name for table in topology.tables),
        outputs=(*(append.name for append in topology.appends), *(topic.name for topic in topology.topics)),
    )
