"""An explanation names exactly the stages that will run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kappa.replay.explain import explain
from kappa.replay.facts import Facts, MarkerFacts
from kappa.replay.plan import ReplayPlan
from kappa.replay.stages import Stage
from kappa.replay.starts import FromMarker, FromSavepoint

PlanOf = Callable[..., ReplayPlan]


def stages_of(lines: list[str]) -> tuple[str, ...]:
    return tuple(word for word in (line.split()[0] for line in lines) if word in Stage.__members__)


def test_an_explanation_says_what_runs_and_how_much(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(replace(facts, records_per_second=34.0, bytes_per_record=530_000.0), slice_records=100)
    assert explain(plan) == [
        f"Plan {plan.id}: retail.loyalty version 2 (code c0ffeec0ffee) into epoch 4, beside live epoch 3 at seq 9",
        "  REWOUND    create epoch 4 and its consumer group, rewound to pos[0]=0 pos[1]=0",
        "  SEEDED     rewards: empty",
        "  REPLAYED   170 offsets of 2 partitions up to pos[0]=90 pos[1]=80, at least 2 slices of at most 100, "
        "about 90.1 MB, about 5 s; nothing is sent (hold)",
        "  CAUGHT_UP  follow the ledger of epoch 3 from seq 9 on; nothing is sent",
        "  VERIFIED   compare rewards, notifications at the same commit as epoch 3; run the checks",
        "Then it follows the live epoch and waits for `kappa cutover retail.loyalty`; "
        "`kappa abort retail.loyalty 4 --execute` removes it instead.",
    ]


def test_the_stages_of_an_explanation_are_those_of_the_plan(facts: Facts, marker: MarkerFacts, plan_of: PlanOf) -> None:
    first = replace(facts, live=None, markers=(marker,))
    for plan in (plan_of(facts), plan_of(facts, start=FromSavepoint(seq=5)), plan_of(first, start=FromMarker())):
        assert stages_of(explain(plan)) == plan.stages


def test_a_first_epoch_goes_live_by_itself(facts: Facts, plan_of: PlanOf) -> None:
    line = explain(plan_of(replace(facts, live=None)))[3]
    assert line.startswith("  CUT_OVER   go live immediately, reading on from pos[0]=0 pos[1]=0 (180 offsets so far)")
    assert line.endswith("records to loyalty are sent from there on")


def test_an_explanation_says_where_seeds_come_from(facts: Facts, marker: MarkerFacts, plan_of: PlanOf) -> None:
    from_marker = plan_of(replace(facts, live=None, markers=(marker,)), start=FromMarker())
    assert "rewards: folded from the changelog of epoch 3 up to its marker 9" in explain(from_marker)[2]
    copied = explain(plan_of(facts, start=FromSavepoint(seq=5)))[2]
    assert copied.endswith("rewards, notifications: copied from epoch 3 as of seq 5")


def test_a_refused_plan_shows_why_and_that_nothing_runs(facts: Facts, plan_of: PlanOf) -> None:
    lines = explain(plan_of(replace(facts, log=replace(facts.log, cleanup={"pos": "compact"}))))
    assert stages_of(lines) == ()
    assert lines[1].startswith("  REFUSED    Source 'pos' has cleanup.policy=compact")
    assert lines[-1] == "Nothing will run."


def test_a_second_run_is_explained_with_the_size_of_its_slices(facts: Facts, plan_of: PlanOf) -> None:
    line = explain(plan_of(facts, determinism=True, slice_records=30))[3]
    assert line.startswith("  REPLAYED   170 offsets")
    assert line.endswith("; nothing is sent (hold); then computed again in slices of at most 20, and compared")
    assert "computed again" not in "\n".join(explain(plan_of(facts, slice_records=30)))
