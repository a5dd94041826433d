"""A plan is data: frozen, identified by its content, readable again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kappa.errors import RefusedError, UsageError
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay.building import build_plan
from kappa.replay.facts import Facts, MarkerFacts
from kappa.replay.plan import BESIDE_LIVE, FIRST_EPOCH, ReplayPlan
from kappa.replay.request import Seed
from kappa.replay.starts import FromMarker, FromSavepoint, ToDatetime

PlanOf = Callable[..., ReplayPlan]


def test_a_plan_freezes_start_and_end_at_the_live_epochs_last_commit(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(facts)
    assert (plan.epoch, plan.live_epoch, plan.live_seq) == (4, 3, 9)
    assert plan.start == plan.origin == Offsets({"pos": {0: 0, 1: 0}})
    assert plan.end == Offsets({"pos": {0: 90, 1: 80}})
    assert plan.ranges[0] == OffsetRange(topic="pos", partition=0, start=0, end=90)
    assert (plan.seed, plan.seed_epoch, plan.sends, plan.stages) == (Seed.EMPTY, None, "hold", BESIDE_LIVE)


def test_the_first_epoch_begins_with_the_log(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(replace(facts, live=None, log=replace(facts.log, low=Offsets({"pos": {0: 7, 1: 0}}))))
    assert (plan.live_epoch, plan.start, plan.end) == (None, Offsets({"pos": {0: 7, 1: 0}}), facts.log.stable)
    assert plan.stages == FIRST_EPOCH


def test_to_earliest_reaches_past_a_live_epoch_that_began_late(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.live is not None
    late = replace(facts, live=replace(facts.live, origin=Offsets({"pos": {0: 50, 1: 50}})))
    assert plan_of(late).start == Offsets({"pos": {0: 0, 1: 0}})


def test_a_savepoint_gives_start_seed_and_origin(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.live is not None
    plan = plan_of(facts, start=FromSavepoint(seq=5))
    assert (plan.start, plan.origin) == (Offsets({"pos": {0: 40, 1: 30}}), facts.live.origin)
    assert (plan.seed, plan.seed_epoch, plan.seed_seq) == (Seed.FROM_SAVEPOINT, 3, 5)


@pytest.mark.parametrize(("seconds", "seq"), [(-1, 5), (0, 9), (1, 9)])
def test_a_savepoint_by_time_is_the_last_one_before_it(facts: Facts, plan_of: PlanOf, seconds: int, seq: int) -> None:
    at = datetime(2026, 2, 28, tzinfo=UTC) + timedelta(seconds=seconds)
    assert plan_of(facts, start=FromSavepoint(at=at)).seed_seq == seq


def test_a_marker_gives_start_and_seed(facts: Facts, marker: MarkerFacts, plan_of: PlanOf) -> None:
    older = replace(marker, epoch=2, position=Offsets({"pos": {0: 1, 1: 1}}))
    rebuilt = replace(facts, live=None, markers=(marker, older))
    plan = plan_of(rebuilt, start=FromMarker())
    assert (plan.start, plan.seed, plan.seed_epoch, plan.seed_seq) == (marker.position, Seed.FROM_CHANGELOG, 3, 9)
    assert plan_of(rebuilt, start=FromMarker(epoch=2)).start == older.position


def test_a_start_by_time_needs_the_looked_up_offsets(facts: Facts, plan_of: PlanOf) -> None:
    with pytest.raises(ValueError, match="first_records"):
        plan_of(facts, start=ToDatetime(at=datetime(2026, 2, 1, tzinfo=UTC)))


def test_an_estimate_comes_only_from_measured_rates(facts: Facts, plan_of: PlanOf) -> None:
    assert plan_of(facts).estimate.offsets == 170
    assert plan_of(facts).estimate.seconds is plan_of(facts).estimate.bytes is None
    measured = plan_of(replace(facts, records_per_second=34.0, bytes_per_record=530.0)).estimate
    assert (measured.bytes, measured.seconds) == (90_100, 5.0)


def test_the_same_content_has_the_same_id_at_any_time(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(facts)
    later = build_plan(plan.request, facts, now=plan.created_at + timedelta(days=1))
    assert later.created_at != plan.created_at
    assert later.id == plan.id
    assert len(plan.id) == 16


def test_other_content_has_another_id(facts: Facts, plan_of: PlanOf) -> None:
    plans = [plan_of(facts), plan_of(facts, reason="other"), plan_of(facts, slice_records=7)]
    plans.append(plan_of(replace(facts, next_epoch=5)))
    assert len({plan.id for plan in plans}) == 4


def test_a_plan_survives_json(facts: Facts, plan_of: PlanOf) -> None:
    for plan in (
        plan_of(facts, start=FromSavepoint(seq=5)),
        plan_of(replace(facts, topology=None)),
        plan_of(replace(facts, log=replace(facts.log, cleanup={"pos": "compact"})), allow={"compacted-source"}),
    ):
        again = ReplayPlan.from_json(plan.to_json())
        assert again == plan
        assert again.to_json() == plan.to_json()


def test_an_edited_plan_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    values = json.loads(plan_of(facts).to_json())
    values["end"]["pos"]["0"] = 89
    with pytest.raises(UsageError, match="was changed after it was made"):
        ReplayPlan.from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"start": 5}'])
def test_text_that_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a plan"):
        ReplayPlan.from_json(text)


def test_a_refused_plan_runs_no_stage_and_raises_when_checked(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(replace(facts, log=replace(facts.log, topic_ids={"pos": "id-2"})))
    assert plan.stages == ()
    with pytest.raises(RefusedError, match="was recreated") as caught:
        plan.check()
    assert caught.value.data["findings"] == plan.refusals
    plan_of(facts).check()
