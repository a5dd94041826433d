"""A topology that reads another's versioned topic: alone, and moved together with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from support.chains import Downstream, Upstream, chain_of, expected_scores, prove, raw, verified
from support.joint_topologies import Member, Reader, Reaper, await_all_live, await_death, cut_over, moved, resumed_at

from kappa import control, faults
from kappa.control import cutover
from kappa.errors import MoveRefusedError, RefusedError
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.replay.starts import FromSavepoint

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]
LATER = 1_700_000_100_000

Chain = Callable[..., tuple[Upstream, Downstream]]


@pytest.fixture
def chain(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Chain]:
    """Makes two topologies in one lake, the second of which reads the first one's versioned topic."""
    with ExitStack() as stack:

        def make(**settings: object) -> tuple[Upstream, Downstream]:
            here = tmp_path / "lab", kafka, spark, topic(partitions=2)
            return stack.enter_context(chain_of(Upstream, Downstream, *here, **settings))

        yield make


def live(one: Upstream, two: Downstream) -> None:
    """Make both live and let them read the root topic."""
    one.produce(ROWS)
    assert one.start() == 1
    one.await_live(1)
    assert two.start() == 1
    two.await_live(1)
    two.settle(1)


def test_a_reader_in_a_chain_stands_at_root_offsets_and_is_replayed_alone(chain: Chain) -> None:
    one, two = chain(slice_records=3)
    live(one, two)
    bound = two.plan(1).bound
    assert {source: (b.topology, b.epoch, b.topic) for source, b in bound.items()} == {
        one.story: (one.name, 1, f"{one.story}.e0001")
    }
    prove(two, {1: 1})
    state = two.ledger(1).state()
    assert state.position.topics == (f"{one.story}.e0001",) and state.standing.topics == (two.topic,)
    sent = {Offsets.from_json(row.detail["sent"]) for row in one.ledger(1).state().commits if row.seq}
    assert {Offsets.of((r.at, r.end) for r in row.ranges) for row in state.commits if row.seq} <= sent
    assert two.kafka.group_offsets(two.paths(1).name) == state.position

    second = verified(two, 2)
    assert two.plan(second).bound == bound
    report = control.diff(two.config, two.name, second)
    assert set(report.at.topics) == {two.topic}
    assert report.tables[0].keys_changed == 3
    one.produce([("d", 6), ("a", 7)], start_ms=LATER)
    two.settle(1)
    control.cut_over(two.config, two.name, second, actor="ada", reason="alone")
    two.await_live(second)
    one.produce([("b", 8)], start_ms=LATER + 60_000)
    two.settle(second)
    prove(two, {1: 1, 2: 2})
    assert [member.record().live for member in (one, two)] == [1, 2]


def both_verified(one: Upstream, two: Downstream) -> dict[str, int]:
    """Candidates of both, the second one on the first one's; one counts five times, the other twice."""
    new = verified(one, 5)
    return {one.name: new, two.name: verified(two, 2, upstream={one.name: new})}


def test_both_move_in_one_commit_at_one_root_offset_and_back_again(chain: Chain) -> None:
    one, two = members = chain(slice_records=3)
    live(one, two)
    candidates = both_verified(one, two)
    assert candidates == {one.name: 2, two.name: 2}
    (binding,) = two.plan(2).bound.values()
    assert binding.topic == f"{one.story}.e0002"
    report = control.diff(two.config, two.name, 2)
    stands = [{row.standing for row in two.ledger(epoch).state().commits} for epoch in (1, 2)]
    assert report.at in stands[0] & stands[1]
    assert report.tables[0].keys_changed == 3 and report.outputs[0].rows_added == len(ROWS)
    for alone in members:
        with pytest.raises(MoveRefusedError, match=rf"kappa cutover {one.name} {two.name} --execute"):
            control.cut_over(one.config, alone.name, 2, actor="ada", reason="alone")

    one.produce([("d", 6), ("a", 7)], start_ms=LATER)
    with Reader(one.config, [one.name, two.name]).reading() as reader:
        cut_over(members, candidates)
        await_all_live(members, candidates)
    assert reader.seen == [(1, 1), (2, 2)]
    at = Offsets.from_json(moved(two).detail["at"])
    assert at == Offsets.from_json(moved(one).detail["at"]) == resumed_at(one, 2) == resumed_at(two, 2)
    # The old one had read the last slice that its upstream announced before it stopped.
    assert two.ledger(1).state().standing == one.ledger(1).state().position == at
    one.produce([("b", 8), ("e", 9)], start_ms=LATER + 60_000)
    two.settle(2)
    prove(two, {1: 1, 2: 10})

    for back in members:
        with pytest.raises(MoveRefusedError, match=rf"kappa (rollback|cutover) {one.name} {two.name} --execute"):
            control.rollback(one.config, back.name, actor="ada", reason="alone")
    recalled = cutover.recall_together(one.config, dict.fromkeys(candidates), actor="ada", reason="back")
    assert recalled == {one.name: 1, two.name: 1}
    for member in members:
        member.run(1)
    for member in members:
        member.wait(lambda m=member: control.progress(m.config, m.name, 1).is_caught_up, "it caught up")
    cut_over(members, recalled)
    await_all_live(members, recalled)
    one.produce([("a", 10)], start_ms=LATER + 120_000)
    two.settle(1)
    prove(two, {1: 1, 2: 10})
    with pytest.raises(RefusedError, match=f"kappa retire {two.name} 2 --execute"):
        control.retire(one.config, one.name, 2, actor="ada", reason="gone")
    control.retire(two.config, two.name, 2, actor="ada", reason="gone")
    control.retire(one.config, one.name, 2, actor="ada", reason="gone")
    assert f"{one.story}.e0002" not in one.kafka.topics(one.story)


