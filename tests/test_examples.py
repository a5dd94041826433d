"""The examples of changes in docs/examples: they apply to this tree, and each is as small as CONTRIBUTING says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.patch"))


def test_a_finding_and_a_format_are_shown() -> None:
    assert [file.stem for file in EXAMPLES] == ["0001-add-a-finding", "0002-change-the-changelog-format"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_applies_and_touches_at_most_three_files(example: Path) -> None:
    result = subprocess.run(
        ["git", "apply", "--check", str(example)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, f"make it anew, as CONTRIBUTING says: {result.stderr}"
    touched = re.findall(r"^diff --git a/\S+ b/(\S+)$", example.read_text(), re.MULTILINE)
    assert 0 < len(touched) <= 3
