"""The index of decisions names each page once, by its title."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "decisions"


def test_each_decision_is_in_the_index_once_under_its_title() -> None:
    index = (FOLDER / "README.md").read_text()
    titles = {file.name: file.read_text().partition("\n")[0].removeprefix("# ") for file in FOLDER.glob("*.md")}
    del titles["README.md"]
    rows = re.findall(r"^\| \[(.+)\]\(([\w-]+\.md)\) \| \d{4}-\d\d-\d\d \|$", index, re.MULTILINE)
    assert sorted((name, title) for title, name in rows) == sorted(titles.items())
