"""Versioned topics: each epoch's own holds all that the epoch computes, each record once, whatever dies meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson
import pytest
from confluent_kafka import Producer
from support.epochs import lab, plain_settings, read_messages
from support.kills import ROWS, Mortal, Row, row, running_totals
from typer.testing import CliRunner

from kappa import control, faults, serving
from kappa.cli import app
from kappa.control import upgrade
from kappa.errors import RefusedError, UnknownTopologyError
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import FromMarker, FromSavepoint, ToEarliest
from kappa.slices.topics import changelog

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

VERSIONED = """Topic(name="{topic}.moves", of="moves", key="id"),
        Topic(name="{topic}.story", of="moves", key="id", on_replay="versioned"),
        Topic(name="{topic}.newest", of="balances", key="id", on_replay="versioned"),"""


@dataclass(kw_only=True)
class Versioned(Mortal):
    """A topology whose epochs have topics of their own, beside one that holds."""

    outputs: str = VERSIONED

    def story(self, epoch: int) -> list[Row]:
        return self.rows(f"{self.topic}.story.e{epoch:04d}")

    def newest(self, epoch: int) -> dict[str, int]:
        """The topic of a table, folded."""
        name = f"{self.topic}.newest.e{epoch:04d}"
        rows = [orjson.loads(message.value()) for message in read_messages(self.config.bootstrap_servers, name)]
        return {item["id"]: item["total"] for item in rows}

    def by_turns(self) -> list[Row]:
        """The rows that a consumer reads when it follows ``kappa path --json``."""
        return [row(message) for message in self.messages_by_turns(f"{self.topic}.story")]


def in_order(rows: Sequence[Row]) -> bool:
    """Whether the running totals of each account grow."""
    totals: dict[str, int] = {}
    return all(totals.setdefault(a, 0) < total and not totals.update({a: total}) for a, _, total in rows)  # type: ignore[func-returns-value]


@pytest.fixture
def world_of(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Versioned]:
    with lab(tmp_path / "world", kafka, spark, topic(partitions=2), kind=Versioned, handover_seconds=60.0) as stream:
        monkeypatch.setattr(faults, "os", stream.reaper)
        yield stream
        kafka.delete_topics(kafka.topics(f"{stream.topic}."))


def test_each_epoch_sends_all_history_to_its_own_topic_and_readers_switch_exactly(world_of: Versioned) -> None:
    stream = world_of
    first = stream.live_first()
    assert sorted(stream.story(first)) == running_totals(ROWS, 1)
    before = stream.kafka.high_watermarks([f"{stream.topic}.story.e0001"])
    stream.deploy(2)
    second = stream.verified(
        "rewind.names",
        "rewind.topics",
        "seed",
        "baseline.marker",
        "effects@1",
        "send.open@1",
        "send@1",
        "apply@2",
        slice_records=4,
    )
    assert sorted(stream.story(second)) == running_totals(ROWS, 2)
    assert stream.newest(second) == {"a": 22, "b": 14, "c": 24, "d": 12}
    assert stream.kafka.high_watermarks([f"{stream.topic}.story.e0001"]) == before
    assert sorted(stream.rows(f"{stream.topic}.moves")) == running_totals(ROWS, 1)  # a topic that holds gets no history
    assert f"{stream.topic}.story" not in stream.kafka.topics()

    control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    stream.dies("moved", "resume")
    stream.await_live(second)
    assert serving.topic(stream.config, stream.name, f"{stream.topic}.story") == f"{stream.topic}.story.e0002"
    more = [*ROWS, ("a", 10), ("e", 20)]
    stream.tell(more[8:], minute=1)
    assert sorted(stream.story(second)) == running_totals(more, 2)
    assert sorted(stream.story(first)) == running_totals(ROWS, 1)

    control.rollback(stream.config, stream.name, to=first, actor="test", reason="back")
    stream.dies("send")
    stream.wait(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "it caught up")
    control.cut_over(stream.config, stream.name, first, actor="test", reason="back")
    stream.dies("moved")
    stream.await_live(first)
    again = [*more, ("b", 30), ("a", 40)]
    stream.tell(again[10:], minute=2)
    assert sorted(stream.story(first)) == running_totals(again, 1)
    assert sorted(stream.story(second)) == running_totals(more, 2)

    stream.roll_back_to(second)
    last = [*again, ("c", 50)]
    stream.tell(last[12:], minute=3)
    assert sorted(stream.story(second)) == running_totals(last, 2)
    assert sorted(stream.story(first)) == running_totals(again, 1)
    assert stream.newest(second) == stream.balances()
    assert all(in_order(stream.story(epoch)) for epoch in (first, second))
    assert control.certify(stream.config, stream.name).complete
    # A topic that is not versioned holds what the live epoch sent, record by record: so does a reader that changes
    # over.
    assert sorted(stream.by_turns()) == sorted(stream.rows(f"{stream.topic}.moves"))
    assert [turn.epoch for turn in serving.turns(stream.config, stream.name, f"{stream.topic}.story")] == [1, 2, 1, 2]
    assert {row.sends for row in stream.ledger(second).state().commits[1:]} == {"versioned", "live"}


def test_a_seed_is_sent_to_the_topic_once_and_in_order(world_of: Versioned, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = world_of
    monkeypatch.setattr(changelog, "BASELINE_ROWS", 3)  # several transactions
    first = stream.live_first()
    seq = stream.ledger(first).state().seq
    stream.tell([("a", 100)], minute=1)
    stream.deploy(2)
    second = stream.verified(
        "baseline.topics", "baseline.topics", "baseline.begun", "baseline.marker", start=FromSavepoint(seq=seq)
    )
    expected = [*running_totals(ROWS, 1), ("a", 200, 211)]
    assert sorted(stream.story(second)) == sorted(expected)
    assert in_order(stream.story(second))
    assert stream.newest(second) == {"a": 211, "b": 7, "c": 12, "d": 6}
    stream.cut_over_to(second)
    stream.tell([("b", 1)], minute=2)
    assert sorted(stream.story(second)) == sorted([*expected, ("b", 2, 9)])
    assert control.certify(stream.config, stream.name).complete


def test_a_changelog_restores_a_tables_rows_and_the_plan_says_what_is_missing(world_of: Versioned) -> None:
    stream = world_of
    first = stream.live_first()
    stream.stop_live()
    second = stream.plan_replay(FromMarker(epoch=first))
    (finding,) = [f for f in stream.plan(second).warnings if f.code == "versioned-history-partial"]
    assert f"{stream.topic}.story.e0002 will begin with" in str(finding)
    assert f"earlier ones are in {stream.topic}.story.e0001" in str(finding)
    assert "newest" not in str(finding)
    stream.await_stage(second, Stage.SEEDED)
    control.start(stream.config, stream.name, actor="test", reason="both")
    stream.await_stage(second, Stage.VERIFIED)
    stream.cut_over_to(second)
    stream.tell([("a", 10)], minute=1)
    assert stream.story(second) == [("a", 10, 21)]
    assert stream.newest(second) == {"a": 21, "b": 7, "c": 12, "d": 6}


def test_abort_and_retire_remove_only_the_topics_of_their_epoch(world_of: Versioned) -> None:
    stream = world_of
    first = stream.live_first()
    before = stream.kafka.topics(stream.topic), stream.kafka.topics("kappa."), stream.kafka.groups("kappa.")
    stream.deploy(2)
    second = stream.verified()
    own = {f"{stream.topic}.story.e0002", f"{stream.topic}.newest.e0002"}
    assert own <= set(stream.kafka.topics())
    _abort(stream, second)
    assert (stream.kafka.topics(stream.topic), stream.kafka.topics("kappa."), stream.kafka.groups("kappa.")) == before

    third = stream.verified()
    stream.cut_over_to(third)
    control.retire(stream.config, stream.name, first, actor="test", reason="enough")
    assert not {f"{stream.topic}.story.e0001", f"{stream.topic}.newest.e0001"} & set(stream.kafka.topics())
    assert sorted(stream.story(third)) == running_totals(ROWS, 2)


def test_leftovers_of_an_interrupted_abort_are_found_without_the_code(world_of: Versioned, kafka: Broker) -> None:
    stream = world_of
    stream.live_first()
    stream.deploy(2)
    second = stream.verified()
    _abort(stream, second)
    own = f"{stream.topic}.story.e0002"
    kafka.create_topic(own, 1)
    (stream.config.topologies / "balances.py").unlink()
    report = control.housekeeping(stream.config)
    assert [item.name for item in report.leftovers if item.name.startswith(stream.topic)] == [own]
    control.clean(stream.config, report.leftovers)
    assert set(kafka.topics(f"{stream.topic}.story")) == {f"{stream.topic}.story.e0001"}


def test_a_foreign_topic_of_that_name_blocks_the_plan_and_survives_an_abort(world_of: Versioned, kafka: Broker) -> None:
    stream = world_of
    stream.config = replace(stream.config, attempts=3)  # of processes that die there may be any number
    stream.live_first()
    stream.deploy(2)
    foreign = f"{stream.topic}.story.e0002".replace(".story.", ".story_")  # the same to Kafka
    kafka.create_topic(foreign, 1)
    with pytest.raises(RefusedError, match="exists already"):
        stream.plan_replay()
    kafka.delete_topics([foreign])
    request = ReplayRequest(topology=stream.name, start=ToEarliest(), reason="test", actor="test")
    plan = control.plan(stream.config, request)
    foreign = f"{stream.topic}.story.e0002"
    kafka.create_topic(foreign, 1)  # after the plan was made
    theirs = Producer(plain_settings(kafka.bootstrap_servers))
    theirs.produce(foreign, value=b"of another application")
    assert theirs.flush(60) == 0
    control.replay(stream.config, plan, actor="test", reason="test")
    stream.tend()
    refused = "exist or belong to another epoch"
    stream.until(lambda: any(e.event == "stuck" and refused in e.reason for e in stream.record().events), "stuck")
    _abort(stream, 2)
    assert foreign in kafka.topics()


def test_a_range_computed_twice_is_sent_once(world_of: Versioned) -> None:
    stream = world_of
    stream.live_first()
    stream.deploy(2)
    second = stream.verified(determinism=True, slice_records=4)
    assert stream.record().epoch(second).determinism.is_same
    assert sorted(stream.story(second)) == running_totals(ROWS, 2)


def test_an_upgrade_goes_on_in_the_same_topic(world_of: Versioned) -> None:
    stream = world_of
    first = stream.live_first()
    stream.deploy(1, 3)
    proposal = upgrade.propose(stream.config, stream.name, slices=0)
    upgrade.upgrade(stream.config, proposal, history_stands=True, actor="test", reason="three times from now on")
    stream.wait(lambda: stream.record().epoch(first).code == proposal.to_code, "the new code runs")
    stream.tell([("a", 10)], minute=1)
    assert sorted(stream.story(first)) == sorted([*running_totals(ROWS, 1), ("a", 30, 41)])
    assert sorted(stream.by_turns()) == sorted(stream.rows(f"{stream.topic}.moves"))

    stream.outputs = VERSIONED.replace("versioned", "hold")
    stream.deploy(2)
    (refused,) = upgrade.propose(stream.config, stream.name, slices=0).refusals
    assert refused.code == "upgrade-changes-topics"


def test_the_command_names_the_topic_and_its_turns(world_of: Versioned) -> None:
    stream = world_of
    stream.live_first()

    def kappa(*words: str) -> str:
        result = CliRunner().invoke(app, [*words], env=stream.config.to_env())
        assert result.exit_code == 0, result.output
        return result.stdout

    story = f"{stream.topic}.story"
    assert kappa("path", stream.name, story).strip() == f"{story}.e0001"
    assert kappa("path", stream.name, f"{stream.topic}.moves").strip() == f"{stream.topic}.moves"
    answer = orjson.loads(kappa("path", stream.name, story, "--json"))
    assert (answer["topic"], answer["epoch"]) == (f"{story}.e0001", 1)
    assert answer["turns"] == [
        {"epoch": 1, "topic": f"{story}.e0001", "start": {f"{story}.e0001": {"0": 0, "1": 0}}, "end": None}
    ]
    assert f"{story} is now {story}.e0001" in kappa("status", stream.name)
    with pytest.raises(UnknownTopologyError):
        serving.topic(stream.config, stream.name, "other")


def _abort(stream: Mortal, epoch: int) -> None:
    """Abort an epoch. Not in this thread: a driver that dies meanwhile is a failure that has to be seen."""
    thread = threading.Thread(
        target=control.abort, args=(stream.config, stream.name, epoch), kwargs={"actor": "test", "reason": "test"}
    )
    thread.start()
    stream.until(lambda: not thread.is_alive(), "aborted")
