"""The memory of this process, at its peak."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path


def growth() -> Callable[[], float]:
    """Forget earlier peaks; the result says by how many megabytes the peak was above this moment's memory."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_mb()
    return lambda: _peak_mb() - before


def _peak_mb() -> float:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / 1024
