"""What a command imports: a command takes its time from that alone where it has little to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.web_site import Site

HEAVY = ("pyspark", "numpy", "pandas", "pyarrow", "deltalake", "confluent_kafka", "rich", "structlog", "sqlglot")


def imported(*words: str, **environ: str) -> tuple[int, list[str]]:
    """The exit code of a command, and what it imported of those that take long."""
    program = (
        "import sys; from kappa.cli import main; sys.argv[0] = 'kappa'\n"
        "try: main()\n"
        f"finally: print('imported', *sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )
    return run.returncode, run.stderr.rpartition("imported")[2].split()


@pytest.mark.parametrize("words", [["--help"], ["replay", "--help"], ["generate", "--help"]])
def test_help_imports_no_engine(words: list[str]) -> None:
    assert imported(*words) == (0, [])


@pytest.mark.parametrize("words", [["topologies"], ["history", "sums"]])
def test_a_look_at_the_record_imports_neither_spark_nor_pandas(tmp_path: Path, words: list[str]) -> None:
    site = Site(tmp_path)
    code, found = imported(*words, **site.config.to_env())
    assert code == 0 and "deltalake" in found
    assert set(found) <= {"numpy", "pyarrow", "deltalake", "confluent_kafka"}, found
