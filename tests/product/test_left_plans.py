"""A cutover away from a live epoch whose driver died at a slice that it planned and did not send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.epochs import lab
from support.kills import ROWS, Mortal, running_totals

from kappa import control, faults

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def stream_of(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mortal]:
    with lab(tmp_path / "world", kafka, spark, topic(partitions=2), kind=Mortal, handover_seconds=60.0) as stream:
        monkeypatch.setattr(faults, "os", stream.reaper)
        yield stream


@pytest.mark.parametrize(("point", "is_left"), [("effects", True), ("send", False)])
def test_a_planned_slice_is_left_to_the_next_epoch_unless_it_was_sent(
    stream_of: Mortal, point: str, is_left: bool
) -> None:
    stream = stream_of
    first = stream.live_first()
    stream.deploy(2)
    second = stream.verified()
    at = stream.ledger(first).state().position
    stream.reaper.environ[faults.VARIABLE] = point
    stream.produce([("a", 10)], start_ms=1_700_000_060_000)
    stream.until(lambda: not stream.running[first][1].is_alive(), f"the live driver dies at {point}")
    control.cut_over(stream.config, stream.name, second, actor="test", reason="away")
    stream.await_live(second)
    stream.settle(second)
    rows = stream.ledger(first).rows()
    (yielded,) = [row for row in rows if row.kind == "yield"]
    assert [row.kind for row in rows if row.kind == "abandon"] == ["abandon"] * is_left
    assert (yielded.detail["at"] == at.as_dict()) == is_left
    sent = running_totals(ROWS, 1)
    counted = 2 if is_left else 1
    assert sorted(stream.rows(f"{stream.topic}.moves")) == sorted([*sent, ("a", 10 * counted, 42 if is_left else 21)])
    assert stream.balances()["a"] == (11 + 10) * 2
    certificate = control.certify(stream.config, stream.name)
    assert certificate.complete, certificate.problems
