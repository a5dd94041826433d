"""docs/benchmarks.md is made from the stored figures, and says which of them missed their target."""

from __future__ import annotations

import json

import pytest
from benchmarks.__main__ import PARTS
from benchmarks.page import MEASURED, PAGE, page, take
from benchmarks.plot import PICTURE, picture


def test_the_page_is_the_output_of_the_script() -> None:
    assert PAGE.read_text() == page(json.loads(MEASURED.read_text())), "run: python -m benchmarks.page"


@pytest.mark.parametrize(("value", "result"), [(0.59, "**missed**"), (0.6, "met")])
def test_a_figure_that_misses_its_target_says_so(value: float, result: str) -> None:
    figure = {
        "part": "a",
        "name": "replay",
        "value": value,
        "unit": "x",
        "wanted": ">= 0.6",
        "date": "2026-03-01",
        "conditions": "alone",
    }

    text = page({"machine": "one core", "invoices": 10, "figures": [figure]})

    assert f"| (a) | replay | {value} x | at least 0.6 | {result} |" in text
    assert f"- (a) replay: {value} x, target at least 0.6." in text if result != "met" else "None." in text


def test_a_part_without_a_figure_is_named() -> None:
    text = page({"machine": "one core", "invoices": 10, "figures": []})

    assert all(f"- ({part}) {title}" in text for part, (title, _) in PARTS.items())


def point(keys: int, rounds: int, records: int, seconds: float) -> dict[str, float]:
    return {"keys": keys, "rounds": rounds, "records": records, "seconds": seconds}


def run() -> dict[str, object]:
    """What a run of parts (j) and (k) writes."""
    once, often = point(100, 1, 100, 2.0), point(100, 8, 120, 2.5)
    points = {"keys": [once, point(400, 8, 420, 8.0)], "written": [once, point(100, 8, 800, 6.0)]}
    rate = {"records_per_second": 20_000.4, "floor_records_per_second": [90_000, 100_000.2], "records": 10_000}
    common = {"unit": "x", "wanted": ""}
    return {
        "machine": {"at": "2026-03-01T10:00:00+00:00"},
        "figures": [
            {
                "part": "j",
                "name": "a.b: bulk replay, warm, over read and parse",
                "value": 0.2,
                "detail": rate,
                **common,
            },
            {"part": "j", "name": "a.b: rows of w after 5 slices over those after one", "detail": {"rows": [7, 9]}},
            {
                **common,
                "part": "k",
                "name": "history",
                "value": 1.25,
                "wanted": "<= 1.5",
                "detail": {**points, "compacted": [once, often]},
            },
            {"part": "k", "name": "keys", "value": 4.0, "detail": {}, **common},
        ],
    }


def test_figures_of_a_run_are_taken_over_and_reasons_stay() -> None:
    reason = {"rows": [{"topology": "a.b", "why": "It writes two rows per record."}]}
    measured = {"machine": "one core", "invoices": 10, "figures": [], "topologies": reason}

    text = page(take(measured, run(), conditions="alone"))

    assert "| `a.b` | 100,000 | 20,000 | **0.2** | `w` 7 → 9 |" in text
    assert "- `a.b`, 0.2: It writes two rows per record." in text
    assert "| 100 | 8, as written | 800 | 6.0 |\n| 100 | 8, compacted | 120 | 2.5 |\n" in text
    assert "| 400 | compacted, then 1 of each new key | 420 | 8.0 |" in text
    assert "Part (j), 2026-03-01, alone: 10,000 records in each source" in text
    assert "| (k) | history | 1.25 x | at most 1.5 | met |" in text
    assert "(j) each shipped topology" not in text.partition("## Throughput")[0]


def test_the_picture_is_drawn_from_the_figures_and_is_reproducible() -> None:
    points = take({"figures": []}, run(), conditions="alone")["rebuild"]

    drawn = picture(points)

    assert drawn == picture(points)
    assert all(text in drawn for text in ("thousand keys", "changes of each key", "seconds", "compacted by the broker"))


def test_the_picture_of_the_page_shows_the_stored_figures() -> None:
    stored = json.loads(MEASURED.read_text())
    assert PICTURE.exists() == ("rebuild" in stored)
    assert "rebuild" not in stored or PICTURE.read_text() == picture(stored["rebuild"]), (
        "run: python -m benchmarks.page"
    )
