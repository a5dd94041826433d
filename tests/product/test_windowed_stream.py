"""A stream with event time, live, replayed, moved, rolled back and rebuilt: plain Python says what its windows hold."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import orjson
import pytest
from support.epochs import Lab, lab, read_messages

from kappa import control, serving
from kappa.delta import queries
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

SIZE, GRACE, BEGIN = 10_000, 5_000, 1_700_000_000_000
WINDOWS = '''
"""Amounts of each account in windows of ten seconds; each amount counts {factor} times."""

from kappa import Append, Source, Topic, Topology
from kappa.operators import agg, tumbling_window

MOVE = "id STRING NOT NULL, amount BIGINT NOT NULL, at BIGINT"
MOVES = Source(topic="{topic}", schema=MOVE, time="at", grace="5 seconds")
TOTALS = {{"total": agg.sum("amount"), "moves": agg.count()}}
SUMS = tumbling_window(MOVES, key="id", size="10 seconds", aggregates=TOTALS, table="open_windows")


def step(slice):
    """Sums of the windows that are open, and those of the windows that closed."""
    SUMS(slice, slice["{topic}"].withColumn("amount", slice["{topic}"]["amount"] * {factor}))
    return {{}}


windows = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[SUMS],
    outputs=[Append(name="sums", of=SUMS.final), Topic(name="{topic}.sums", of="sums", key="id")],
    step=step,
)
'''
#: Account, start of the window -> total, moves.
Sums = dict[tuple[str, int], tuple[int, int]]


class Windows(Lab):
    """A lab whose topology sums amounts in windows of event time."""

    template: ClassVar[str] = WINDOWS

    def produce_moves(self, count: int, *, seed: int, first_ms: int) -> None:
        """Moves out of order, some of them late, in both partitions; the last ones bring both frontiers forward."""
        chance = random.Random(seed)
        for partition in (0, 1):
            rows = []
            for n in range(count):
                late = chance.choice([0, 0, 0, 2_000, 4_000, 9_000, 30_000])
                at = first_ms + n * 400 - late
                rows.append(orjson.dumps({"id": chance.choice("abc"), "amount": n + 1, "at": at}))
            self.produce(rows, partition=partition, start_ms=first_ms, step_ms=400)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a topic's windows hold."""

    final: Sums
    open: Sums
    late: list[tuple[int, int]]


def expected(stream: Lab, factor: int) -> Expected:
    """By dictionaries and loops, from what a plain consumer reads."""
    sums, late, reached = dict[tuple[str, int], tuple[int, int]](), [], dict[int, int]()
    for message in sorted(
        read_messages(stream.config.bootstrap_servers, stream.topic), key=lambda m: (m.partition(), m.offset())
    ):
        move, partition = orjson.loads(message.value()), message.partition()
        reached[partition] = max(move["at"], reached.get(partition, move["at"]))
        start = move["at"] // SIZE * SIZE
        if start + SIZE <= reached[partition] - GRACE:
            late.append((partition, message.offset()))
            continue
        total, moves = sums.get((move["id"], start), (0, 0))
        sums[move["id"], start] = (total + move["amount"] * factor, moves + 1)
    frontier = min(reached.values()) - GRACE
    final = {at: values for at, values in sums.items() if at[1] + SIZE <= frontier}
    return Expected(final=final, open={at: v for at, v in sums.items() if at not in final}, late=sorted(late))


def served(stream: Lab, epoch: int) -> Expected:
    """What readers get."""
    snapshot = serving.snapshot(stream.config, stream.name, epoch=epoch)

    def sums(name: str) -> Sums:
        rows = snapshot.rows(name).to_pylist()
        windows = {
            (row["id"], round(row["window_start"].timestamp() * 1000)): (row["total"], row["moves"]) for row in rows
        }
        assert len(windows) == len(rows), "a window is there once"
        return windows

    late = snapshot.rows("late_records").to_pylist()
    assert all(row["operator"] == "tumbling_window" for row in late)
    places = sorted((row["_partition"], row["_offset"]) for row in late)
    return Expected(final=sums("sums"), open=sums("open_windows"), late=places)


def sent(stream: Lab) -> list[tuple[str, str, int]]:
    """Account, window and total of each record of the output topic."""
    rows = map(orjson.loads, stream.values_of(f"{stream.topic}.sums"))
    return [(row["id"], row["window_start"], row["total"]) for row in rows]


@pytest.fixture
def stream(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Windows]:
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Windows) as stream:
        stream.deploy(1)
        yield stream


