"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from kappa.spark.jars import KAFKA_VERSION, find_java, java_release

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "confluent-kafka", "pyarrow", "numpy")


def description() -> dict[str, Any]:
    """Cores, memory, versions and what else the machine was doing."""
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    versions = {
        **{name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "java": str(java_release(find_java())),
        "kafka": KAFKA_VERSION,
    }
    processor = _processor()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "summary": f"{cores} cores ({processor}), {memory / 2**30:.0f} GB, load {os.getloadavg()[0]:.1f} before the "
        "run",
        "cores": cores,
        "processor": processor,
        "memory_bytes": memory,
        "system": platform.platform(),
        "load_before": os.getloadavg(),
        "versions": versions,
        "commit": _commit(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str | None:
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout.strip() or None
