"""The page of streams that everybody writes: each is as short as it says, and gives what it should."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kappa.testing import Input, TopologyDriver, assert_slice_invariant
from kappa.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "five-streams.md").read_text()
SECTIONS = {section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
#: So many lines each may have at most.
MOST = {
    "Visits with their pages": 15,
    "Orders, payments, and an alert": 20,
    "Daily revenue with corrections": 22,
    "The top ten of each hour": 20,
}
MINUTE = 60_000


def fence(title: str, language: str) -> str:
    (text,) = re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", SECTIONS[title], re.MULTILINE | re.DOTALL)
    return str(text)


def topology_of(title: str) -> Topology:
    found: dict[str, Any] = {}
    exec(compile(fence(title, "python"), f"<{title}>", "exec"), found)
    assert isinstance(found["topology"], Topology)
    return found["topology"]


def lines_of(text: str, comment: str) -> int:
    """Lines that are neither blank nor a comment nor an import."""
    kept = (line.strip() for line in text.splitlines())
    return sum(1 for line in kept if line and not line.startswith((comment, "import ", "from ")))


@pytest.mark.parametrize("title", MOST)
def test_a_stream_is_as_short_as_the_page_says(title: str) -> None:
    text = fence(title, "python")
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "topology.py", "-"]
    done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == text  # as the project's formatter has it
    imported = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module in ("kappa", "kappa.operators")
    }
    assert len(imported) == sum(
        len(node.names) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)
    )
    own, java = lines_of(text, "#"), lines_of(fence(title, "java"), "//")
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| [{title}]")]
    assert row.split("|")[2:4] == [f" {own} ", f" {java} "]
    assert own <= MOST[title]


def test_every_section_is_held() -> None:
    assert SECTIONS.keys() == MOST.keys()


def record(topic: str, value: Mapping[str, Any] | None, minute: float = 0, key: str | None = None) -> Input:
    return Input(topic=topic, value=value, key=key, timestamp_ms=int(minute * MINUTE))


def click(visitor: str, minute: int, page: str) -> Input:
    return record("clicks", {"visitor": visitor, "page": page, "at": minute * MINUTE}, minute)


@pytest.mark.spark
def test_visits_count_clicks_and_pages(spark: SparkSession) -> None:
    topology = topology_of("Visits with their pages")
    log = [click("ada", 0, "/"), click("ada", 20, "/cart"), click("ada", 16, "/"), click("bob", 90, "/")]
    driver = TopologyDriver(topology, spark)
    driver.pipe(log)
    assert [(row["visitor"], row["clicks"], row["pages"]) for row in driver.rows("visits")] == [("ada", 3, 2)]
    assert_slice_invariant(topology, log, spark, cuts=1)


@pytest.mark.spark
def test_an_order_that_is_not_paid_in_time_is_told_once(spark: SparkSession) -> None:
    topology = topology_of("Orders, payments, and an alert")
    log = [
        record("orders", {"order_id": "a", "amount": "9.00"}, 0),
        record("orders", {"order_id": "b", "amount": "5.00"}, 1),
        record("payments", {"order_id": "a", "paid": "9.00"}, 14),
        record("payments", {"order_id": "b", "paid": "5.00"}, 17),
        record("orders", {"order_id": "z", "amount": "1.00"}, 60),
        record("payments", {"order_id": "y", "paid": "1.00"}, 60),
    ]
    driver = TopologyDriver(topology, spark)
    driver.pipe(log)
    assert [(row["order_id"], row["paid"]) for row in driver.rows("matched")] == [("a", Decimal("9.00")), ("b", None)]
    assert [key for key, _ in driver.sent("payment-alerts")] == [b"b"]
    assert_slice_invariant(topology, log, spark, cuts=1)


@pytest.mark.spark
def test_a_correction_moves_revenue_and_a_deletion_takes_it_away(spark: SparkSession) -> None:
    topology = topology_of("Daily revenue with corrections")

    def order(key: str, amount: str, day: str) -> Input:
        return record("sales", {"category": "books", "day": day, "amount": amount}, key=key)

    log = [
        order("a", "10.00", "2026-11-27"),
        order("b", "5.00", "2026-11-27"),
        order("a", "12.50", "2026-11-28"),
        record("sales", None, key="b"),
        order("c", "1.00", "2026-11-28"),
    ]
    driver = TopologyDriver(topology, spark)
    driver.pipe(log[:2])
    driver.pipe(log[2:])
    assert [(row["day"], row["revenue"], row["orders"]) for row in driver.rows("revenue")] == [
        (date(2026, 11, 28), Decimal("13.50"), 2)
    ]
    assert_slice_invariant(topology, log, spark, cuts=1)


@pytest.mark.spark
def test_the_top_ten_are_ranked_when_their_hour_is_over(spark: SparkSession) -> None:
    topology = topology_of("The top ten of each hour")
    views = [(page, page * 3 + n) for page in range(12) for n in range(page + 1)]
    log = [record("views", {"page": f"/{page:02}", "at": minute * MINUTE}, minute) for page, minute in views]
    end = record("views", {"page": "/end", "at": 70 * MINUTE}, 70)
    driver = TopologyDriver(topology, spark)
    driver.pipe([*log, end])
    top = sorted((row["place"], row["page"], row["views"]) for row in driver.rows("top"))
    assert top == [(place, f"/{12 - place:02}", 13 - place) for place in range(1, 11)]

    again = TopologyDriver(topology, spark)
    for part in (log[::2], log[1::2], [end]):
        again.pipe(part)
    assert sorted((row["place"], row["page"], row["views"]) for row in again.rows("top")) == top
