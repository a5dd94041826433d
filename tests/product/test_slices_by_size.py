"""What a driver does differently by size: its first slice, and slices beside a large state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.epochs import Lab, lab

from kappa import control
from kappa.driver import slicing
from kappa.replay.stages import Stage
from kappa.slices import state

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [(key, 1) for key in "abcdefghij"]


def sizes(stream: Lab, epoch: int) -> list[int]:
    return [row.rows_read for row in stream.ledger(epoch).state().commits if row.seq > 0]


@pytest.fixture
def cut_short(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """A live epoch that has read all rows; first slices have four of them where they are short."""
    monkeypatch.setattr(slicing, "FIRST_RECORDS", 4)
    with lab(tmp_path / "lab", kafka, spark, topic(), small_slice=3, slice_records=100) as stream:
        stream.deploy(1)
        stream.produce(ROWS)
        stream.settle(stream.start_live())
        yield stream


def recomputed(stream: Lab) -> int:
    """The epoch of a replay with other code, when it has caught up."""
    stream.deploy(2)
    epoch = stream.plan_replay()
    stream.run(epoch)
    stream.await_stage(epoch, Stage.CAUGHT_UP)
    return epoch


def test_only_the_first_slice_of_each_driver_is_short(cut_short: Lab) -> None:
    first = cut_short.record().live
    assert first is not None
    assert sizes(cut_short, first) == [4, 6]
    cut_short.stop(first)
    second = recomputed(cut_short)
    assert sizes(cut_short, second)[0] == 4
    assert sum(sizes(cut_short, second)) == len(ROWS)


def test_slices_of_large_records_stay_small_in_bytes_live_and_in_a_replay(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: Any
) -> None:
    """Padding makes each record 10,000 bytes; a slice may have 100,000."""
    large = [json.dumps({"id": key, "amount": 1, "pad": "x" * 10_000}).encode() for key in "abcdefgh"] * 4
    with lab(tmp_path / "lab", kafka, spark, topic(), slice_bytes=100_000) as stream:
        stream.deploy(1)
        stream.produce(large[:16])
        first = stream.start_live()
        assert max(sizes(stream, first)) <= 12
        stream.wait(lambda: control.driver_status(stream.config, stream.name, first).message == "live", "streams")
        stream.produce(large[16:])  # a micro-batch of all of them is cut too
        stream.settle(first)
        assert max(sizes(stream, first)) <= 12
        assert sum(sizes(stream, first)) == len(large)
        second = recomputed(stream)
        assert max(sizes(stream, second)) <= 12
        stream.await_stage(second, Stage.VERIFIED)
        assert stream.balances(first) == dict.fromkeys("abcdefgh", 4)


def test_the_first_slice_of_a_replay_from_an_archive_is_as_long_as_the_others(cut_short: Lab) -> None:
    assert cut_short.archive() == len(ROWS)
    second = recomputed(cut_short)
    assert cut_short.plan(second).archived
    assert sizes(cut_short, second) == [len(ROWS)]


def test_small_slices_look_up_keys_in_a_large_state_with_the_same_results(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LARGE_ROWS", 5)
    with lab(tmp_path / "lab", kafka, spark, topic()) as stream:
        stream.deploy(1)
        stream.produce(ROWS[:5])
        epoch = stream.start_live()
        stream.settle(epoch)
        for number, (key, amount) in enumerate([("a", 10), ("z", 3), ("a", 5), ("c", 1)], 1):
            stream.produce([(key, amount)], start_ms=1_700_000_100_000 + number)
            stream.settle(epoch)
        stream.stop(epoch)  # a driver that starts anew reads how large the state is
        stream.run(epoch)
        for number, key in enumerate("bzy", 10):
            stream.produce([(key, 2)], start_ms=1_700_000_100_000 + number)
            stream.settle(epoch)
        assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"  # a large state is worth compiled code
        assert stream.balances() == {"a": 16, "b": 3, "c": 2, "d": 1, "e": 1, "y": 2, "z": 5}
