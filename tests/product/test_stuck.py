"""A stuck candidate, and the driver of a named epoch: it tries again on request."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from support.epochs import Lab
from support.live_queries import live_query

from kappa import control
from kappa.errors import IllegalTransitionError
from kappa.offsets.vector import Offsets
from kappa.replay.stages import Stage

pytestmark = pytest.mark.spark


def test_a_stuck_candidate_tries_again_when_started_and_an_ended_epoch_does_not(stream: Lab) -> None:
    stream.produce([("a", 1), ("b", 2), ("a", 3)])
    stream.start_live()
    stream.deploy(2)
    second = stream.plan_replay()
    driver = stream.run(second)

    def poisoned(_: object) -> Any:
        raise ValueError("the disk is full")

    driver.engines.slice_run.topology = replace(driver.epoch.topology, step=poisoned)
    stream.wait(lambda: control.driver_status(stream.config, stream.name, second).state == "stuck", "stuck")
    driver.engines.slice_run.topology = driver.epoch.topology
    assert control.start(stream.config, stream.name, epoch=second, actor="ada", reason="room made") == second
    stream.await_stage(second, Stage.VERIFIED)
    (started,) = [e for e in control.history(stream.config, stream.name) if e.event == "start"]
    assert (started.epoch, started.actor, started.reason) == (second, "ada", "room made")
    assert stream.stop(second) == []
    control.abort(stream.config, stream.name, second, actor="test", reason="seen")
    with pytest.raises(IllegalTransitionError, match=r"Epoch 2 .* is ABORTED: it needs no driver"):
        control.start(stream.config, stream.name, epoch=second, actor="test")
    assert stream.balances() == {"a": 4, "b": 2}


def test_a_step_that_exits_makes_a_live_epoch_stuck_and_loses_nothing(stream: Lab) -> None:
    stream.produce([("a", 1), ("b", 2)])
    live = stream.start_live()
    driver, _, _ = stream.running[live]
    stream.wait(lambda: control.driver_status(stream.config, stream.name, live).message == "live", "micro-batches come")

    def ended(_: object) -> Any:
        sys.exit(3)

    driver.engines.slice_run.topology = replace(driver.epoch.topology, step=ended)
    stream.produce([("a", 4)])
    stream.wait(lambda: control.driver_status(stream.config, stream.name, live).state == "stuck", "stuck")
    assert (
        "called for the end of the process (exit code 3)"
        in control.driver_status(stream.config, stream.name, live).message
    )
    driver.engines.slice_run.topology = driver.epoch.topology
    control.start(stream.config, stream.name, actor="ada", reason="mended")
    stream.settle(live)
    assert stream.balances() == {"a": 5, "b": 2}


def test_any_error_of_a_micro_batch_is_raised_when_the_query_closes(stream: Lab) -> None:
    stream.produce([("a", 1)])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    start = Offsets({stream.topic: {0: 0, 1: 0}})
    query = live_query(
        stream.session, stream.config.bootstrap_servers, start, stream.config.home / "query", interrupted
    )
    stream.wait(lambda: not query.is_active(), "the micro-batch ends")
    with pytest.raises(KeyboardInterrupt):
        query.close()
