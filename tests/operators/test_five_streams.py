"""The page of common streams: each is as short as stated, and gives the expected rows under every cut."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.five_streams import (
    CDC,
    LOGS,
    PAGE,
    RESULTS,
    REVENUE,
    SECTIONS,
    TOP,
    UNPAID,
    VISITS,
    fence,
    picked,
    topology_of,
)

from kappa.testing import TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
#: The most lines that each may have.
MOST = {VISITS: 15, UNPAID: 20, REVENUE: 22, TOP: 20, CDC: 18}


def lines_of(text: str, comment: str) -> int:
    """Lines that are neither blank nor a comment nor an import."""
    lines = (line.strip() for line in text.splitlines())
    return sum(1 for line in lines if line and not line.startswith((comment, "import ", "from ")))


@pytest.mark.parametrize("title", MOST)
def test_a_stream_is_as_short_as_the_page_says(title: str) -> None:
    text = fence(title, "python")
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "topology.py", "-"]
    formatter = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True, timeout=60)
    assert formatter.stdout == text  # as the project's formatter has it
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {getattr(node, "module", None) for node in imports} == {"kappa", "kappa.operators"}
    own, java = lines_of(text, "#"), lines_of(fence(title, "java"), "//")
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| [{title}]")]
    assert row.split("|")[2:4] == [f" {own} ", f" {java} "]
    assert own <= MOST[title]


def test_every_section_has_a_case() -> None:
    assert SECTIONS.keys() == MOST.keys() == LOGS.keys() == RESULTS.keys()


@pytest.mark.spark
@pytest.mark.parametrize("title", MOST)
def test_a_stream_gives_the_expected_rows_however_its_log_is_cut(spark: SparkSession, title: str) -> None:
    topology, log, (place, _, expected) = topology_of(title), LOGS[title], RESULTS[title]
    driver = TopologyDriver(topology, spark)
    driver.pipe(log)
    assert picked(title, driver.rows(place)) == expected
    if title == UNPAID:
        assert [key for key, _ in driver.sent("payment-alerts")] == [b"b"]
    if title != TOP:
        assert_slice_invariant(topology, log, spark, cuts=1)
        return
    again = TopologyDriver(topology, spark)
    for part in (log[:-1:2], log[1:-1:2], log[-1:]):
        again.pipe(part)
    assert picked(title, again.rows(place)) == expected
