"""Named places where a process may be killed on purpose, to prove that it can be started again.

``KAPPA_CRASH_AFTER=effects@3`` kills the process with SIGKILL right after point ``effects`` of slice 3; without a number,
the first time the point is passed. ``KAPPA_CRASH_AFTER=effects@3:stop`` freezes it with SIGSTOP instead, which is what a
paused virtual machine or a long garbage collection looks like from outside. Only tests and drills set it.
"""

from __future__ import annotations

import os
import signal

_VARIABLE = "KAPPA_CRASH_AFTER"


def crash_point(name: str, seq: int | None = None) -> None:
    """Kill or freeze this process here when the environment asks for it."""
    wanted = os.environ.get(_VARIABLE)
    if not wanted:
        return
    place, _, how = wanted.partition(":")
    point, _, number = place.partition("@")
    if point != name or (number and seq is not None and int(number) != seq):
        return
    os.environ.pop(_VARIABLE)
    os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)
