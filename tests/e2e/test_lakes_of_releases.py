"""A lake of each release, with the topics of its broker: opened by this tree, continued, upgraded and rolled back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import release_lakes
from support.processes import Rig
from support.release_lakes import SAVEPOINT, Site

from kappa import control
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.xdist_group("lakes of releases")]


@pytest.fixture(params=release_lakes.releases())
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """What a release left."""
    with release_lakes.opened(request.param, tmp_path) as site:
        yield site


def answer(machine: Rig, *words: str) -> Any:
    """The JSON of a command in a process of its own."""
    environ = {**os.environ, **machine.config.to_env()}
    call: Sequence[str] = [sys.executable, "-m", "kappa", *words, "--json"]
    done = subprocess.run(call, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_lake_of_a_release_continues_goes_over_and_rolls_back(site: Site) -> None:
    totals, operators = site.totals, site.operators
    assert totals.prove({1: 1, 2: 2}) == 88
    assert answer(totals, "certify", totals.name)["complete"]

    for machine, epoch in ((totals, 2), (totals, 3), (operators, 1)):
        control.start(machine.config, machine.name, epoch=epoch, actor="test")
    site.produce(4)
    totals.settle(2)
    operators.settle_all(1)
    assert totals.prove({1: 1, 2: 2}) == 110
    totals.cut_over(3)
    site.produce(5)
    totals.settle(3)
    operators.settle_all(1)

    went = {item["topology"]: item for item in answer(totals, "upgrade", "--all", "--execute")["topologies"]}
    assert {item["standing"] for item in went.values()} == {"runs this release"}, went
    site.produce(6)
    totals.settle(3)
    operators.settle_all(1)
    assert totals.prove({1: 1, 2: 2, 3: 3}) == 154

    control.rollback(totals.config, totals.name, to=2, actor="test", reason="back", in_this_environment=True)
    totals.wait(lambda: control.progress(totals.config, totals.name, 2).is_caught_up, "the old epoch follows")
    control.cut_over(totals.config, totals.name, 2, actor="test", reason="back", in_this_environment=True)
    totals.await_live(2)
    site.produce(7)
    totals.settle(2)
    operators.settle_all(1)
    assert totals.prove({1: 1, 2: 2, 3: 3}) == 176

    again = totals.plan_replay(start=FromSavepoint(name=SAVEPOINT))
    whole = operators.plan_replay()
    totals.await_stage(again, Stage.VERIFIED)
    operators.await_stage(whole, Stage.VERIFIED)
    assert control.diff(operators.config, operators.name, whole).verdict == "same"