def died_before_the_move(members: Sequence[Member]) -> list[Member]:
    """Those whose new driver was killed, once the others wait for them."""
    dead = [m for m in members if not m.running[2][1].is_alive()]
    beats = [heartbeat.read(m.paths(2).heartbeat) for m in members if m not in dead]
    return dead if all(beat is not None and "has no driver" in beat.message for beat in beats) else []


def test_a_chain_sends_each_root_record_once_whichever_driver_is_killed(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaper = Reaper()
    monkeypatch.setattr(faults, "os", reaper)
    one, two = members = chain(slice_records=3)
    live(one, two)
    # The upstream's records are readable after "send", and no commit says so yet. Its first slice after a start is made
    # by the driver's own thread, which is the one that can be killed here.
    for amount, point in enumerate(("send", "apply"), start=101):
        assert one.stop(1) == []
        one.produce([("a", amount), ("b", amount)], start_ms=LATER + amount)
        reaper.arm(one, 1, point)
        one.run(1)
        await_death(one, 1)
        one.run(1)
        two.settle(1)
    for amount, point in enumerate(("plan", "effects", "send", "apply"), start=111):
        reaper.arm(two, 1, point)
        one.produce([("a", amount), ("b", amount)], start_ms=LATER + amount)
        await_death(two, 1)
        two.run(1)
        two.settle(1)
    prove(two, {1: 1})

    candidates = both_verified(one, two)
    one.produce([("d", 6), ("a", 7)], start_ms=LATER + 60_000)
    olds = ((one, "standing"), (two, "standing"), (one, "yield"), (two, "yield"))
    reaper.arm(one, 1, "standing")
    reaper.arm(two, 1, "standing")
    for member in members:
        reaper.arm(member, 2, "move.ready")
    cut_over(members, candidates)
    for member, point in olds:
        await_death(member, 1)
        if point == "standing":
            reaper.arm(member, 1, "yield")
        member.run(1)
    dead = one.wait(lambda: died_before_the_move(members), "a driver dies before the move")
    assert [member.record().live for member in members] == [1, 1]
    for member in members:
        if member in dead:
            await_death(member, 2)
        else:
            reaper.points.pop(f"driver-{member.name}-2", None)
    for member in members:
        reaper.arm(member, 2, "resume")
    for member in dead:
        member.run(2)
    for member in members:
        await_death(member, 2)
        assert member.record().live == 2
        member.run(2)
    one.produce([("b", 8)], start_ms=LATER + 120_000)
    two.settle(2)
    prove(two, {1: 1, 2: 10})
    assert resumed_at(one, 2) == resumed_at(two, 2)


def test_a_chain_of_three_moves_together_and_the_last_stands_at_root_offsets(chain: Chain) -> None:
    one, two = chain(slice_records=3)
    two.is_versioned = True
    two.deploy(1)
    three = Downstream(
        name=two.name[:-1] + "c",
        of=two,
        column="scored",
        config=two.config,
        kafka=two.kafka,
        topic=two.topic,
        session=two.session,
    )
    three.deploy(1)
    members = [one, two, three]
    try:
        live(one, two)
        assert three.start() == 1
        three.await_live(1)
        three.settle(1)
        prove(three, {1: 1})
        candidates = {one.name: verified(one, 5)}
        candidates[two.name] = verified(two, 2, upstream={one.name: 2})
        candidates[three.name] = verified(three, 3, upstream={two.name: 2})
        with pytest.raises(MoveRefusedError, match=f"Live epoch 1 of {three.name!r} reads epoch 1 of {two.name!r}"):
            cutover.cut_over_together(one.config, {one.name: 2, two.name: 2}, actor="ada", reason="without the third")
        one.produce([("d", 6), ("a", 7)], start_ms=LATER)
        cut_over(members, candidates)
        await_all_live(members, candidates)
        assert len({str(resumed_at(member, 2)) for member in members}) == 1
        one.produce([("b", 8)], start_ms=LATER + 60_000)
        three.settle(2)
        prove(three, {1: 1, 2: 30})
    finally:
        three.close()


def test_a_reader_in_a_chain_goes_on_from_its_own_savepoint(chain: Chain) -> None:
    one, two = chain(slice_records=3)
    live(one, two)
    before = raw(two)
    seq = two.ledger(1).state().seq
    one.produce([("d", 6), ("a", 7)], start_ms=LATER)
    two.settle(1)
    second = verified(two, 2, start=FromSavepoint(seq=seq))
    plan = two.plan(second)
    assert plan.roots["start"] == next(r.standing for r in two.ledger(1).state().commits if r.seq == seq)
    assert plan.roots["origin"] == two.plan(1).roots["start"]
    control.cut_over(two.config, two.name, second, actor="ada", reason="alone")
    two.await_live(second)
    old_places = {(message.partition(), message.offset()) for message in before}
    later = [message for message in raw(two) if (message.partition(), message.offset()) not in old_places]
    scores = Counter(expected_scores(before, 1)) + Counter(expected_scores(later, 2))
    assert two.scores() == scores
    assert control.certify(two.config, two.name).complete
