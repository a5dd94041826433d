"""Large slices are read and parsed before they are planned: the result is the same as without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.epochs import Lab, Move, lab

from kappa.driver import live, slicing
from kappa.replay.stages import Stage
from kappa.slices.input import ahead
from kappa.slices.input.ahead import PlannedRead, ReadAhead
from kappa.slices.input.records import Records

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ACCOUNTS, COUNT, MOST = 7, 900, 200


@pytest.fixture
def stream(tmp_path: Path, kafka: Any, topic: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A deployed topology of two partitions, each of whose slices is large and merged; none is of a stream."""
    monkeypatch.setattr(live, "STREAM_BELOW", 0)
    settings = {"small_slice": 0, "slice_records": MOST, "merge_seconds": 0.0}
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), **settings) as stream:
        stream.deploy(1)
        yield stream


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each planned read whether it was read ahead."""
    hits: list[bool] = []
    take = ReadAhead.take

    def noted(self: ReadAhead, planned: PlannedRead) -> Records | None:
        parsed = take(self, planned)
        hits.append(parsed is not None)
        return parsed

    monkeypatch.setattr(ReadAhead, "take", noted)
    return hits


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every frame that was read ahead."""
    frames: list[Any] = []
    parse = ahead.where_they_are

    def noted(*arguments: Any, **named: Any) -> Records:
        records = parse(*arguments, **named)
        frames.extend(records.persisted)
        return records

    monkeypatch.setattr(ahead, "where_they_are", noted)
    return frames


def produce(stream: Lab) -> tuple[dict[str, int], list[Move]]:
    """Records of which every eleventh is broken and every seventh has a line break, which the converter reads.

    Returns:
        The balances and moves that follow, by plain Python.
    """
    rows: list[bytes] = []
    totals: dict[str, int] = {}
    moves: list[Move] = []
    for n in range(COUNT):
        account, amount = f"account-{n % ACCOUNTS}", n % 13 - 6
        space = "\n" if n % 7 == 0 else " "
        text = f'{{"id": "{account}",{space}"amount": {amount}}}'
        if n % 11 == 10:
            text = text[:-1]
        else:
            totals[account] = totals.get(account, 0) + amount
            moves.append((account, amount, totals[account]))
        rows.append(text.encode())
    # In one partition, so that the order is that of this list.
    stream.produce(rows, partition=0)
    return totals, moves


def test_a_first_epoch_and_a_replay_that_read_ahead_match_plain_python(
    stream: Lab, hits: list[bool], read: list[Any]
) -> None:
    totals, moves = produce(stream)
    epoch = stream.start_live()
    assert stream.ledger(epoch).state().slices >= COUNT // MOST
    # The first slice has no predecessor, and the end of a live epoch's last one cannot be predicted.
    assert hits.count(True) >= COUNT // MOST - 2
    assert hits.count(False) <= 1
    stream.hold(totals=totals, moves=None, sent=moves)
    hits.clear()
    replayed = stream.plan_replay()
    stream.run(replayed)
    stream.await_stage(replayed, Stage.REPLAYED)
    assert hits.count(True) >= COUNT // MOST - 1
    assert hits.count(False) == 0
    stream.await_stage(replayed, Stage.VERIFIED)
    assert stream.record().epoch(replayed).verified.detail["verdict"] == "same"
    stream.close()
    assert read
    assert not any(frame.storageLevel.useMemory for frame in read)


def test_a_wrongly_predicted_slice_reads_its_own_records(
    stream: Lab, hits: list[bool], read: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    totals, moves = produce(stream)
    monkeypatch.setattr(PlannedRead, "__eq__", lambda *_: False)
    epoch = stream.start_live()
    assert hits.count(False) >= COUNT // MOST - 2
    assert not any(hits)
    stream.hold(totals=totals, moves=None, sent=moves)
    assert stream.stop(epoch) == []
    assert read
    assert not any(frame.storageLevel.useMemory for frame in read)


def test_a_slice_that_cannot_be_read_ahead_is_read_in_its_turn(
    stream: Lab, hits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    totals, moves = produce(stream)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the broker hung up")

    monkeypatch.setattr(ahead, "read_log", fails)
    stream.start_live()
    assert hits
    assert not any(hits)
    stream.hold(totals=totals, moves=None, sent=moves)


@pytest.mark.parametrize("why", ["they are small", "one before was made smaller"])
def test_unpredictable_slices_read_nothing_ahead(stream: Lab, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "they are small":
        stream.config = replace(stream.config, small_slice=50_000)
    else:
        monkeypatch.setattr(slicing, "is_shrunk", lambda _: True)
    reads: list[Any] = []
    monkeypatch.setattr(ReadAhead, "__init__", lambda *arguments, **_: reads.append(arguments))
    totals, moves = produce(stream)
    stream.start_live()
    assert not reads
    stream.hold(totals=totals, moves=None, sent=moves)


def test_records_read_ahead_are_released_when_the_driver_ends(stream: Lab, read: list[Any]) -> None:
    produce(stream)
    epoch = stream.start()
    run = stream.wait(lambda: _run_that_read_ahead(stream, epoch), "a slice is read ahead")
    assert stream.stop(epoch) == []
    assert run.scratch.ahead is None
    assert read
    assert not any(frame.storageLevel.useMemory for frame in read)


def _run_that_read_ahead(stream: Lab, epoch: int) -> Any:
    run = stream.running[epoch][0].engines.opened_run
    return run if run is not None and run.scratch.ahead is not None else None
