"""Which epochs may go live together, and where the old ones stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.offsets.vector import Offsets
from kappa.replay.rules.cutover import (
    CutoverRequest,
    Member,
    can_take_over,
    is_asked,
    is_done,
    meeting_point,
    refusals,
    rest_of_group,
    yield_at,
)
from kappa.replay.stages import Stage

NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ONE = Member(topology="a.b", epoch=2, stage=Stage.VERIFIED, live=1, verdict="differs")
TWO = Member(topology="a.c", epoch=5, stage=Stage.CAUGHT_UP, is_recalled=True, live=6)
BOTH = {"a.b": 2, "a.c": 5}


def test_a_verified_and_a_recalled_epoch_may_move_together() -> None:
    assert refusals([ONE, TWO]) == ()


def test_all_reasons_of_all_members_are_named_at_once() -> None:
    one = replace(ONE, stage=Stage.REPLAYED)
    two = replace(TWO, pending=CutoverRequest(epoch=5, actor="bob", at=NOON))
    reasons = refusals([one, two])
    assert len(reasons) == 2
    assert "epoch 2 of 'a.b' is REPLAYED: it can take over once it is VERIFIED" in reasons[0]
    assert "bob asked at 12:30:00 to hand 'a.c' over to epoch 5" in reasons[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"live": 2}, "is live already"),
        ({"live": None}, "no live epoch that could hand over"),
        ({"replaces": 1, "live": 3, "last_move": "eve moved it at 11:00:00"}, "is 3, 1 was expected: eve moved it"),
        ({"stage": Stage.CAUGHT_UP}, "once it is VERIFIED"),
        ({"stage": Stage.RETIRED, "is_recalled": True}, "once it is CAUGHT_UP again"),
        ({"verdict": "failed", "failures": "four rows"}, "failed: four rows. See it: kappa diff a.b 2"),
        ({"verdict": "failed"}, "kappa cutover a.b a.c --accept-verdict a.b --reason '...' --execute"),
        ({"unable": ("its code is gone",)}, "its code is gone"),
        (
            {"pending": CutoverRequest(epoch=2, actor="bob", at=NOON, together={"a.b": 2, "a.d": 9})},
            "to hand 'a.b' over to epoch 2, together with a.d epoch 9",
        ),
    ],
)
def test_a_member_that_may_not_move_stops_the_others(changes: dict[str, object], message: str) -> None:
    reasons = refusals([replace(ONE, **changes), TWO])  # type: ignore[arg-type]
    assert len(reasons) == 1 and message in reasons[0]


def test_a_failed_verdict_may_be_accepted_and_is_ignored_for_a_recalled_epoch() -> None:
    failed = replace(ONE, verdict="failed", is_accepted=True)
    assert refusals([failed, replace(TWO, verdict="failed")]) == ()


def test_a_repeated_cutover_is_recognised_and_another_group_is_not() -> None:
    request = CutoverRequest(epoch=2, actor="bob", at=NOON, together=BOTH)
    one, two = replace(ONE, pending=request), replace(TWO, pending=replace(request, epoch=5))
    assert is_asked([one, two])
    assert not is_asked([one]) and not is_asked([one, two, replace(ONE, topology="a.d")])
    assert not is_asked([one, TWO]) and not is_asked([replace(one, epoch=3), two])
    alone = replace(ONE, pending=CutoverRequest(epoch=2, actor="bob", at=NOON))
    assert is_asked([alone]) and not is_asked([alone, two]) and not is_asked([replace(alone, epoch=3)])


def test_a_cutover_is_complete_once_all_members_are_live() -> None:
    assert is_done([replace(ONE, live=2), replace(TWO, live=5)])
    assert not is_done([replace(ONE, live=2), TWO])


def test_a_caught_up_epoch_takes_over_only_when_it_was_live_before() -> None:
    assert can_take_over(Stage.VERIFIED, is_recalled=False) and can_take_over(Stage.CAUGHT_UP, is_recalled=True)
    assert not can_take_over(Stage.CAUGHT_UP, is_recalled=False)


def test_the_rest_of_a_group_excludes_the_member() -> None:
    assert rest_of_group({"c": 3, "a": 1, "b": 2}, "b") == "a epoch 1 and c epoch 3"
    assert rest_of_group({"b": 2}, "b") == rest_of_group({}, "b") == ""


def test_all_members_yield_at_the_furthest_offset_per_partition() -> None:
    one, two = Offsets({"pos": {0: 5, 1: 9}}), Offsets({"pos": {0: 7, 1: 8, 2: 4}, "other": {0: 3}})
    assert yield_at(one, [one, two]) == Offsets({"pos": {0: 7, 1: 9, 2: 4}})
    assert yield_at(two, [one, two]) == Offsets({"pos": {0: 7, 1: 9, 2: 4}, "other": {0: 3}})


VECTORS = st.dictionaries(
    st.sampled_from(["a", "b"]), st.dictionaries(st.integers(0, 2), st.integers(0, 9), min_size=1), min_size=1
).map(Offsets)


@given(st.lists(VECTORS, min_size=1, max_size=4))
def test_a_meeting_point_is_ahead_of_all_in_any_order_and_stays(standings: list[Offsets]) -> None:
    point = meeting_point(standings)
    assert all(point.dominates(standing) for standing in standings)
    assert meeting_point(reversed(standings)) == point
    assert set(point) == {at for standing in standings for at in standing}
    for standing in standings:
        there = yield_at(standing, standings)
        assert there.span_to(there) and there.dominates(standing)
        assert yield_at(there, standings) == there  # a driver that starts again half way finds the same
        for other in standings:  # equal offsets of every topic that two read
            assert there.only(other.topics) == yield_at(other, standings).only(standing.topics)
