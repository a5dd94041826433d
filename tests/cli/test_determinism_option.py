"""``--determinism`` starts Spark to look at the step; without it a plan starts none."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from kappa import control
from kappa.cli import app
from kappa.replay.request import ReplayRequest
from kappa.replay.rules.step import step_not_inspected
from kappa.verify import inspection

FINDINGS = (step_not_inspected("ValueError: no rows"),)


class Planned(Exception):
    """What would have been planned."""

    def __init__(self, request: ReplayRequest, step: tuple[Any, ...]) -> None:
        super().__init__("planned")
        self.request, self.step = request, step


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topologies whose step somebody had Spark look at."""
    topologies: list[str] = []

    def look(_: Any, topology: str) -> tuple[Any, ...]:
        topologies.append(topology)
        return FINDINGS

    def plan(_: Any, request: ReplayRequest, *, step: tuple[Any, ...] = ()) -> Any:
        raise Planned(request, step)

    monkeypatch.setattr(inspection, "inspect_deployed", look)
    monkeypatch.setattr(control, "plan", plan)
    return topologies


@pytest.mark.parametrize("command", ["plan", "replay"])
def test_a_second_run_is_asked_for_and_what_threatens_it_is_looked_for(looked_at: list[str], command: str) -> None:
    error = CliRunner().invoke(app, [command, "a.b", "--determinism"]).exception
    assert isinstance(error, Planned)
    assert (error.request.determinism, error.step, looked_at) == (True, FINDINGS, ["a.b"])


@pytest.mark.parametrize("command", ["plan", "replay"])
def test_without_it_nobody_starts_spark(looked_at: list[str], command: str) -> None:
    error = CliRunner().invoke(app, [command, "a.b"]).exception
    assert isinstance(error, Planned)
    assert (error.request.determinism, error.step, looked_at) == (False, (), [])
