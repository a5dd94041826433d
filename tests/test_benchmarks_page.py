"""docs/benchmarks.md is made from the stored figures, and says which of them missed their target."""

from __future__ import annotations

import json

import pytest
from benchmarks.__main__ import PARTS
from benchmarks.page import MEASURED, PAGE, page


def test_the_page_is_what_the_script_makes() -> None:
    assert PAGE.read_text() == page(json.loads(MEASURED.read_text())), "run: python -m benchmarks.page"


@pytest.mark.parametrize(("value", "result"), [(0.59, "**missed**"), (0.6, "met")])
def test_a_figure_beyond_its_target_says_so(value: float, result: str) -> None:
    figure = {
        "part": "a",
        "name": "replay",
        "value": value,
        "unit": "x",
        "wanted": ">= 0.6",
        "date": "2026-03-01",
        "conditions": "alone",
    }

    made = page({"machine": "one core", "invoices": 10, "figures": [figure]})

    assert f"| (a) | replay | {value} x | at least 0.6 | {result} |" in made
    assert f"- (a) replay: {value} x, target at least 0.6." in made if result != "met" else "None." in made


def test_a_part_without_a_figure_is_named() -> None:
    made = page({"machine": "one core", "invoices": 10, "figures": []})

    assert all(f"- ({part}) {title}" in made for part, (title, _) in PARTS.items())
