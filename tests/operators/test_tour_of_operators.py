"""The tour of operators: each topology of the page loads, is short, and passes the page's own test of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kappa.topology import registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tour-of-operators.md").read_text()
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]


def fences(section: str) -> tuple[str, str]:
    """A topology and its test."""
    topology, test = re.findall(r"^```python[^\n]*\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return topology, test


def own_tests(section: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tests of a section by name, its topology being in the folder that the settings name."""
    topology, test = fences(section)
    (folder / "one.py").write_text(topology)
    monkeypatch.setenv("KAPPA_TOPOLOGIES", str(folder))
    namespace: dict[str, Any] = {}
    exec(compile(test, f"<the test of {section.partition(chr(10))[0]!r}>", "exec"), namespace)
    return {name: value for name, value in namespace.items() if name.startswith("test_")}


def test_the_page_shows_two_windows_a_stream_join_and_a_table_join(tmp_path: Path) -> None:
    for number, section in enumerate(SECTIONS):
        text, _ = fences(section)
        assert len(text.splitlines()) < 36
        (tmp_path / f"file{number}.py").write_text(text)
    topologies, broken = registry.topologies(tmp_path)
    made_by = [{table.made_by.partition("(")[0] for table in topology.tables} for topology in topologies.values()]
    assert not broken
    assert sorted(map(sorted, made_by)) == [["interval_join"], ["session_window"], ["table_join"], ["tumbling_window"]]


@pytest.mark.spark
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_each_topology_on_the_page_passes_its_test(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    tests = own_tests(section, tmp_path, monkeypatch)
    assert len(tests) >= 3
    for test in tests.values():
        test(spark)
