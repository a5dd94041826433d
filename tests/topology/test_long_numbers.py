"""A number of more digits than Python reads is refused as any other text that means nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kappa.cli import app
from kappa.errors import TopologyError, UsageError
from kappa.operators.timed.grids import grid_of
from kappa.topology.ddl import columns_of
from kappa.topology.times.durations import milliseconds

LONG = "9" * 5000
DECLARED: dict[str, Callable[[], Any]] = {
    "digits of a DECIMAL": lambda: columns_of(f"n DECIMAL({LONG},2)", "table t"),
    "digits after the point": lambda: columns_of(f"n DECIMAL(12,{LONG})", "table t"),
    "a length of time": lambda: milliseconds(f"{LONG} seconds"),
    "months of a window": lambda: grid_of("w", f"{LONG} months", "1 month", zone="UTC", week_begins=None),
}
GIVEN = {
    "an upstream epoch": ["plan", "a.b", "--to-earliest", "--upstream", f"a.c={LONG}"],
    "an epoch to read": ["sql", "SELECT 1 FROM a.b.c", "--epoch", f"a.b={LONG}"],
}


@pytest.mark.parametrize("declare", DECLARED.values(), ids=DECLARED)
def test_in_a_declaration(declare: Callable[[], Any]) -> None:
    with pytest.raises(TopologyError):
        declare()


@pytest.mark.parametrize("words", GIVEN.values(), ids=GIVEN)
def test_in_a_command(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("Topology(name='a.b', version='1')")
    env = {"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake"), "KAPPA_TOPOLOGIES": str(tmp_path)}
    outcome = CliRunner().invoke(app, words, env=env)
    assert isinstance(outcome.exception, UsageError), outcome.output + str(outcome.exception)
