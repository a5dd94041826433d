"""Whether an interpreter can run the driver of some code: asked before an epoch goes over to it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kappa.spark import gateway

#: Most seconds that the imports may take on a busy machine.
ANSWER_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What the new code says of itself in the interpreter that is to run it.

    Attributes:
        obstacle: why that cannot run it, in one line; empty where it can.
        masked: columns that need a right of their own, by place.
        times: time and grace of its sources, by topic, as JSON values.
    """

    obstacle: str = ""
    masked: Mapping[str, Any] = field(default_factory=dict)
    times: Mapping[str, Any] = field(default_factory=dict)


def rehearse(python: str, root: Path, topology: str) -> Rehearsal:
    """Ask the code of a topology whether an interpreter can run its driver. Changes nothing.

    Its own module answers (:mod:`kappa.driver.processes.readiness`): nothing of the code is imported here.

    Args:
        python: the interpreter.
        root: the folder of the code: the platform is in ``include``, the topology in ``topologies``.
        topology: its name.
    """
    variables, folder = gateway.inherited(), str(root / "topologies")
    path = os.pathsep.join([str(root / "include"), *filter(None, [variables.get("PYTHONPATH")])])
    try:
        child = subprocess.run(
            [python, "-P", "-m", "kappa.driver.processes.readiness", folder, topology],
            env={**variables, "PYTHONPATH": path, "KAPPA_TOPOLOGIES": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Rehearsal(obstacle=f"{type(error).__name__}: {error}")
    if child.returncode:
        return Rehearsal(obstacle=_last_line(child.stderr) or f"it ended with exit code {child.returncode}")
    try:
        values = json.loads(_last_line(child.stdout))
        return Rehearsal(masked=values["masked"], times=values["times"])
    except (ValueError, KeyError, TypeError):
        return Rehearsal(obstacle="it gave no answer")


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.split("\n")) if line.strip()), "")
