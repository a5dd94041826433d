"""Ledgers that are rolled up all the while: replays, cutovers and rollbacks go as they do with every row there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.epochs import Lab, lab

from kappa import control
from kappa.record import rollup
from kappa.replay.stages import Stage

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def stream(kafka: Any, spark: Any, topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(rollup, "RECENT", 1)
    with lab(
        tmp_path / "lab",
        kafka,
        spark,
        topic(partitions=2),
        maintain_minutes=0.0,
        keep_minutes=0.0,
        savepoint_hours=0.0,
        slice_records=4,
        rollup_slices=2,
    ) as stream:
        yield stream


def flow(stream: Lab, epoch: int, slices: int, begin: int) -> None:
    for number in range(begin, begin + slices):
        stream.produce([("a", 1), ("b", 1)], start_ms=1_700_000_000_000 + 60_000 * number)
        stream.settle(epoch)


def test_replays_cutovers_and_rollbacks_work_with_rolled_up_ledgers(stream: Lab) -> None:
    stream.deploy(1)
    stream.produce([("a", 1), ("b", 1)])
    first = stream.start()
    stream.await_live(first)
    flow(stream, first, 6, 1)
    state = stream.ledger(first).state()
    assert state.rolled is not None and len(state.commits) < state.slices
    second = stream.plan_replay()
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    flow(stream, first, 3, 7)
    control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    stream.await_live(second)
    stream.stop(first)
    # Longer than a slice may be, and rolled up before the old epoch comes back.
    flow(stream, second, 8, 10)
    assert stream.ledger(second).state().rolled is not None
    control.rollback(stream.config, stream.name, actor="test", reason="test")
    stream.run(first)
    stream.wait(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "the old epoch is back")
    control.cut_over(stream.config, stream.name, first, actor="test", reason="test")
    stream.await_live(first)
    flow(stream, first, 1, 18)
    assert stream.balances() == {"a": 19, "b": 19}
    assert sorted(stream.sent()) == [("a", 1)] * 19 + [("b", 1)] * 19
    slices = [row for piece in stream.ledger(first).history() for row in piece if row.kind == "plan"]
    assert max(sum(r.count for r in row.ranges) for row in slices) <= 4
    certificate = control.certify(stream.config, stream.name)
    assert certificate.complete, certificate.problems
    assert certificate.rows_read == 38
