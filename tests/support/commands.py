"""The command line in a process of its own, and what it imported."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

#: What takes long to import.
HEAVY = ("pyspark", "numpy", "pandas", "pyarrow", "deltalake", "confluent_kafka", "rich", "structlog", "sqlglot")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A command that ended.

    Attributes:
        code: its exit code.
        output: what it printed.
        imported: what it imported of :data:`HEAVY`.
    """

    code: int
    output: str
    imported: list[str]


def run(*words: str, **environ: str) -> Ran:
    """Run ``kappa`` with these words and this in its environment."""
    program = (
        "import sys; from kappa.cli import main; sys.argv[0] = 'kappa'\n"
        "try: main()\n"
        f"finally: print('imported', *sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )
    return Ran(code=done.returncode, output=done.stdout, imported=done.stderr.rpartition("imported")[2].split())
