"""Where drivers died: a run says at its end how often at each point. And programs that are to die."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping

#: A crash point for each death that a test waited for, with ``:stop`` behind it when the driver froze there.
DEATHS: list[str] = []

#: So many tries of a slice that no number of deaths in a test changes how the records are cut into slices.
ENDLESS = 1_000


def run_to_death(*words: str, point: str, environ: Mapping[str, str]) -> None:
    """Run Python with these words, to die at a crash point: nothing but a SIGKILL is taken for a death."""
    from kappa import faults

    done = subprocess.run(
        [sys.executable, *words],
        env={**environ, faults.VARIABLE: point},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, f"it did not die at {point}:\n{done.stdout}{done.stderr}"
    DEATHS.append(point.partition("@")[0])
