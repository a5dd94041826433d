"""The shell completes commands, options and names of topologies."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import run
from support.topologies import FOLDER


def complete(line: str, tmp_path: Path, **environ: str) -> tuple[list[str], list[str]]:
    """What bash is told to show behind a line, and what of long imports that took."""
    variables = {"_KAPPA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    settings = {"KAPPA_HOME": str(tmp_path), "KAPPA_TOPOLOGIES": str(FOLDER), **environ}
    ran = run(**settings, **variables)
    assert ran.code == 0
    return ran.output.split(), ran.imported


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("kappa pro", ["profile"]),
        ("kappa profile --sl", ["--slices"]),
        ("kappa profile retail.l", ["retail.loyalty"]),
        ("kappa status retail.l", ["retail.loyalty"]),
        ("kappa cutover retail.loyalty retail.re", ["retail.revenue"]),
        ("kappa status none", []),
    ],
)
def test_what_begins_so_is_shown_without_an_engine(tmp_path: Path, line: str, shown: list[str]) -> None:
    assert complete(line, tmp_path) == (shown, [])


def test_settings_that_are_wrong_complete_nothing_and_say_nothing(tmp_path: Path) -> None:
    assert complete("kappa status re", tmp_path, KAPPA_SLICE_RECORDS="many") == ([], [])
