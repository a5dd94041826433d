"""What the broker knows of epochs whose lake is lost or elsewhere: going live, being superseded, folding, two lakes at
once.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from support.epochs import Lab

from kappa import control
from kappa.errors import RefusedError
from kappa.replay.stages import Stage
from kappa.replay.starts import FromMarker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4)]
LATER_MS = 1_700_000_100_000


def live(stream: Lab) -> int:
    return stream.start_live()


def cut_over(stream: Lab) -> int:
    """A second version, which readers are moved to while nothing arrives."""
    stream.deploy(2)
    second = stream.plan_replay()
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    stream.await_live(second)
    return second


def remembered(stream: Lab) -> int | None:
    """The epoch that sent last, as a rebuild sees it on the broker."""
    start = control.rebuild_request(stream.config, stream.name, actor="test", reason="lost").start
    assert isinstance(start, FromMarker)
    return start.epoch


def lose_lake(stream: Lab) -> None:
    stream.close()
    shutil.rmtree(stream.config.lake)


def rebuild(stream: Lab, *, allow: str = "") -> str:
    """The command as a user types it; its driver does not run."""
    allowed = ["--allow", allow] if allow else []
    return stream.output_of("rebuild", stream.name, "--from-changelog", "--execute", "--detach", *allowed)


@contextmanager
def elsewhere(stream: Lab, base: Path) -> Iterator[Lab]:
    """The same topology on the same broker, with a lake of its own."""
    config = replace(stream.config, lake=str(base / "another lake"), home=base / "another home")
    twin = Lab(config=config, kafka=stream.kafka, topic=stream.topic, name=stream.name, session=stream.session)
    try:
        yield twin
    finally:
        twin.close()


class TestGoingLiveOnTheBroker:
    def test_the_epoch_that_readers_moved_to_is_rebuilt_even_on_a_quiet_topic(self, stream: Lab) -> None:
        stream.produce(ROWS)
        first = live(stream)
        second = cut_over(stream)
        assert remembered(stream) == second
        control.rollback(stream.config, stream.name, to=first, actor="test", reason="back")
        stream.stop(first) if first in stream.running else None
        stream.run(first)
        stream.wait(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "it caught up")
        control.cut_over(stream.config, stream.name, first, actor="test", reason="back")
        stream.await_live(first)
        assert remembered(stream) == first

    def test_a_start_in_an_empty_lake_sends_nothing_even_without_a_predecessor(self, stream: Lab) -> None:
        stream.produce(ROWS)
        first = live(stream)
        second = cut_over(stream)
        if first in stream.running:
            stream.stop(first)
        control.retire(stream.config, stream.name, first, actor="test", reason="test")
        lose_lake(stream)
        with pytest.raises(RefusedError, match=f"epoch {second}"):
            control.start(stream.config, stream.name, actor="test", reason="start")


class TestSupersededEpoch:
    def test_its_driver_sends_nothing_after_a_rebuild_in_another_lake(self, stream: Lab, tmp_path: Path) -> None:
        stream.produce(ROWS)
        first = live(stream)
        with elsewhere(stream, tmp_path) as other:
            shown = other.output_of("rebuild", other.name, "--from-changelog")
            assert f"Would end epoch {first} of {other.name} for good" in shown and "Would plan again" in shown
            assert f"; build epoch {first + 1} of {other.name}.\n" in shown, "its driver is started elsewhere"
            assert not Path(other.config.lake).exists()
            rebuild(other)
            other.run(first + 1)
            other.await_live(first + 1)
            stream.produce([("a", 10), ("z", 1)], start_ms=LATER_MS)
            _, thread, errors = stream.running[first]
            other.settle(first + 1)
            other.wait(lambda: not thread.is_alive(), "the old driver ends")
            assert [type(error).__name__ for error in errors] == ["SupersededError"]
            assert sorted(other.sent()) == sorted([*ROWS, ("a", 10), ("z", 1)])
            assert other.balances() == {"a": 14, "b": 2, "c": 4, "z": 1}
            del stream.running[first]
            assert (stream.name, first) not in control.wanted_drivers(stream.config)
            with pytest.raises(RefusedError, match=f"superseded by epoch {first + 1}"):
                control.start(stream.config, stream.name, actor="test", reason="again")


class TestFold:
    def test_a_rebuild_waits_for_the_end_of_a_transaction_in_the_changelog(self, stream: Lab) -> None:
        stream.produce(ROWS)
        first = live(stream)
        # Kafka ends a slice's transaction partition by partition: here the changelog's end is held back, the marker's
        # is not.
        changelog = stream.paths(first).changelog("balances")
        settings = {"bootstrap.servers": stream.config.bootstrap_servers, "transactional.id": f"foreign {stream.name}"}
        foreign = Producer(settings)
        foreign.init_transactions(30)
        foreign.begin_transaction()
        for partition in range(stream.kafka.partitions(changelog)):
            foreign.produce(changelog, key=b"foreign", value=b"null", partition=partition)
        assert foreign.flush(30) == 0
        stream.produce([("a", 10), ("b", 10), ("c", 10)], start_ms=LATER_MS)
        stream.settle(first)
        balances = stream.balances()
        lose_lake(stream)
        rebuild(stream)
        driver = stream.run(first + 1)
        stream.wait(lambda: "transaction" in driver.voice.doing or stream.record().live == first + 1, "it waits")
        assert stream.record().live is None
        foreign.abort_transaction(30)
        stream.await_live(first + 1)
        assert stream.balances() == balances == {"a": 14, "b": 12, "c": 14}


class TestAddedPartitions:
    def test_a_rebuild_reads_a_partition_added_since_the_last_marker(self, stream: Lab) -> None:
        stream.produce(ROWS)
        first = live(stream)
        stream.close()
        admin = AdminClient({"bootstrap.servers": stream.config.bootstrap_servers})
        for answer in admin.create_partitions([NewPartitions(stream.topic, 3)]).values():
            answer.result()
        stream.wait(lambda: stream.kafka.partitions(stream.topic) == 3, "there are three partitions")
        stream.produce([("z", 1)], partition=2, start_ms=LATER_MS)
        shutil.rmtree(stream.config.lake)
        stream.config = replace(stream.config, attempts=1)
        rebuild(stream)
        stream.run(first + 1)
        stream.wait(
            lambda: stream.record().live or any(e.event == "stuck" for e in stream.record().events), "it is live"
        )
        assert [e.reason for e in stream.record().events if e.event == "stuck"] == []
        stream.settle(first + 1)
        assert stream.balances() == {"a": 4, "b": 2, "c": 4, "z": 1}
        assert sorted(stream.sent()) == sorted([*ROWS, ("z", 1)])


class TestTwoLakes:
    def test_only_one_of_two_lakes_that_plan_the_same_epoch_goes_on(self, stream: Lab, tmp_path: Path) -> None:
        stream.produce(ROWS)
        with elsewhere(stream, tmp_path) as other:
            other.config = replace(other.config, attempts=1)
            for one in (stream, other):
                assert control.start(one.config, one.name, actor="test", reason="start") == 1
            stream.run(1)
            stream.await_live(1)
            stream.settle(1)
            before = names(stream)
            other.run(1)
            other.wait(lambda: other.record().live or any(e.event == "stuck" for e in other.record().events), "refused")
            (stuck,) = [e for e in other.record().events if e.event == "stuck"]
            assert "belongs to lake" in stuck.reason and stream.config.lake in stuck.reason
            assert names(stream) == before
            other.close()
            control.abort(other.config, other.name, 1, actor="test", reason="it is the other's")
            assert names(stream) == before
            stream.produce([("a", 10)], start_ms=LATER_MS)
            stream.settle(1)
            assert sorted(stream.sent()) == sorted([*ROWS, ("a", 10)])
            assert stream.record().events[-1].event != "stuck"
            with pytest.raises(RefusedError, match="KAPPA_LAKE"):
                control.start(other.config, other.name, actor="test", reason="start")


def names(stream: Lab) -> dict[str, str]:
    """Topics and groups under the topology's names, with their content."""
    topics = stream.kafka.topics(f"kappa.{stream.name}.")
    contents = {
        f"topic {name}": f"{stream.kafka.topic_ids([name])} {stream.kafka.high_watermarks([name])}" for name in topics
    }
    return contents | {
        f"group {g}": stream.kafka.group_offsets(g).to_json() for g in stream.kafka.groups(f"kappa.{stream.name}.")
    }


def test_a_rebuild_is_refused_while_the_old_driver_sends_from_another_lake(stream: Lab, tmp_path: Path) -> None:
    stream.produce(ROWS)
    epoch = live(stream)
    elsewhere = replace(stream.config, lake=str(tmp_path / "another-lake"))
    request = control.rebuild_request(elsewhere, stream.name, actor="test", reason="mistyped KAPPA_LAKE")
    ended, sending = threading.Event(), threading.Thread(target=lambda: _go_on(stream, ended), daemon=True)
    sending.start()
    try:
        plan = control.plan(elsewhere, request)
    finally:
        ended.set()
        sending.join(60)
    assert not sending.is_alive()
    (finding,) = [finding for finding in plan.refusals if finding.code == "changelog-goes-on"]
    assert finding.numbers["epoch"] == epoch
    stream.settle(epoch)
    assert stream.stop(epoch) == []
    assert not control.plan(elsewhere, request).refusals


def _go_on(stream: Lab, ended: threading.Event) -> None:
    number = 0
    while not ended.wait(0.2):
        number += 1
        stream.produce([("a", 1)], start_ms=LATER_MS + 1000 * number)
