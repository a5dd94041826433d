"""Whether an interpreter can run the driver of some code: asked before an epoch goes over to it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kappa.spark import gateway

#: Most seconds that the imports may take on a busy machine.
ANSWER_SECONDS = 300.0

# What a driver imports at its start and when it first needs Spark, and the file of the topology.
_CHILD = """
import sys
from pathlib import Path
try:
    import pyspark.sql
    import kappa.driver.__main__, kappa.driver.driver
    from kappa.topology import registry
    registry.load(Path(sys.argv[1]), sys.argv[2])
except BaseException as error:
    sys.exit(f"{type(error).__name__}: {error}".splitlines()[0])
"""


def obstacle(python: str, root: Path, topology: str) -> str:
    """Why an interpreter cannot run a topology's driver, in one line; empty where it can. Changes nothing.

    Args:
        python: the interpreter.
        root: the folder of the code: the platform is in ``include``, the topology in ``topologies``.
        topology: its name.
    """
    variables, folder = gateway.inherited(), str(root / "topologies")
    path = os.pathsep.join([str(root / "include"), *filter(None, [variables.get("PYTHONPATH")])])
    try:
        child = subprocess.run(
            [python, "-P", "-c", _CHILD, folder, topology],
            env={**variables, "PYTHONPATH": path, "KAPPA_TOPOLOGIES": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    if not child.returncode:
        return ""
    lines = child.stderr.split("\n")
    return next((line for line in reversed(lines) if line.strip()), f"it ended with exit code {child.returncode}")
