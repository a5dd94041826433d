"""Findings about the versioned topics of a plan's epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.names import versioned_topic
from kappa.replay.explain import explain
from kappa.replay.facts import Facts, MarkerFacts
from kappa.replay.plan import ReplayPlan
from kappa.replay.rules.topic import colliding, has_same_key
from kappa.replay.starts import FromMarker, FromSavepoint
from kappa.topology.shapes import SentForm, Shape

PlanOf = Callable[..., ReplayPlan]

NAMES = st.text(alphabet="ab._-", min_size=1, max_size=6)


def own(facts: Facts, **changes: object) -> Facts:
    """The same, its topic versioned."""
    assert facts.topology is not None
    return replace(facts, topology=replace(facts.topology, versioned={"loyalty": "notifications"}), **changes)  # type: ignore[arg-type]


@given(st.lists(NAMES), st.lists(NAMES))
def test_names_collide_if_kafka_treats_them_as_equal(names: list[str], present: list[str]) -> None:
    collisions = colliding(names, present)
    assert collisions == sorted(set(collisions))
    for name in present:
        assert (name in collisions) == any(name.replace(".", "_") == other.replace(".", "_") for other in names)


@given(NAMES, st.integers(1, 99_999), st.integers(1, 99_999))
def test_each_epoch_has_another_topic(name: str, one: int, other: int) -> None:
    assert (versioned_topic(name, one) == versioned_topic(name, other)) == (one == other)


def test_a_plan_says_which_topics_it_sends_to(facts: Facts, plan_of: PlanOf) -> None:
    lines = explain(plan_of(own(facts)))
    assert lines[3].endswith("; history is sent to loyalty.e0004")
    assert lines[4].endswith("from seq 9 on; history is sent to loyalty.e0004")
    first = explain(plan_of(own(facts, live=None)))
    assert first[3].endswith("records to loyalty.e0004 are sent from there on")
    copied = explain(plan_of(own(facts), start=FromSavepoint(seq=5)))
    assert copied[2].endswith("as of seq 5; the rows that loyalty.e0004 is made of are sent once")


def test_held_topics_beside_a_versioned_one_are_named(facts: Facts, plan_of: PlanOf) -> None:
    versioned = own(facts)
    assert versioned.topology is not None
    both = replace(versioned, topology=replace(versioned.topology, topics=("loyalty", "alerts")))
    assert explain(plan_of(both))[3].endswith("; history is sent to loyalty.e0004, nothing to alerts (hold)")


def test_a_plan_without_versioned_topics_keeps_its_former_content(facts: Facts, plan_of: PlanOf) -> None:
    assert "versioned" not in plan_of(facts).as_dict()
    plan = plan_of(own(facts))
    assert ReplayPlan.from_json(plan.to_json()) == plan
    assert plan.versioned == ("loyalty",)


def test_an_existing_topic_with_a_colliding_name_refuses_the_plan(facts: Facts, plan_of: PlanOf) -> None:
    (finding,) = plan_of(own(facts, colliding_topics=("loyalty_e0004",))).refusals
    assert finding.code == "versioned-topic-taken"
    assert "would send to loyalty.e0004" in finding.message
    assert "loyalty_e0004 exists" in finding.message


def test_a_changelog_cannot_restore_the_history_of_an_append_output(
    facts: Facts, marker: MarkerFacts, plan_of: PlanOf
) -> None:
    lost = replace(own(facts), live=None, markers=(marker,))
    (finding,) = [f for f in plan_of(lost, start=FromMarker()).warnings if f.code == "versioned-history-partial"]
    assert finding.message.endswith(
        "loyalty.e0004 will begin with what is computed from its marker on, without earlier records."
    )
    assert "earlier ones are in loyalty.e0003" in finding.remedy
    assert lost.topology is not None
    table = replace(lost, topology=replace(lost.topology, versioned={"loyalty": "rewards"}))
    assert not [f for f in plan_of(table, start=FromMarker()).warnings if f.code == "versioned-history-partial"]


def reconciled(facts: Facts, **live: object) -> Facts:
    """The same with a topic reconciled with its table, by the live epoch too unless stated otherwise."""
    assert facts.topology is not None
    assert facts.live is not None
    shapes = facts.topology.shapes
    was = {"topics": ("loyalty",), "reconciled": {"loyalty": "rewards"}, "shapes": shapes, **live}
    topology = replace(facts.topology, reconciled={"loyalty": "rewards"})
    return replace(facts, topology=topology, live=replace(facts.live, **was))  # type: ignore[arg-type]


def everything(plan: ReplayPlan) -> list[str]:
    return [str(finding) for finding in plan.warnings if finding.code == "reconcile-sends-everything"]


def test_a_plan_says_which_records_its_cutover_sends(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(reconciled(facts))
    assert everything(plan) == []
    assert explain(plan)[3].endswith("nothing is sent (hold)")
    assert explain(plan)[-1].startswith(
        "At the cutover loyalty gets the differences of rewards from the previous epoch"
    )
    assert ReplayPlan.from_json(plan.to_json()) == plan
    assert "reconciled" not in plan_of(facts).as_dict()


def test_a_plan_says_why_every_row_is_sent_if_nothing_can_be_compared(facts: Facts, plan_of: PlanOf) -> None:
    other = Shape(columns={"shop": "STRING", "card": "STRING"}, required=("shop",), key=("shop",))
    (no_table,) = everything(plan_of(reconciled(facts, shapes={})))
    assert "live epoch 3 has no table 'rewards'" in no_table
    (keyed,) = everything(plan_of(reconciled(facts, shapes={"tables/rewards": other})))
    assert "has another key for it, shop STRING" in keyed
    assert "stay in it. Give the topic another name" in keyed
    (held,) = everything(plan_of(reconciled(facts, reconciled={})))
    assert "does not reconcile it with that table" in held
    assert "Keys that the table lacks get a null value. No action needed if only this topology sends" in held
    unsent = reconciled(facts, topics=(), reconciled={})
    (earlier,) = everything(plan_of(replace(unsent, log=replace(unsent.log, outputs={"loyalty": {}}))))
    assert "Keys that the table lacks get a null value" in earlier and "the topic is new" not in earlier
    (new,) = everything(plan_of(unsent))
    assert new.endswith("No action needed: the topic is new.")
    assert everything(plan_of(replace(reconciled(facts), live=None))) == []


REWARDS = ("card", "points", "tier")


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        (("json", REWARDS), ("json", REWARDS), ""),
        (("json", ("card",)), ("json", ("card", "tier")), "sends columns ['card'] of it"),
        (("json", ("card", "tier")), ("json", ("card",)), "sends columns ['card', 'tier'] of it"),
        (("json", ("card", "tier")), ("json", ("tier", "card")), ""),
        (("json", REWARDS), ("avro", REWARDS), "sends it as json"),
        # A column that only one of the tables has differs, or does not, in the rows.
        (("json", ("card", "gone")), ("json", ("card",)), ""),
    ],
)
def test_every_row_is_sent_where_its_values_get_another_form(
    facts: Facts, plan_of: PlanOf, was: tuple[str, tuple[str, ...]], now: tuple[str, tuple[str, ...]], why: str
) -> None:
    form, earlier_form = (SentForm(format=one[0], columns=one[1]) for one in (now, was))
    world = reconciled(facts, sent_forms={"loyalty": earlier_form})
    assert world.topology is not None
    plan = plan_of(replace(world, topology=replace(world.topology, sent_forms={"loyalty": form})))
    assert plan.sent_forms == {"loyalty": form} and ReplayPlan.from_json(plan.to_json()) == plan
    findings = everything(plan)
    assert len(findings) == bool(why) and all(f"live epoch 3 {why}." in finding for finding in findings)


@pytest.mark.parametrize(
    ("was", "now", "is_sent"),
    [
        ("BIGINT", "STRING", True),
        ("BOOLEAN", "STRING", True),
        ("DECIMAL(12, 2)", "STRING", True),
        ("TIMESTAMP", "STRING", True),
        ("BINARY", "STRING", True),
        ("BIGINT", "DOUBLE", True),
        ("FLOAT", "DOUBLE", True),
        ("ARRAY<INT>", "ARRAY<STRING>", True),
        ("STRUCT<x: INT>", "STRUCT<x: INT, y: INT>", True),
        ("INT", "BIGINT", False),
        ("BIGINT", "DECIMAL(20, 2)", False),
        ("DECIMAL(38, 18)", "DECIMAL(38, 6)", False),
    ],
)
@pytest.mark.parametrize("is_known", [True, False], ids=["form on record", "form not on record"])
def test_every_row_is_sent_where_equal_values_of_a_new_type_are_other_records(
    facts: Facts, plan_of: PlanOf, was: str, now: str, is_sent: bool, is_known: bool
) -> None:
    form = SentForm(format="json", columns=("card", "v"))
    before, after = (
        {"tables/rewards": Shape(columns={"card": "STRING", "v": kind}, required=("card",), key=("card",))}
        for kind in (was, now)
    )
    world = reconciled(facts, sent_forms={"loyalty": form} if is_known else {}, shapes=before)
    assert world.topology is not None
    topology = replace(world.topology, sent_forms={"loyalty": form}, shapes={**world.topology.shapes, **after})
    findings = everything(plan_of(replace(world, topology=topology)))
    assert len(findings) == is_sent and all(f"live epoch 3 sends v as {was}." in finding for finding in findings)


def test_keys_are_the_same_by_name_and_type() -> None:
    def shape(kind: str = "STRING", key: tuple[str, ...] = ("id",)) -> Shape:
        return Shape(columns={"id": kind, "n": "INT"}, required=key, key=key)

    assert has_same_key(shape(), shape())
    assert not has_same_key(shape(), shape("BIGINT"))
    assert not has_same_key(shape(), shape(key=("id", "n")))
    assert not has_same_key(shape(), None)
