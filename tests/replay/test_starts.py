"""Each kind of start of a replay: resolved exactly, or refused with the numbers. Law 9."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kappa.errors import UsageError
from kappa.offsets.vector import Offsets
from kappa.replay.explain import explain
from kappa.replay.facts import Facts, NamedSavepoint, SourceFacts
from kappa.replay.findings import Finding, Severity
from kappa.replay.plan import ReplayPlan
from kappa.replay.starts import ByDuration, FromSavepoint, ShiftBy, ToLatest, ToOffset, start_time

PlanOf = Callable[..., ReplayPlan]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def pos(first: int, second: int) -> Offsets:
    return Offsets({"pos": {0: first, 1: second}})


def with_log(facts: Facts, **changes: Any) -> Facts:
    return replace(facts, log=replace(facts.log, **changes))


def with_live(facts: Facts, **changes: Any) -> Facts:
    assert facts.live is not None
    return replace(facts, live=replace(facts.live, **changes))


def only(plan: ReplayPlan) -> Finding:
    assert [finding.code for finding in plan.refusals] == [plan.refusals[0].code]
    return plan.refusals[0]


def codes(plan: ReplayPlan) -> list[str]:
    return sorted({finding.code for finding in plan.findings})


def test_the_latest_start_is_the_last_live_commit_without_recomputation(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(facts, start=ToLatest())
    assert plan.start == plan.end == pos(90, 80)
    assert plan.estimate.offsets == 0
    assert codes(plan) == ["partial-history"], "as with every later start of empty tables"


def test_the_latest_start_of_a_first_epoch_is_the_stable_end(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(replace(with_log(facts, stable=pos(95, 80)), live=None), start=ToLatest())
    assert (plan.start, plan.is_refused) == (pos(95, 80), False)


@pytest.mark.parametrize(("low", "is_refused"), [(89, False), (90, False), (91, True)])
def test_the_latest_start_is_refused_if_retention_overtook_it(
    facts: Facts, plan_of: PlanOf, low: int, is_refused: bool
) -> None:
    plan = plan_of(with_log(facts, low=pos(low, 0)), start=ToLatest())
    assert ("start-below-low-watermark" in codes(plan)) is is_refused


def test_a_duration_counts_back_from_the_time_of_the_plan(facts: Facts, plan_of: PlanOf) -> None:
    week = ByDuration(duration=timedelta(days=7))
    assert start_time(week, NOW) == datetime(2026, 2, 22, 12, tzinfo=UTC)
    plan = plan_of(replace(facts, first_records={("pos", 0): 50, ("pos", 1): 0}), start=week)
    assert (plan.start, plan.is_refused) == (pos(50, 0), False)
    assert "(by-duration P7D, which is 2026-02-22 12:00:00+00:00)" in "\n".join(explain(plan))


def test_a_duration_without_a_record_is_refused_with_its_time(facts: Facts, plan_of: PlanOf) -> None:
    late = replace(facts, first_records={("pos", 0): None, ("pos", 1): None})
    finding = only(plan_of(late, start=ByDuration(duration=timedelta(hours=1))))
    assert (finding.code, finding.numbers["at"]) == ("time-without-record", "2026-03-01T11:00:00+00:00")


@pytest.mark.parametrize(
    ("by", "expected"), [(-81, ["shift-outside-log"]), (-80, ["partial-history"]), (0, ["partial-history"])]
)
def test_a_shift_is_counted_from_the_live_epoch_and_never_leaves_the_log(
    facts: Facts, plan_of: PlanOf, by: int, expected: list[str]
) -> None:
    plan = plan_of(facts, start=ShiftBy(by=by))
    assert codes(plan) == expected
    if not plan.is_refused:
        assert plan.start == pos(90 + by, 80 + by)


def test_a_shift_outside_of_the_log_names_the_furthest_possible_one(facts: Facts, plan_of: PlanOf) -> None:
    finding = only(plan_of(with_log(facts, low=pos(20, 30)), start=ShiftBy(by=-60)))
    assert finding.message == "pos[1] at 80 shifted by -60 is 20, but its log holds 30 to 80."
    assert finding.remedy.startswith("Shift by -50 at most")
    assert finding.numbers["least"] == -50


@pytest.mark.parametrize("by", [1, 10**9])
def test_a_shift_ahead_of_the_live_epoch_is_refused(facts: Facts, plan_of: PlanOf, by: int) -> None:
    plan = plan_of(facts, start=ShiftBy(by=by))
    assert {finding.code for finding in plan.refusals} == {"start-after-end"}


def test_a_shift_without_a_live_epoch_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    assert only(plan_of(replace(facts, live=None), start=ShiftBy(by=-1))).code == "shift-without-live-epoch"


def test_an_offset_for_a_partition_wins_over_one_for_its_topic(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(facts, start=ToOffset(offsets=Offsets({"pos": {1: 7}}), topics={"pos": 5}))
    assert (plan.start, codes(plan)) == (pos(5, 7), ["partial-history"])
    assert "rewound to pos[0]=5 pos[1]=7 (to-offset)" in explain(plan)[1]
    named = plan_of(facts, start=ToOffset(topics={"pos": 5}, file="mine.csv"))
    assert "(from-file mine.csv)" in explain(named)[1]


def test_an_offset_for_an_unnamed_partition_is_never_guessed(facts: Facts, plan_of: PlanOf) -> None:
    finding = only(plan_of(facts, start=ToOffset(offsets=Offsets({"pos": {1: 7}}))))
    assert (finding.code, finding.numbers) == ("start-lacks-partition", {"topic": "pos", "partitions": [0]})
    assert "pos:0=<offset>" in finding.remedy


def two_sources(facts: Facts) -> Facts:
    assert facts.topology is not None
    more = {name: getattr(facts.log, name).with_("web", 0, 0) for name in ("low", "high", "stable")}
    topology = replace(facts.topology, sources=(SourceFacts(topic="pos"), SourceFacts(topic="web")))
    return replace(with_log(facts, **more), topology=topology)


def test_each_of_several_sources_has_to_be_named(facts: Facts, plan_of: PlanOf) -> None:
    finding = only(plan_of(two_sources(facts), start=ToOffset(topics={"pos": 5})))
    assert (finding.code, finding.numbers["topic"]) == ("start-lacks-partition", "web")
    plan = plan_of(two_sources(facts), start=ToOffset(topics={"pos": 5, "web": 0}))
    assert (plan.is_refused, plan.start) == (False, pos(5, 5).with_("web", 0, 0))


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (ToOffset(offsets=Offsets({"pos": {2: 7}}), topics={"pos": 5}), "pos[2]=7"),
        (ToOffset(offsets=Offsets({"pso": {0: 7}}), topics={"pos": 5}), "pso[0]=7"),
        (ToOffset(topics={"pos": 5, "pso": 7}), "pso=7"),
    ],
)
def test_a_topic_or_partition_that_is_not_read_is_refused(
    facts: Facts, plan_of: PlanOf, start: ToOffset, named: str
) -> None:
    finding = only(plan_of(facts, start=start))
    assert (finding.code, finding.numbers["named"]) == ("start-names-unknown", named)


@pytest.mark.parametrize(("first", "is_refused"), [(29, True), (30, False), (31, False)])
def test_an_offset_below_the_low_watermark_is_refused(
    facts: Facts, plan_of: PlanOf, first: int, is_refused: bool
) -> None:
    plan = plan_of(with_log(facts, low=pos(30, 0)), start=ToOffset(topics={"pos": first}))
    assert [finding.code for finding in plan.refusals] == (["start-below-low-watermark"] if is_refused else [])
    assert plan.start["pos", 0] == first, "the plan shows what was asked, not what is near"


@pytest.mark.parametrize(("first", "is_refused"), [(89, False), (90, False), (91, True)])
def test_an_offset_ahead_of_the_live_epoch_is_refused(
    facts: Facts, plan_of: PlanOf, first: int, is_refused: bool
) -> None:
    plan = plan_of(facts, start=ToOffset(offsets=pos(first, 80)))
    assert [finding.code for finding in plan.refusals] == (["start-after-end"] if is_refused else [])


@pytest.mark.parametrize(
    ("first", "expected"), [(94, []), (95, []), (96, "start-above-stable-offset"), (101, "start-above-high-watermark")]
)
def test_an_offset_after_the_readable_end_is_refused(
    facts: Facts, plan_of: PlanOf, first: int, expected: str | list[str]
) -> None:
    open_end = replace(with_log(facts, stable=pos(95, 80)), live=None)
    plan = plan_of(open_end, start=ToOffset(offsets=pos(first, 80)))
    refused = [finding.code for finding in plan.refusals]
    assert refused == ([expected, "start-after-end"] if expected else [])


def test_a_named_savepoint_is_its_commit(facts: Facts, plan_of: PlanOf) -> None:
    named = replace(facts, named_savepoints={"sale": NamedSavepoint(name="sale", epoch=3, seq=5)})
    plan = plan_of(named, start=FromSavepoint(name="sale"))
    assert (plan.seed_epoch, plan.seed_seq, plan.start, plan.findings) == (3, 5, pos(40, 30), ())
    assert "(from-savepoint sale)" in explain(plan)[1]


def test_an_error_about_an_unknown_savepoint_name_suggests_the_nearest(facts: Facts, plan_of: PlanOf) -> None:
    named = replace(facts, named_savepoints={"sale": NamedSavepoint(name="sale", epoch=3, seq=5)})
    finding = only(plan_of(named, start=FromSavepoint(name="sales")))
    assert (finding.code, finding.numbers["known"]) == ("unknown-savepoint-name", ["sale"])
    assert "Did you mean 'sale'?" in finding.remedy


def test_a_savepoint_of_a_retired_epoch_is_refused_with_the_reason(facts: Facts, plan_of: PlanOf) -> None:
    named = replace(facts, named_savepoints={"sale": NamedSavepoint(name="sale", epoch=2, seq=5)})
    finding = only(plan_of(named, start=FromSavepoint(name="sale")))
    assert finding.code == "savepoint-of-other-epoch"
    assert finding.severity is Severity.REFUSE
    assert "is seq 5 of epoch 2, and epoch 3 is live" in finding.message


def test_a_named_savepoint_whose_commit_is_gone_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    named = replace(facts, named_savepoints={"sale": NamedSavepoint(name="sale", epoch=3, seq=6)})
    finding = only(plan_of(named, start=FromSavepoint(name="sale")))
    assert (finding.code, finding.numbers["kept"]) == ("unknown-savepoint", [5, 9])
    assert "at seq 6" in finding.message


@pytest.mark.parametrize(
    "start",
    [ToLatest(), ByDuration(duration=timedelta(days=7)), ShiftBy(by=-1), ToOffset(topics={"pos": 5}, file="f.csv")],
)
def test_a_plan_of_any_start_survives_json(facts: Facts, plan_of: PlanOf, start: Any) -> None:
    plan = plan_of(replace(facts, first_records={("pos", 0): 50, ("pos", 1): 0}), start=start)
    assert ReplayPlan.from_json(plan.to_json()) == plan


def test_a_duration_from_before_the_first_year_is_refused() -> None:
    with pytest.raises(UsageError, match="P20000000D begins before the year 1"):
        start_time(ByDuration(duration=timedelta(days=20_000_000)), NOW)
