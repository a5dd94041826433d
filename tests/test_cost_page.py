"""docs/cost.md: its requests are those that tests count, and its table follows from them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from support.s3_lake import LIMITS

PAGE = (Path(__file__).parents[1] / "docs" / "cost.md").read_text()
PROGRAM, SHOWN = re.findall(r"^```(?:python run|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def ran() -> tuple[dict[str, dict[str, float]], str]:
    """The requests that the page's program has, and what it prints."""
    names: dict[str, dict[str, dict[str, float]]] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(PROGRAM, names)
    return names["REQUESTS"], printed.getvalue()


def test_the_page_has_the_requests_that_tests_count() -> None:
    limits = {what: {kind: most for kind, most in kinds.items() if most} for what, kinds in LIMITS.items()}
    assert ran()[0] == limits, "copy the limits of tests/support/s3_lake.py, and what the program prints"


def test_the_table_of_the_page_follows_from_its_requests() -> None:
    assert ran()[1] == SHOWN
