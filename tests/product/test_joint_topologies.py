"""Several topologies cut over together: equal offsets, one commit, all or none."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from support.epochs import DEADLINE_SECONDS, lab
from support.joint_topologies import (
    Member,
    Reader,
    Reaper,
    await_all_live,
    await_death,
    cut_over,
    moved,
    resumed_at,
    verified,
)
from typer.testing import CliRunner

from kappa import control, faults, serving
from kappa.cli import app
from kappa.control import cutover
from kappa.driver.handovers import joint_handover
from kappa.errors import MoveRefusedError
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [("a", 1), ("b", 2), ("c", 4)]
LATER = 1_700_000_100_000

#: Makes topologies over these source topics, version 1 deployed, in one lake.
Several = Callable[..., list[Member]]


@pytest.fixture
def several(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Several]:
    """Makes topologies in one lake: one for each source topic that is named."""
    with ExitStack() as stack:

        def make(*topics: str, **settings: object) -> list[Member]:
            stream = stack.enter_context(lab(tmp_path / "lab", kafka, spark, topics[0], **settings))
            members = []
            for number, source in enumerate(topics):
                member = Member(
                    config=stream.config,
                    kafka=kafka,
                    topic=source,
                    session=spark,
                    name=f"lab.{source.replace('.', '_')}_{'abc'[number]}",
                )
                member.deploy(1)
                stack.callback(member.close)
                members.append(member)
            return members

        yield make


def prove(members: list[Member]) -> None:
    """Each record of the source was sent once by each member; certificates hold."""
    for member in members:
        certificate = control.certify(member.config, member.name)
        assert certificate.complete, certificate.problems


def test_topologies_over_one_source_move_in_one_commit_and_resume_at_equal_offsets(
    several: Several, topic: TopicFactory
) -> None:
    source = topic(partitions=2)
    one, two = members = several(source, source, slice_records=2)
    one.produce(ROWS)
    candidates = verified(members)
    # The first one's driver is down while the second one reads on: they stand at different offsets.
    assert one.stop(1) == []
    more = [("a", 10), ("d", 20), ("a", 30), ("b", 40), ("d", 50)]
    one.produce(more, start_ms=LATER)
    two.settle(1)
    behind, ahead = one.ledger(1).state().position, two.ledger(1).state().position
    assert behind != ahead and ahead.dominates(behind)
    with Reader(one.config, [one.name, two.name]).reading() as reader:
        cut_over(members, candidates)
        one.run(1)
        await_all_live(members, candidates)
    assert reader.seen == [(1, 1), (2, 2)]
    assert resumed_at(one, 2) == resumed_at(two, 2) == ahead
    assert moved(one).n + 1 == moved(two).n and moved(one).at == moved(two).at
    assert moved(one).detail["together"] == moved(two).detail["together"] == candidates
    one.produce([("a", 100)], start_ms=LATER + 60_000)
    for member in members:
        member.settle(2)
        assert sorted(member.sent()) == sorted([*ROWS, *more, ("a", 200)])
        assert member.balances() == {"a": 282, "b": 84, "c": 8, "d": 140}
    prove(members)


def test_versioned_and_reconciled_topics_of_one_member_move_with_the_other(
    several: Several, topic: TopicFactory
) -> None:
    source = topic(partitions=2)
    one, two = members = several(source, source)
    own, folded = f"{two.name}.own", f"{two.name}.balances"
    two.outputs = (
        f'Topic(name="{own}", of="moves", key="id", on_replay="versioned"), '
        f'Topic(name="{folded}", of="balances", key="id", on_replay="reconcile")'
    )
    two.deploy(1)
    one.produce(ROWS)
    candidates = verified(members)
    cut_over(members, candidates)
    await_all_live(members, candidates)
    assert moved(one).detail.get("reconciled") is None
    assert moved(two).detail["reconciled"] == {folded: {"upserts": 3, "tombstones": 0}}
    ends = moved(two).detail["topics"][own]
    assert set(ends["from"]) == {f"{own}.e0001"} and set(ends["to"]) == {f"{own}.e0002"}
    one.produce([("a", 100)], start_ms=LATER)
    two.settle(2)
    one.settle(2)
    totals = {"a": 202, "b": 4, "c": 8}
    assert two.balances() == one.balances() == totals
    held = {}
    for value in two.values_of(folded):
        row = json.loads(value)
        held.setdefault(row["id"], []).append(row["total"])
    assert held == {"a": [1, 2, 202], "b": [2, 4], "c": [4, 8]}
    assert sorted(json.loads(value)["total"] for value in two.values_of(f"{own}.e0002")) == [2, 4, 8, 202]
    assert sorted(json.loads(value)["total"] for value in two.values_of(f"{own}.e0001")) == [1, 2, 4]
    prove(members)


def test_topologies_over_different_sources_move_in_one_commit_and_back_by_a_command(
    several: Several, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = members = several(topic(partitions=2), topic())
    one.produce(ROWS)
    two.produce(ROWS[:2])
    candidates = verified(members)
    with Reader(one.config, [one.name, two.name]).reading() as reader:
        cut_over(members, candidates, keep_old_running=True)
        await_all_live(members, candidates)
    assert reader.seen == [(1, 1), (2, 2)]
    assert moved(one).n + 1 == moved(two).n
    for member in members:
        member.produce([("a", 100)], start_ms=LATER)
        member.settle(2)
        member.settle(1)  # kept running: it follows, sending nothing
    assert sorted(one.sent()) == sorted([*ROWS, ("a", 200)])
    assert sorted(two.sent()) == sorted([*ROWS[:2], ("a", 200)])
    prove(members)
    for name, value in one.config.to_env().items():
        monkeypatch.setenv(name, value)
    with Reader(one.config, [one.name, two.name]).reading() as reader:
        words = ["rollback", one.name, two.name, "--reason", "back", "--execute", "--json"]
        answer = CliRunner().invoke(app, words, catch_exceptions=False)
        output = "\n".join(
            line for line in answer.stdout.splitlines() if not line[:1].isdigit()
        )  # drivers log there too
        live = {row["topology"]: row["is_live"] for row in json.loads(output)}
        assert live == {one.name: True, two.name: True}
        await_all_live(members, dict.fromkeys(candidates, 1))
    assert reader.seen == [(2, 2), (1, 1)]
    for member in members:
        member.produce([("a", 1000)], start_ms=LATER + 60_000)
        member.settle(1)
    assert sorted(one.sent()) == sorted([*ROWS, ("a", 200), ("a", 1000)])
    prove(members)


def test_a_stuck_member_yields_where_it_is_and_its_successor_reads_the_rest(
    several: Several, topic: TopicFactory
) -> None:
    source = topic(partitions=1)
    one, two = members = several(source, source)
    file = two.config.topologies / f"{two.name.replace('.', '_')}.py"
    good = "CAST(amount * 1 AS BIGINT)"
    assert good in file.read_text()
    bad = "CAST(IF(amount = 13, CAST(raise_error('thirteen') AS BIGINT), amount * 1) AS BIGINT)"
    file.write_text(file.read_text().replace(good, bad))
    one.produce(ROWS)
    candidates = verified(members)
    one.produce([("a", 13)], start_ms=LATER)
    one.settle(1)
    two.wait(lambda: any(e.event == "stuck" for e in two.record().events), "the second one is stuck")
    cut_over(members, candidates)
    await_all_live(members, candidates)
    assert resumed_at(two, 2) == Offsets({source: {0: 3}}) and resumed_at(one, 2) == Offsets({source: {0: 4}})
    for member in members:
        member.settle(2)
    assert sorted(one.sent()) == sorted([*ROWS, ("a", 13)])
    assert sorted(two.sent()) == sorted([*ROWS, ("a", 26)])
    prove(members)


def test_a_group_is_withdrawn_when_one_member_does_not_take_over(several: Several, topic: TopicFactory) -> None:
    source = topic(partitions=2)
    one, two = members = several(source, source, handover_seconds=1.0)
    one.produce(ROWS)
    candidates = verified(members)
    assert two.stop(2) == []
    cut_over(members, candidates)
    with pytest.raises(MoveRefusedError, match=f"epoch 2 of '{two.name}' has no driver"):
        one.wait(lambda: cutover.is_live(one.config, candidates), "it is withdrawn")
    ends = [(e.topology, e.event) for e in Epochs(one.config.lake).events()[-2:]]
    assert ends == [(one.name, "withdrawn"), (two.name, "withdrawn")]
    one.produce([("a", 10)], start_ms=LATER)
    for member in members:
        member.settle(1)
        assert member.record().live == 1
        assert sorted(member.sent()) == sorted([*ROWS, ("a", 10)])
    prove(members)


def test_topologies_move_together_and_send_once_wherever_their_drivers_die(
    several: Several, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaper = Reaper()
    monkeypatch.setattr(faults, "os", reaper)
    source = topic(partitions=2)
    one, two, three = members = several(source, source, topic())
    one.produce(ROWS)
    three.produce(ROWS)
    candidates = verified(members)
    names = [member.name for member in members]

    def live() -> set[int]:
        return {snapshot.epoch for snapshot in serving.snapshots(one.config, names).values()}

    assert one.stop(1) == []  # behind: it has a last slice before it
    one.produce([("a", 10), ("d", 20)], start_ms=LATER)
    two.settle(1)
    with Reader(one.config, names).reading() as reader:
        # The old epochs: at the standing, in the last slice, at the yield.
        reaper.arm(two, 1, "standing")
        reaper.arm(one, 1, "send")
        reaper.arm(three, 1, "yield")
        cut_over(members, candidates)
        await_death(two, 1)
        one.run(1)
        two.run(1)
        await_death(one, 1)
        await_death(three, 1)
        assert live() == {1}
        one.run(1)
        # The new ones: the driver that finds all in place dies before the move, twice; then right after it.
        for point, epoch in (("move.ready", 1), ("move.ready", 1), ("moved", 2)):
            for member in members:
                reaper.arm(member, 2, point)
            for member in [m for m in members if 2 not in m.running]:
                member.run(2)
            if epoch == 1 and 1 not in three.running:
                three.run(1)
            dead = one.wait(lambda p=point: died(members, p), f"drivers die at {point}")
            for member in dead:
                await_death(member, 2)
            assert live() == {epoch}
        reaper.points.clear()
        mover = dead[0]
        for point in ("going_live", "resume"):
            reaper.arm(mover, 2, point)
            mover.run(2)
            await_death(mover, 2)
        for member in [m for m in members if 2 not in m.running]:
            member.run(2)
        await_all_live(members, candidates)
    assert reader.seen == [(1, 1, 1), (2, 2, 2)]
    assert resumed_at(one, 2) == resumed_at(two, 2)
    for member in (one, three):
        member.produce([("a", 100)], start_ms=LATER + 60_000)
    for member in members:
        member.settle(2)
    assert sorted(one.sent()) == sorted(two.sent()) == sorted([*ROWS, ("a", 10), ("d", 20), ("a", 200)])
    assert sorted(three.sent()) == sorted([*ROWS, ("a", 200)])
    prove(members)


def died(members: list[Member], point: str) -> list[Member]:
    """Those whose new driver was killed at a point, once all others are done: alive, or waiting for a dead one."""
    dead = [m for m in members if not m.running[2][1].is_alive()]
    rest = [m for m in members if m not in dead]
    if point == "moved":
        return dead if all(not m.ledger(2).state().is_yielded for m in rest) else []
    beats = [heartbeat.read(m.paths(2).heartbeat) for m in rest]
    return dead if all(beat is not None and "has no driver" in beat.message for beat in beats) else []


def test_only_one_of_two_simultaneous_drivers_makes_the_move(
    several: Several, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = topic(partitions=2)
    one, _ = members = several(source, source)
    one.produce(ROWS)
    candidates = verified(members)
    both = threading.Barrier(2, timeout=DEADLINE_SECONDS)
    tried = []

    def meet(point: str) -> None:
        if point == "move.ready":
            tried.append(threading.current_thread().name)
            both.wait()

    monkeypatch.setattr(joint_handover, "crash_point", meet)
    cut_over(members, candidates)
    await_all_live(members, candidates)
    assert len(set(tried)) == len(tried) == 2
    assert [e.event for e in Epochs(one.config.lake).events()].count(
        "moved"
    ) == 4  # two first epochs, and each new one once
    assert not any(e.event == "stuck" for m in members for e in m.record().events)
    prove(members)


def test_an_abort_of_one_member_of_a_waiting_group_leaves_old_epochs_live(
    several: Several, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = topic(partitions=2)
    one, two = members = several(source, source)
    one.produce(ROWS)
    candidates = verified(members)
    reached = threading.Event()
    aborted = threading.Event()

    def wait(point: str) -> None:
        if point == "move.ready":
            reached.set()
            aborted.wait(DEADLINE_SECONDS)

    monkeypatch.setattr(joint_handover, "crash_point", wait)
    cut_over(members, candidates)
    assert reached.wait(DEADLINE_SECONDS)  # some driver is about to move both
    with pytest.raises(MoveRefusedError, match="ada asked at"):
        control.cut_over(one.config, one.name, 2, actor="bob", reason="alone")
    control_thread = threading.Thread(
        target=control.abort, args=(two.config, two.name, 2), kwargs={"actor": "eve", "reason": "wrong"}
    )
    control_thread.start()  # it waits for the driver, which waits for it
    two.wait(lambda: two.record().epoch(2).stage is Stage.ABORTED, "the abort is on record")
    aborted.set()
    control_thread.join(DEADLINE_SECONDS)
    assert not control_thread.is_alive()
    with pytest.raises(MoveRefusedError, match=r"withdrawn by eve at .* was aborted"):
        cutover.is_live(one.config, candidates)
    one.produce([("a", 10)], start_ms=LATER)
    for member in members:
        member.settle(1)
        assert member.record().live == 1
        assert sorted(member.sent()) == sorted([*ROWS, ("a", 10)])
    control.cut_over(one.config, one.name, 2, actor="ada", reason="alone now")
    one.await_live(2)
    prove(members)
