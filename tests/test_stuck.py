"""A candidate that is stuck, and a driver of an epoch that is named: it tries again when it is told to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lab import Lab

from kappa import control
from kappa.errors import IllegalTransitionError
from kappa.replay.stages import Stage

pytestmark = pytest.mark.spark


def test_a_stuck_candidate_tries_again_when_it_is_started_and_an_epoch_that_ended_is_not(stream: Lab) -> None:
    stream.produce([("a", 1), ("b", 2), ("a", 3)])
    live = stream.start()
    stream.await_live(live)
    stream.settle(live)
    stream.deploy(2)
    second = stream.plan_replay()
    driver = stream.run(second)

    def poisoned(_: object) -> Any:
        raise ValueError("the disk is full")

    driver.slice_run.topology = replace(driver.topology, step=poisoned)
    stream.wait(lambda: control.driver_status(stream.config, stream.name, second).state == "stuck", "stuck")
    driver.slice_run.topology = driver.topology
    assert control.start(stream.config, stream.name, epoch=second, actor="ada", reason="room made") == second
    stream.await_stage(second, Stage.VERIFIED)
    (started,) = [e for e in control.history(stream.config, stream.name) if e.event == "start"]
    assert (started.epoch, started.actor, started.reason) == (second, "ada", "room made")
    assert stream.stop(second) == []
    control.abort(stream.config, stream.name, second, actor="test", reason="seen")
    with pytest.raises(IllegalTransitionError, match=r"Epoch 2 .* is ABORTED: it needs no driver"):
        control.start(stream.config, stream.name, epoch=second, actor="test")
    assert stream.balances() == {"a": 4, "b": 2}
