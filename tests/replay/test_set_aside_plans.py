"""Records set aside by the live epoch in a plan, and those of a candidate in a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kappa.errors import UsageError
from kappa.offsets.set_asides import SetAside, count
from kappa.offsets.vector import Offsets
from kappa.replay.explain import explain
from kappa.replay.facts import Facts, MarkerFacts
from kappa.replay.plan import ReplayPlan
from kappa.replay.proof.verdict import DiffReport
from kappa.replay.request import Seed
from kappa.replay.starts import FromMarker, ToOffset

PlanOf = Callable[..., ReplayPlan]


def aside(decision: int, partition: int, *offsets: int) -> SetAside:
    hashes = dict.fromkeys(offsets, "hash")
    return SetAside(decision=decision, reason="why", topic="pos", topic_id="id-1", partition=partition, offsets=hashes)


@pytest.fixture
def set_aside_facts(facts: Facts) -> Facts:
    """The live epoch set aside three records by decision 7, and two by decision 8."""
    assert facts.live is not None
    return replace(facts, live=replace(facts.live, set_aside=(aside(7, 0, 5, 6, 50), aside(8, 1, 3, 79))))


def test_a_replay_sets_aside_the_live_epochs_records_within_its_range(set_aside_facts: Facts, plan_of: PlanOf) -> None:
    whole = plan_of(set_aside_facts)
    assert (count(whole.set_aside), whole.brought_in) == (5, ())
    assert ReplayPlan.from_json(whole.to_json()) == whole
    assert "sets aside 5 records" in "\n".join(explain(whole))
    part = plan_of(set_aside_facts, start=ToOffset(offsets=Offsets({"pos": {0: 6, 1: 4}})), allow={"partial-history"})
    assert [sorted(one.offsets) for one in part.set_aside] == [[6, 50], [79]]
    assert plan_of(replace(set_aside_facts, live=None)).set_aside == ()


def test_records_of_a_topic_that_was_created_anew_are_others(set_aside_facts: Facts, plan_of: PlanOf) -> None:
    assert set_aside_facts.live is not None
    log = replace(set_aside_facts.log, topic_ids={"pos": "id-2"})  # the live epoch does not read it any more
    anew = replace(set_aside_facts, log=log, live=replace(set_aside_facts.live, topic_ids={}))
    assert plan_of(anew).set_aside == () and plan_of(anew, bring_in=("8",)).brought_in == ()


def test_readmitted_records_are_frozen_in_the_plan_and_not_set_aside(set_aside_facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(set_aside_facts, bring_in=("8", "pos:0=6"))
    assert not plan.is_refused
    assert [(one.decision, sorted(one.offsets)) for one in plan.brought_in] == [(7, [6]), (8, [3, 79])]
    assert [(one.decision, sorted(one.offsets)) for one in plan.set_aside] == [(7, [5, 50])]
    text = "\n".join(explain(plan))
    assert "brings in  3 records" in text and "loyalty will never have their rows" in text
    assert plan.id != plan_of(set_aside_facts).id and ReplayPlan.from_json(plan.to_json()).request.bring_in == (
        "8",
        "pos:0=6",
    )
    assert plan_of(set_aside_facts, bring_in=("all",)).set_aside == ()


def codes(plan: ReplayPlan) -> list[str]:
    return [finding.code for finding in plan.findings if finding.code.startswith(("bring-in", "set-asides"))]


def test_readmitting_unknown_or_earlier_records_is_refused(set_aside_facts: Facts, plan_of: PlanOf) -> None:
    assert codes(plan_of(set_aside_facts, bring_in=("9",))) == ["bring-in-unknown"]
    assert codes(plan_of(replace(set_aside_facts, live=None), bring_in=("8",))) == ["bring-in-unknown"]
    start = ToOffset(offsets=Offsets({"pos": {0: 6, 1: 3}}))
    refused = plan_of(set_aside_facts, start=start, bring_in=("7",))
    assert codes(refused) == ["bring-in-before-start"] and refused.is_refused
    assert codes(plan_of(set_aside_facts, start=start, bring_in=("8",))) == []
    with pytest.raises(UsageError, match="names no record that was set aside"):
        plan_of(set_aside_facts, bring_in=("pos",))


def test_a_marker_without_set_asides_warns_the_rebuild_and_later_replays(
    facts: Facts, marker: MarkerFacts, plan_of: PlanOf
) -> None:
    assert facts.live is not None
    lost = replace(facts, markers=(replace(marker, set_aside_unnamed=4_000),), live=None)
    rebuild = plan_of(lost, start=FromMarker(), seed=Seed.FROM_CHANGELOG)
    assert codes(rebuild) == ["set-asides-lost"] and not rebuild.is_refused
    later = replace(facts, live=replace(facts.live, has_lost_set_asides=True))
    assert codes(plan_of(later)) == ["set-asides-lost"]


def test_records_set_aside_only_by_a_candidate_are_a_difference(facts: Facts) -> None:
    values: dict[str, Any] = {
        "topology": "a.b",
        "live_epoch": 1,
        "live_seq": 2,
        "candidate_epoch": 2,
        "candidate_seq": 3,
    }
    report = DiffReport(**values, at=Offsets())
    assert report.verdict == "same"
    alone = replace(report, set_aside=1, notes=("Epoch 2 alone sets aside 1 record, pos[0] at 4 (why).",))
    assert alone.verdict == "differs"
    assert DiffReport.from_json(alone.to_json()) == alone
    assert "alone sets aside 1 record" in "\n".join(alone.render())
