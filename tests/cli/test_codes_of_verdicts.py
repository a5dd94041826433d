"""The exit code of a replay that was verified, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from support.page_lake import CANDIDATE, TopologyStory, report, steady

from kappa import clock
from kappa.acts import Act
from kappa.cli.replays import run_plan
from kappa.config import Config
from kappa.replay.proof.verdict import CheckResult

NAME = "a.verdicts"


@pytest.mark.parametrize("is_json", [False, True])
def test_a_failed_verdict_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_json: bool
) -> None:
    for name in ("HOME", "LAKE", "TOPOLOGIES"):
        monkeypatch.setenv(f"KAPPA_{name}", str(tmp_path / name.lower()))
    story, now = TopologyStory(config=Config.from_env(), name=NAME, partitions=1), clock.now()
    story.begin(1, now, stages=CANDIDATE[:3], topics=())
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    story.begin(
        2,
        now,
        live=1,
        stages=CANDIDATE,
        topics=(),
        report=report(NAME, checks=(CheckResult(name="no customer is lost", ok=False),)),
    )
    plan: Any = SimpleNamespace(topology=NAME)
    with pytest.raises(typer.Exit) as end:
        run_plan(plan, Act(effects=(), outcome=lambda: 2), wait=True, json=is_json)
    output = capsys.readouterr().out
    assert end.value.exit_code == 1
    assert json.loads(output)["verdict"] == "failed" if is_json else "its verdict is failed" in output
