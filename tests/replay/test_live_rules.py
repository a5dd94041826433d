"""Findings of a replay about readers, group and cuts of the live epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kappa.offsets.vector import Offsets
from kappa.replay.facts import Facts, SourceFacts
from kappa.replay.findings import Severity
from kappa.replay.plan import ReplayPlan
from kappa.replay.rules.live import group_moved, order_across_cuts, reader_schema_changed
from kappa.topology.shapes import Shape

PlanOf = Callable[..., ReplayPlan]

WAS = Shape(columns={"card": "STRING", "points": "BIGINT"}, required=("card",), key=("card",))
KEEPS = replace(WAS, columns={**WAS.columns, "points__sum": "BIGINT"}, hidden=("points__sum",))
#: The same of a ledger that does not say what is hidden.
EARLIER = replace(KEEPS, hidden=None)


@pytest.mark.parametrize(
    ("now", "numbers"),
    [
        (WAS, None),
        (replace(WAS, columns={**WAS.columns, "tier": "STRING"}), None),
        (replace(WAS, required=("card", "points")), None),
        (replace(WAS, columns={"card": "STRING"}), {"dropped": ["points"]}),
        (replace(WAS, columns={"card": "STRING", "points": "DOUBLE"}), {"retyped": ["points"]}),
        (replace(WAS, key=("card", "points")), {"key": ["card", "points"], "live_key": ["card"]}),
        (None, {"gone": True}),
    ],
)
def test_removals_that_readers_would_notice_are_refused_and_additions_are_not(
    now: Shape | None, numbers: dict[str, Any] | None
) -> None:
    findings = reader_schema_changed({} if now is None else {"tables/rewards": now}, {"tables/rewards": WAS}, 3)
    assert bool(findings) is (numbers is not None)
    for finding in findings:
        assert finding.code == "reader-schema-changed"
        assert (finding.numbers | (numbers or {}), finding.numbers["name"]) == (finding.numbers, "rewards")


@pytest.mark.parametrize(
    ("was", "now", "dropped"),
    [
        (KEEPS, WAS, []),
        (KEEPS, replace(KEEPS, columns={**KEEPS.columns, "points__sum": "DECIMAL(20, 0)"}), []),
        (EARLIER, KEEPS, []),
        (EARLIER, WAS, ["points__sum"]),
        (WAS, replace(WAS, hidden=("points",)), ["points"]),
        (KEEPS, replace(KEEPS, hidden=()), []),
    ],
)
def test_removed_internal_columns_of_an_operator_are_not_reported(was: Shape, now: Shape, dropped: list[str]) -> None:
    findings = reader_schema_changed({"tables/rewards": now}, {"tables/rewards": was}, 3)
    assert [finding.numbers["dropped"] for finding in findings] == ([dropped] if dropped else [])


def test_a_plan_names_every_schema_change_and_may_allow_them(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.topology is not None and facts.live is not None
    shapes = facts.topology.shapes
    rewards = replace(shapes["tables/rewards"], columns={**shapes["tables/rewards"].columns, "level": "INT"})
    before = replace(
        facts, live=replace(facts.live, shapes={**shapes, "tables/rewards": rewards, "outputs/old": rewards})
    )
    assert plan_of(replace(facts, live=replace(facts.live, shapes=shapes))).findings == ()
    old, dropped = plan_of(before).refusals
    assert old.message.startswith("Output 'old' of the deployed code is gone: readers of live epoch 3")
    assert "Table 'rewards' of the deployed code lacks the columns ['level']" in dropped.message
    allowed = plan_of(before, allow=frozenset({"reader-schema-changed"}))
    assert [f.severity for f in allowed.findings] == [Severity.WARN, Severity.WARN]


def test_a_plan_names_a_topic_that_the_cutover_would_end(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.live is not None
    ends = replace(facts, live=replace(facts.live, topics=("loyalty", "mails")))
    (finding,) = plan_of(ends).refusals
    assert finding.code == "reader-schema-changed"
    assert finding.message.startswith("Topic 'mails' of the deployed code is gone: readers of live epoch 3")
    assert not plan_of(ends, allow=frozenset({"reader-schema-changed"})).is_refused


@pytest.mark.parametrize("was_versioned", [False, True])
def test_a_topic_that_becomes_versioned_ends_for_its_readers(
    facts: Facts, plan_of: PlanOf, was_versioned: bool
) -> None:
    """Records go to a topic of the new epoch, and those who read the name itself get none."""
    assert facts.live is not None and facts.topology is not None
    topology = replace(facts.topology, versioned={"loyalty": "notifications"})
    live = replace(facts.live, topics=("loyalty",), versioned=("loyalty",) if was_versioned else ())
    plan = plan_of(replace(facts, topology=topology, live=live))
    assert [f.code for f in plan.refusals] == ([] if was_versioned else ["reader-schema-changed"])
    if not was_versioned:
        (finding,) = plan.refusals
        assert "is versioned, so that its records go to a topic of each epoch: readers of live" in finding.message


def test_a_group_moved_from_outside_is_reported_with_both_positions(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.live is not None
    here = facts.live.position
    assert group_moved("g", None, here) == []
    moved = replace(facts, live=replace(facts.live, group=here.with_("pos", 0, 5)))
    (finding,) = plan_of(moved).findings
    assert (finding.code, finding.severity) == ("group-moved", Severity.WARN)
    assert "Group 'kappa.retail.loyalty.e0003' was moved from outside: pos[0] at 5 instead of 90." in finding.message
    assert finding.numbers["ledger"] == here.as_dict()


@pytest.mark.parametrize(
    ("keyed", "partitions", "by_arrival", "is_told"),
    [
        (["a"], 2, True, False),
        (["a"], 3, True, True),
        (["a"], 3, False, False),
        (["a", "b"], 2, True, True),
        (["a", "b"], 2, False, False),
        ([], 3, True, False),
    ],
)
def test_an_order_across_partitions_under_other_cuts_is_a_warning(
    keyed: list[str], partitions: int, by_arrival: bool, is_told: bool
) -> None:
    origin = Offsets({topic: {0: 0, 1: 0} for topic in ("a", "b")})
    high = Offsets({topic: dict.fromkeys(range(partitions), 9) for topic in ("a", "b")})
    findings = order_across_cuts(keyed, origin, high, 3, is_cut_by_arrival=by_arrival)
    assert [f.code for f in findings] == (["order-across-cuts"] if is_told else [])


def test_a_key_in_several_partitions_is_reported_by_table_and_not_by_value(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.live is not None
    assert plan_of(replace(facts, spread=("rewards",))).findings == ()
    (finding,) = plan_of(replace(facts, spread=("rewards",), live=replace(facts.live, is_cut_by_arrival=True))).findings
    assert (finding.code, finding.numbers["tables"]) == ("order-across-cuts", ["rewards"])
    assert "keys of ['rewards'] were seen in several partitions" in finding.message
    assert "--cuts live" not in finding.remedy, "the plan begins at none of the live epoch's commits"


def test_known_cuts_of_the_live_epoch_are_suggested_and_clear_the_warning(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.live is not None
    live = replace(facts.live, is_cut_by_arrival=True)
    start = plan_of(facts).start
    assert start is not None
    with_begin = replace(facts, spread=("rewards",), live=replace(live, begin=start))
    (finding,) = plan_of(with_begin).findings
    assert "`kappa replay --cuts live` ends the slices where those of the live epoch ended" in finding.remedy
    assert plan_of(with_begin, cuts="live").findings == ()


def test_a_plan_with_two_keyed_sources_warns_about_order_across_cuts(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.topology is not None and facts.live is not None
    live = replace(facts.live, is_cut_by_arrival=True)
    both = (SourceFacts(topic="pos"), SourceFacts(topic="cards"))
    more = {name: getattr(facts.log, name).merge(Offsets({"cards": {0: 0}})) for name in ("low", "high", "stable")}
    log = replace(facts.log, topic_ids={"pos": "id-1", "cards": "id-2"}, **more)
    plan = plan_of(replace(facts, topology=replace(facts.topology, sources=both), live=live, log=log))
    assert [f.code for f in plan.findings] == ["order-across-cuts"]
    loose = (SourceFacts(topic="pos"), SourceFacts(topic="cards", keyed=False))
    assert plan_of(replace(facts, topology=replace(facts.topology, sources=loose), live=live, log=log)).findings == ()
