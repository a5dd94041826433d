"""An old epoch that follows the new one after a cutover, sending nothing, so that the way back is short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from support.epochs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_an_old_epoch_kept_running_keeps_pace_and_takes_over_at_once(stream: Lab) -> None:
    first, second = _cut_over(stream, keep_old_running=True)
    stream.produce([("a", 10), ("b", 10)], start_ms=1_700_000_100_000)
    stream.settle(second)
    stream.settle(first)
    record = stream.record()
    assert (record.epoch(first).stage, record.epoch(first).is_kept) == (Stage.RETIRED, True)
    assert stream.balances(first) == {"a": 11, "b": 12}
    assert stream.balances(second) == {"a": 22, "b": 24}
    slices = [row for row in stream.ledger(first).rows() if row.kind == "plan" and row.sends == "live"]
    assert all(row.seq <= stream.record().moves[-1].detail["seq"] + 1 for row in slices)

    control.rollback(stream.config, stream.name, actor="test", reason="back")
    stream.wait(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "it is there already")
    control.cut_over(stream.config, stream.name, first, actor="test", reason="back")
    stream.await_live(first)
    stream.produce([("a", 100)], start_ms=1_700_000_200_000)
    stream.settle(first)
    assert sorted(stream.sent()) == [("a", 1), ("a", 20), ("a", 100), ("b", 2), ("b", 20)]
    assert control.certify(stream.config, stream.name).complete


def test_the_old_driver_ends_unless_it_is_kept_running(stream: Lab) -> None:
    first, _ = _cut_over(stream, keep_old_running=False)
    stream.wait(lambda: not stream.running[first][1].is_alive(), "the old driver ends")
    assert (stream.record().epoch(first).is_wanted, stream.record().epoch(first).is_kept) == (False, False)


def test_an_old_epoch_kept_running_ends_when_it_is_retired(stream: Lab) -> None:
    first, _ = _cut_over(stream, keep_old_running=True)
    assert (stream.name, first) in control.wanted_drivers(stream.config)
    control.retire(stream.config, stream.name, first, actor="test", reason="enough")
    assert not stream.running[first][1].is_alive()
    assert stream.record().epoch(first).stage is Stage.DROPPED


def _cut_over(stream: Lab, *, keep_old_running: bool) -> tuple[int, int]:
    """A first epoch and a second one that took over from it; both drivers run."""
    stream.produce([("a", 1), ("b", 2)])
    first = stream.start_live()
    stream.deploy(2)
    second = stream.plan_replay()
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    control.cut_over(stream.config, stream.name, second, actor="test", reason="test", keep_old_running=keep_old_running)
    stream.await_live(second)
    return first, second
