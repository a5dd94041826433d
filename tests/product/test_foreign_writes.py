"""Another program writes into a served table, or joins an epoch's group: the driver says so, nothing is lost."""

from __future__ import annotations

import struct
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer
from deltalake import DeltaTable
from support.epochs import DEADLINE_SECONDS, Lab, plain_settings

from kappa import control
from kappa.control.restore import restore
from kappa.driver import consumer_group
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.errors import ConflictError, RefusedError
from kappa.kafka.broker import Broker
from kappa.offsets.vector import Offsets
from kappa.replay.stages import Stage
from kappa.verify.recount import recount

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.mark.parametrize("place", ["outputs/moves", "tables/balances"])
def test_a_foreign_deletion_of_rows_stops_a_stream_until_they_are_restored(stream: Lab, place: str) -> None:
    stream.config = replace(stream.config, merge_seconds=0.0)
    stream.produce([("a", 1), ("b", 2)])
    live = stream.start_live()
    DeltaTable(stream.paths(live).place(place)).delete("id = 'a'")
    assert stream.balances() == {"a": 1, "b": 2}, "readers have the versions that the ledger names"
    sent = sorted(stream.sent())
    stream.produce([("a", 10)])
    stream.wait(lambda: control.driver_status(stream.config, stream.name, live).state == "stuck", "it stops")
    (event,) = [event for event in stream.record().events if event.event == "stuck"]
    assert place in event.reason and "DELETE" in event.reason
    assert f"kappa restore {stream.name} --epoch {live} --execute" in event.detail["error"]
    assert sorted(stream.sent()) == sent
    with pytest.raises(RefusedError, match="is running: its next commit may build on what is undone"):
        restore(stream.config, stream.name, actor="ada", reason="back")
    assert stream.stop(live) == []
    assert "DELETE" in stream.output_of("restore", stream.name)
    stream.output_of("restore", stream.name, "--reason", "it was a mistake", "--execute")
    (restored,) = [event for event in stream.record().events if event.event == "restored"]
    assert list(restored.detail["undone"]) == [place]
    control.start(stream.config, stream.name, actor="ada", reason="restored")
    stream.run(live)
    stream.settle(live)
    assert stream.balances() == {"a": 11, "b": 2}
    assert sorted(stream.sent()) == [("a", 1), ("a", 10), ("b", 2)]
    assert control.certify(stream.config, stream.name).complete


@pytest.mark.parametrize("arrow_rows", [500_000, 0], ids=["Arrow writes", "Spark writes"])
def test_the_deep_certificate_names_a_row_changed_in_place_sent_or_not(stream: Lab, arrow_rows: int) -> None:
    """The file keeps its size, its rows and its log: only the hash in the ledger tells."""
    stream.config = replace(stream.config, merge_seconds=0.0, arrow_rows=arrow_rows)
    stream.produce([("a", 987_654_321), ("b", 2)])
    live = stream.start_live()
    held = stream.plan_replay()
    stream.run(held)
    stream.await_stage(held, Stage.VERIFIED)
    assert stream.stop(held) == []
    for epoch in (live, held):
        assert deep(stream, epoch) == ((), ())
        for place in ("outputs/moves", "changes/balances", "tables/balances"):
            path = Path(stream.paths(epoch).place(place))
            (file,) = [file for file in path.glob("*.parquet") if LARGE in file.read_bytes()]
            content = file.read_bytes()
            file.write_bytes(content.replace(LARGE, struct.pack("<i", 123_456_789)))
            assert any(123_456_789 in column for column in pq.read_table(file).to_pydict().values())
            ((problem,), unread) = deep(stream, epoch)
            assert problem.startswith(f"{place}: data file {file.name} was changed after it was written"), problem
            assert unread == ()
            file.write_bytes(content)
        assert deep(stream, epoch) == ((), ())


#: How a file holds the number.
LARGE = struct.pack("<i", 987_654_321)


def deep(stream: Lab, epoch: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Problems of the files of an epoch, and the files that were not read."""
    report = recount(stream.paths(epoch))
    return report.problems, report.unread


def member(stream: Lab, group: str) -> Consumer:
    """A consumer that has joined a group."""
    consumer = Consumer(
        {**plain_settings(stream.config.bootstrap_servers), "group.id": group, "enable.auto.commit": False}
    )
    consumer.subscribe([stream.topic])

    def has_joined() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    stream.wait(has_joined, "the consumer joins")
    return consumer


def test_a_consumer_in_the_group_of_a_candidate_delays_its_rewind_and_is_named(stream: Lab) -> None:
    stream.produce([("a", 1), ("b", 2)])
    live = stream.start_live()
    stream.deploy(2)
    second = stream.plan_replay()
    consumer = member(stream, stream.paths(second).name)
    stream.run(second)

    def message() -> str:
        consumer.poll(0.05)  # or the broker takes it for dead
        return control.driver_status(stream.config, stream.name, second).message

    stream.wait(lambda: "members that are not Kappa's" in message(), "the driver waits")
    assert "rdkafka" in message(), "the member is named"
    assert stream.record().epoch(second).stage is Stage.PLANNED
    consumer.close()
    stream.await_stage(second, Stage.VERIFIED)
    stream.produce([("a", 10)])
    stream.settle(live)
    stream.settle(second)
    assert stream.kafka.group_offsets(stream.paths(second).name) == stream.ledger(second).state().position


def test_a_consumer_that_joins_later_delays_no_slice(stream: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.produce([(f"account-{n % 7}", n) for n in range(8)], step_ms=1000)
    live = stream.start_live()
    stream.deploy(2)
    second = stream.plan_replay(slice_records=2)
    conflicts: list[ConflictError] = []
    has_joined = threading.Event()
    move = consumer_group.set_offsets

    def moved(epoch: DrivenEpoch, broker: Broker, position: Offsets) -> None:
        if position != epoch.plan.start:  # what follows the rewind waits for the consumer
            assert has_joined.wait(DEADLINE_SECONDS)
        try:
            move(epoch, broker, position)
        except ConflictError as error:
            conflicts.append(error)
            raise

    monkeypatch.setattr(consumer_group, "set_offsets", moved)
    stream.run(second)
    stream.await_stage(second, Stage.SEEDED)
    consumer = member(stream, stream.paths(second).name)
    has_joined.set()

    def is_verified() -> bool:
        consumer.poll(0.05)
        return stream.record().epoch(second).stage is Stage.VERIFIED

    stream.wait(is_verified, "the candidate reads on")
    assert conflicts and "rdkafka" in str(conflicts[0])
    consumer.close()
    stream.produce([("b", 20)], start_ms=1_700_000_900_000)
    stream.settle(live)
    stream.settle(second)
    assert stream.kafka.group_offsets(stream.paths(second).name) == stream.ledger(second).state().position
    assert sum(stream.balances(second).values()) == 2 * sum(stream.balances().values())
