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

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


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
    totals = site.totals
    assert totals.prove({1: 1, 2: 2}) == 88
    assert answer(totals, "certify", totals.name)["complete"]
    continue_with(totals, 2, 3)
    produce(site, 4, 2)
    assert totals.prove({1: 1, 2: 2}) == 110
    totals.cut_over(3)
    for number in (5, 6, 7):  # the evidence of an upgrade: older slices are no longer readable
        produce(site, number, 3)

    assert answer(totals, "upgrade", totals.name, "--reason", "a release", "--execute")["is_made"]
    produce(site, 8, 3)
    assert totals.prove({1: 1, 2: 2, 3: 3}) == 198

    control.rollback(totals.config, totals.name, to=2, actor="test", reason="back", in_this_environment=True)
    totals.wait(lambda: control.progress(totals.config, totals.name, 2).is_caught_up, "the old epoch follows")
    control.cut_over(totals.config, totals.name, 2, actor="test", reason="back", in_this_environment=True)
    totals.await_live(2)
    produce(site, 9, 2)
    assert totals.prove({1: 1, 2: 2, 3: 3}) == 220


def test_state_of_each_operator_of_a_release_goes_over_and_a_savepoint_of_it_is_replayed(site: Site) -> None:
    totals, operators = site.totals, site.operators
    continue_with(totals, 2)
    continue_with(operators, 1)
    produce(site, 4, 2)
    for number in (4, 5, 6, 7):  # the first is the state before the evidence: older files are gone
        operators.feed(number)
        operators.settle_all(1)
    went = {item["topology"]: item for item in answer(totals, "upgrade", "--all", "--execute")["topologies"]}
    assert went[operators.name]["standing"] == "runs this release", went
    produce(site, 5, 2)
    operators.feed(8)
    operators.settle_all(1)

    control.abort(totals.config, totals.name, 3, actor="test", reason="another one")
    again = totals.plan_replay(start=FromSavepoint(name=SAVEPOINT))
    whole = operators.plan_replay()
    totals.await_stage(again, Stage.VERIFIED)
    operators.await_stage(whole, Stage.VERIFIED)
    assert control.diff(operators.config, operators.name, whole).verdict == "same"


def continue_with(machine: Rig, *epochs: int) -> None:
    """Start drivers of epochs that were stopped."""
    for epoch in epochs:
        control.start(machine.config, machine.name, epoch=epoch, actor="test")


def produce(site: Site, number: int, epoch: int) -> None:
    """The next records of the running totals, up to their commit by an epoch."""
    site.produce_totals(number)
    site.totals.settle(epoch)