def test_windows_are_the_same_live_replayed_moved_and_rebuilt(stream: Windows) -> None:
    stream.produce_moves(60, seed=1, first_ms=BEGIN)
    first = stream.start_live()
    stream.produce_moves(60, seed=2, first_ms=BEGIN + 20_000)
    stream.settle(first)
    assert served(stream, first) == expected(stream, 1)

    stream.deploy(2)
    second = stream.plan_replay(slice_records=90)
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    before = len(sent(stream))
    assert served(stream, second) == expected(stream, 2)
    control.cut_over(stream.config, stream.name, second, actor="test", reason="v2")
    stream.await_live(second)
    stream.produce_moves(60, seed=3, first_ms=BEGIN + 45_000)
    stream.settle(second)
    assert served(stream, second) == expected(stream, 2)
    keys = [(one[0], one[1]) for one in sent(stream)]
    assert len(keys) == len(set(keys)) == len(expected(stream, 2).final) > before, "a window is sent once"

    certificate = control.certify(stream.config, stream.name)
    assert certificate.complete, certificate.problems
    assert certificate.rows_late == len(expected(stream, 2).late) > 10
    assert f"{len(expected(stream, 2).late):,} late records" in stream.output_of("status", stream.name)

    # The lake is lost: what is open, and how far event time had come, is on the broker.
    open_windows = served(stream, second).open
    stream.close()
    shutil.rmtree(stream.config.lake)
    stream.output_of("rebuild", stream.name, "--from-changelog", "--execute", "--detach")
    third = max(stream.record().epochs)
    stream.run(third)
    stream.await_live(third)
    stream.settle(third)
    assert served(stream, third).open == open_windows
    stream.produce_moves(60, seed=4, first_ms=BEGIN + 60_000)
    stream.settle(third)
    whole, rebuilt = expected(stream, 2), served(stream, third)
    assert rebuilt.open == whole.open
    keys = [(one[0], one[1]) for one in sent(stream)]
    assert len(keys) == len(set(keys)) == len(whole.final), "a window is sent once"
    assert set(rebuilt.late) <= set(whole.late) and set(rebuilt.final.items()) <= set(whole.final.items())


def test_the_same_code_gives_the_same_windows_in_other_slices(stream: Windows) -> None:
    stream.produce_moves(60, seed=1, first_ms=BEGIN)
    first = stream.start_live()
    stream.produce_moves(60, seed=2, first_ms=BEGIN + 20_000)
    stream.settle(first)

    # In slices of 70 offsets where the live epoch took what had come.
    again = stream.plan_replay(slice_records=70)
    stream.run(again)
    stream.await_stage(again, Stage.VERIFIED)
    assert control.diff(stream.config, stream.name, again).verdict == "same"
    assert served(stream, again) == served(stream, first) == expected(stream, 1)


@pytest.mark.parametrize("is_parsed", [True, False], ids=["parsed when archived", "parsed when read"])
def test_windows_are_the_same_from_an_archive(stream: Windows, is_parsed: bool) -> None:
    text = (stream.config.topologies / "balances.py").read_text()
    stream.produce_moves(60, seed=7, first_ms=BEGIN)
    if not is_parsed:  # with another schema than that of the topology
        (stream.config.topologies / "balances.py").write_text(text.replace("at BIGINT", "at BIGINT, more STRING"))
    stream.archive()
    (stream.config.topologies / "balances.py").write_text(text)
    first = stream.start_live()
    stream.delete_before({0: 40, 1: 40})
    again = stream.plan_replay(slice_records=70)
    stream.run(again)
    stream.await_stage(again, Stage.VERIFIED)

    assert any(row.detail.get("archived") for row in stream.ledger(again).state().commits)
    assert control.diff(stream.config, stream.name, again).verdict == "same"
    assert served(stream, again) == served(stream, first)


def test_late_records_are_counted_per_slice(stream: Windows) -> None:
    stream.produce_moves(60, seed=5, first_ms=BEGIN)
    epoch = stream.start_live()
    stream.produce_moves(60, seed=6, first_ms=BEGIN + 20_000)
    stream.settle(epoch)

    state = stream.ledger(epoch).state()
    rows = queries.query(stream.paths(epoch).output("late_records"), None).to_pylist()
    by_slice = {row.seq: row.rows_late for row in state.commits if row.rows_late}
    assert by_slice == {seq: sum(1 for row in rows if row["_seq"] == seq) for seq in {row["_seq"] for row in rows}}
    assert sum(by_slice.values()) == len(expected(stream, 1).late) > 0
    last = state.committed
    assert last is not None and set(last.stream_times[stream.topic]) == {0, 1}
