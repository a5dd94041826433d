"""What happens between two micro-batches of a stream."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from support.live_queries import live_query

from kappa import clock
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end

if TYPE_CHECKING:
    from support.epochs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_an_act_that_waits_for_a_slice_gets_a_turn_and_another_one_is_left_out(
    stream: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.produce([("a", number) for number in range(30)], partition=0)  # the query takes ten at once
    standing = [Offsets({stream.topic: {0: 0, 1: 0}})]
    is_begun, may_end, turns = threading.Event(), threading.Event(), list[str]()

    def on_batch(ranges: Sequence[OffsetRange], _: object) -> None:
        is_begun.set()
        may_end.wait()
        standing.append(ranges_end(ranges))

    folder, servers = stream.config.home / "query", stream.config.bootstrap_servers
    query = live_query(stream.session, servers, standing[0], folder, on_batch, lambda: standing[-1])
    is_begun.wait()
    query.between(lambda: turns.append("left out"))
    waiting = threading.Thread(
        target=query.between, args=[lambda: turns.append("in turn")], kwargs={"is_waiting": True}
    )
    waiting.start()
    may_end.set()
    waiting.join()
    begin = clock.now()
    for seconds, is_active in ((0, True), (-7200, False), (0, True), (3600, True), (0, False)):
        monkeypatch.setattr(clock, "now", lambda by=seconds: begin + timedelta(seconds=by))
        assert query.is_active() is is_active, "Spark waits until a clock that was set back has caught up with itself"
    query.close()
    assert turns == ["in turn"]
