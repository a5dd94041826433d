"""The command line in a process of its own, and what it imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

#: What takes long to import.
HEAVY = ("pyspark", "numpy", "pandas", "pyarrow", "deltalake", "confluent_kafka", "rich", "structlog", "sqlglot")
#: Begins the line of what was imported.
_IMPORTED = "imported by the command:"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A command that ended.

    Attributes:
        code: its exit code.
        output: what it printed.
        errors: what it printed as errors.
        imported: what it imported of :data:`HEAVY`.
    """

    code: int
    output: str
    errors: str
    imported: list[str]


def run(*words: str, before: Sequence[str] = (), **environ: str) -> Ran:
    """Run ``kappa`` with these words and this in its environment; another program that runs it comes before."""
    program = (
        "import sys; from kappa.cli import main; sys.argv[0] = 'kappa'\n"
        "try: main()\n"
        f"finally: print('{_IMPORTED}', *sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [*before, sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )
    before, _, line = done.stderr.partition(_IMPORTED)
    imported, _, after = line.partition("\n")  # the interpreter prints the stack of an error after it
    return Ran(code=done.returncode, output=done.stdout, errors=before + after, imported=imported.split())
