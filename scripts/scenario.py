"""Runs the tests of one row of docs/scenarios.md: ``python scripts/scenario.py P3``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def tests_of(page: str) -> dict[str, tuple[str, ...]]:
    """Row -> its tests, as pytest takes them; none for a row that has no test yet."""
    tests_by_row: dict[str, tuple[str, ...]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 6 and re.fullmatch(r"[PQLIK]\d+(, [PQLIK]\d+)*", cells[1]):
            tests = tuple(f"tests/{name}" for name in re.findall(r"`([^`]+\.py[^`]*)`", cells[4]))
            tests_by_row |= dict.fromkeys(cells[1].split(", "), tests)
    return tests_by_row


def main(scenario: str) -> int:
    rows = tests_of((ROOT / "docs" / "scenarios.md").read_text())
    if scenario not in rows:
        print(f"There is no scenario {scenario!r}; rows are {', '.join(rows)}.", file=sys.stderr)
        return 2
    if not rows[scenario]:
        print(f"Scenario {scenario} is not built yet: docs/scenarios.md says what is missing.", file=sys.stderr)
        return 1
    return subprocess.call([sys.executable, "-m", "pytest", "-v", "-m", "not soak", *rows[scenario]], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
