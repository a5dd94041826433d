"""What a command imports: a command takes its time from that alone where it has little to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import run
from support.web_site import Site


def imported(*words: str, **environ: str) -> tuple[int, list[str]]:
    """The exit code of a command, and what it imported of those that take long."""
    ran = run(*words, **environ)
    return ran.code, ran.imported


@pytest.mark.parametrize("words", [["--help"], ["replay", "--help"], ["generate", "--help"]])
def test_help_imports_no_engine(words: list[str]) -> None:
    assert imported(*words) == (0, [])


@pytest.mark.parametrize("words", [["topologies"], ["history", "sums"]])
def test_a_look_at_the_record_imports_neither_spark_nor_pandas(tmp_path: Path, words: list[str]) -> None:
    site = Site(tmp_path)
    code, modules = imported(*words, **site.config.to_env())
    assert code == 0 and "deltalake" in modules
    assert set(modules) <= {"numpy", "pyarrow", "deltalake", "confluent_kafka"}, modules
