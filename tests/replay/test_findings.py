"""Law 9: a plan never clamps. Each finding, at the boundary where it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kappa.offsets.vector import Offsets
from kappa.replay.facts import ActiveFacts, Facts, LiveFacts, LogFacts, MarkerFacts, SourceFacts
from kappa.replay.findings import Finding, Severity
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import Seed
from kappa.replay.rules import log as log_rules
from kappa.replay.rules.step import Cause, Suspect, step_findings
from kappa.replay.stages import Stage
from kappa.replay.starts import FromMarker, FromSavepoint, ToDatetime

AT = datetime(2026, 2, 1, tzinfo=UTC)
PlanOf = Callable[..., ReplayPlan]


def pos(first: int, second: int) -> Offsets:
    return Offsets({"pos": {0: first, 1: second}})


def with_log(facts: Facts, **changes: Any) -> Facts:
    return replace(facts, log=replace(facts.log, **changes))


def with_live(facts: Facts, **changes: Any) -> Facts:
    assert facts.live is not None
    return replace(facts, live=replace(facts.live, **changes))


def only(plan: ReplayPlan) -> Finding:
    assert [finding.code for finding in plan.findings] == [plan.findings[0].code]
    return plan.findings[0]


def codes(plan: ReplayPlan) -> list[str]:
    return sorted({finding.code for finding in plan.findings})


def test_an_ordinary_replay_has_no_findings(facts: Facts, plan_of: PlanOf) -> None:
    assert plan_of(facts).findings == ()


def test_an_error_about_an_unknown_topology_suggests_the_nearest(facts: Facts, plan_of: PlanOf) -> None:
    finding = only(plan_of(replace(facts, topology=None), topology="retail.loyality"))
    assert finding.code == "unknown-topology"
    assert "Did you mean 'retail.loyalty'?" in finding.remedy


def test_code_that_fails_to_import_is_refused_with_its_error(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.topology is not None
    broken = replace(facts.topology, error="NameError: name 'SCHEMA' is not defined", sources=())
    finding = only(plan_of(replace(facts, topology=broken)))
    assert finding.code == "code-does-not-import"
    assert "SCHEMA" in finding.message


def test_a_second_replay_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    finding = only(plan_of(replace(facts, active=ActiveFacts(epoch=4, stage=Stage.REPLAYED, plan="ab12"))))
    assert (finding.code, finding.numbers) == (
        "replay-already-active",
        {"epoch": 4, "stage": "REPLAYED", "plan": "ab12"},
    )


def test_a_topic_that_does_not_exist_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    assert only(plan_of(with_log(facts, high=Offsets()))).code == "unknown-topic"


def test_a_recreated_topic_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    finding = only(plan_of(with_log(facts, topic_ids={"pos": "id-2"})))
    assert finding.code == "recreated-topic"
    assert finding.numbers == {"topic": "pos", "recorded": "id-1", "found": "id-2"}


def with_third_partition(facts: Facts) -> Facts:
    more = {name: getattr(facts.log, name).with_("pos", 2, 0) for name in ("low", "high", "stable")}
    return with_log(facts, **more)


def test_a_changed_partition_count_of_a_keyed_source_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    finding = only(plan_of(with_third_partition(facts)))
    assert (finding.code, finding.numbers["before"], finding.numbers["now"]) == ("partition-count-changed", 2, 3)


def test_a_changed_partition_count_can_be_allowed(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(with_third_partition(facts), allow=frozenset({"partition-count-changed"}))
    assert only(plan).severity is Severity.WARN
    assert not plan.is_refused
    assert plan.start["pos", 2] == plan.end["pos", 2] == 0


def test_a_source_without_keys_may_gain_partitions(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.topology is not None
    loose = replace(facts.topology, sources=(SourceFacts(topic="pos", keyed=False),))
    assert plan_of(replace(with_third_partition(facts), topology=loose)).findings == ()


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_source_is_refused_unless_allowed(facts: Facts, plan_of: PlanOf, policy: str) -> None:
    compacted = with_log(facts, cleanup={"pos": policy})
    assert only(plan_of(compacted)).code == "compacted-source"
    assert not plan_of(compacted, allow=frozenset({"compacted-source"})).is_refused


@pytest.mark.parametrize(("stored", "is_refused"), [(99, False), (100, False), (101, True)])
def test_a_live_vector_beyond_the_log_is_refused(facts: Facts, plan_of: PlanOf, stored: int, is_refused: bool) -> None:
    plan = plan_of(with_live(facts, position=pos(stored, 80)))
    assert codes(plan) == (["stored-vector-beyond-end"] if is_refused else [])


def test_a_live_vector_with_a_vanished_partition_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    one = {name: Offsets({"pos": {0: getattr(facts.log, name)["pos", 0]}}) for name in ("low", "high", "stable")}
    plan = plan_of(with_log(facts, **one))
    assert {"partition-count-changed", "stored-vector-beyond-end"} <= set(codes(plan))


@pytest.mark.parametrize(("low", "is_refused"), [(899, False), (900, False), (901, True)])
def test_history_removed_by_retention_is_refused(facts: Facts, plan_of: PlanOf, low: int, is_refused: bool) -> None:
    high = pos(2000, 80)
    later = with_log(with_live(facts, origin=pos(900, 0), position=high), low=pos(low, 0), high=high, stable=high)
    assert plan_of(later).is_refused is is_refused


def test_a_start_below_the_low_watermark_is_refused_with_numbers_and_remedy(facts: Facts, plan_of: PlanOf) -> None:
    high = pos(2000, 80)
    later = with_log(with_live(facts, origin=pos(900, 0), position=high), low=pos(1200, 0), high=high, stable=high)
    plan = plan_of(later)
    (finding,) = plan.refusals
    assert finding.message == (
        "Source pos[0] starts at offset 1200, the plan begins at 900: retention removed 300 offsets."
    )
    assert "--allow partial-history" in finding.remedy
    assert plan.start["pos", 0] == 900, "the plan shows what was asked, not what is near"
    allowed = plan_of(later, allow=frozenset({"partial-history"}))
    assert (allowed.is_refused, allowed.start["pos", 0], codes(allowed)) == (False, 1200, ["partial-history"])


def test_a_partition_that_appeared_later_and_lost_records_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    more = with_third_partition(facts)
    lost = with_log(more, low=pos(0, 0).with_("pos", 2, 4), high=more.log.high.with_("pos", 2, 9))
    plan = plan_of(lost, allow=frozenset({"partition-count-changed"}))
    assert "start-below-low-watermark" in [finding.code for finding in plan.refusals]


@pytest.mark.parametrize(("low", "is_refused"), [(39, False), (40, False), (41, True)])
def test_a_savepoint_below_the_low_watermark_is_refused(
    facts: Facts, plan_of: PlanOf, low: int, is_refused: bool
) -> None:
    plan = plan_of(with_log(facts, low=pos(low, 0)), start=FromSavepoint(seq=5))
    assert codes(plan) == (["start-below-low-watermark"] if is_refused else [])


@pytest.mark.parametrize(("end", "expected"), [(99, []), (100, []), (101, ["end-above-high-watermark"])])
def test_an_end_above_the_high_watermark_is_refused(
    facts: Facts, plan_of: PlanOf, end: int, expected: list[str]
) -> None:
    assert codes(plan_of(replace(facts, live=None), end=pos(end, 80))) == expected


def test_an_end_in_a_topic_that_is_not_a_source_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(replace(facts, live=None), end=Offsets({"pso": {0: 5}}))
    assert codes(plan) == ["end-above-high-watermark"]


@pytest.mark.parametrize(("end", "is_refused"), [(94, False), (95, False), (96, True)])
def test_an_end_after_an_open_transaction_is_refused(facts: Facts, plan_of: PlanOf, end: int, is_refused: bool) -> None:
    plan = plan_of(replace(with_log(facts, stable=pos(95, 80)), live=None), end=pos(end, 80))
    assert [finding.code for finding in plan.refusals] == (["end-above-stable-offset"] if is_refused else [])


@pytest.mark.parametrize(("end", "expected"), [(89, []), (90, []), (91, ["end-ahead-of-live"])])
def test_an_end_ahead_of_the_live_epoch_is_refused(
    facts: Facts, plan_of: PlanOf, end: int, expected: list[str]
) -> None:
    assert codes(plan_of(facts, end=pos(end, 80))) == expected


@pytest.mark.parametrize(("first", "is_refused"), [(89, False), (90, False), (91, True)])
def test_a_start_after_the_end_is_refused(facts: Facts, plan_of: PlanOf, first: int, is_refused: bool) -> None:
    late = replace(facts, first_records={("pos", 0): first, ("pos", 1): 80})
    assert plan_of(late, start=ToDatetime(at=AT)).is_refused is is_refused
    assert ("start-after-end" in codes(plan_of(late, start=ToDatetime(at=AT)))) is is_refused


def test_a_time_without_a_record_is_refused_and_not_moved_to_the_end(facts: Facts, plan_of: PlanOf) -> None:
    late = replace(facts, first_records={("pos", 0): None, ("pos", 1): None})
    plan = plan_of(late, start=ToDatetime(at=datetime(2031, 1, 1, tzinfo=UTC)))
    finding = only(plan)
    assert finding.code == "time-without-record"
    assert finding.message == (
        "No record has a time of 2031-01-01T00:00:00+00:00 or later, the last one is of 2026-02-28T00:00:00+00:00: "
        "pos[0] ends at 100, pos[1] ends at 80."
    )
    assert (plan.is_refused, plan.start, plan.stages) == (True, Offsets(), ())


def test_a_time_in_an_empty_log_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    empty = with_log(replace(facts, live=None), high=pos(0, 0), stable=pos(0, 0), last_times={})
    plan = plan_of(replace(empty, first_records={}), start=ToDatetime(at=AT))
    assert only(plan).code == "time-without-record"


def test_a_quiet_partition_begins_at_its_end_and_is_reported(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(replace(facts, first_records={("pos", 0): 50, ("pos", 1): None}), start=ToDatetime(at=AT))
    assert (plan.is_refused, plan.start, codes(plan)) == (False, pos(50, 80), ["partial-history", "quiet-partitions"])
    assert "pos[1] at 80" in plan.findings[0].message


@pytest.mark.parametrize(("first", "is_refused"), [(30, True), (31, False)])
def test_a_time_in_the_range_removed_by_retention_is_refused(
    facts: Facts, plan_of: PlanOf, first: int, is_refused: bool
) -> None:
    cut_off = replace(with_log(facts, low=pos(30, 0)), first_records={("pos", 0): first, ("pos", 1): 0})
    plan = plan_of(cut_off, start=ToDatetime(at=AT))
    assert [finding.code for finding in plan.refusals] == (["time-below-low-watermark"] if is_refused else [])
    assert not plan_of(cut_off, start=ToDatetime(at=AT), allow=frozenset({"partial-history"})).is_refused


@pytest.mark.parametrize("start", [FromSavepoint(seq=6), FromSavepoint(at=datetime(2026, 2, 19, tzinfo=UTC))])
def test_an_unknown_savepoint_is_refused_with_the_existing_ones(
    facts: Facts, plan_of: PlanOf, start: FromSavepoint
) -> None:
    finding = only(plan_of(facts, start=start))
    assert (finding.code, finding.numbers["kept"]) == ("unknown-savepoint", [5, 9])


def test_a_savepoint_without_a_live_epoch_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    assert only(plan_of(replace(facts, live=None), start=FromSavepoint(seq=5))).code == "unknown-savepoint"


def test_a_savepoint_without_a_needed_table_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.topology is not None
    shapes = facts.topology.shapes | {"tables/visits": facts.topology.shapes["tables/rewards"]}
    wider = replace(facts, topology=replace(facts.topology, shapes=shapes))
    finding = only(plan_of(wider, start=FromSavepoint(seq=5)))
    assert (finding.code, finding.numbers["table"]) == ("seed-lacks-table", "visits")


def test_a_savepoint_beyond_the_log_is_refused(facts: Facts, plan_of: PlanOf) -> None:
    shorter = with_live(with_log(facts, high=pos(39, 80), stable=pos(39, 80)), position=pos(39, 80))
    assert "stored-vector-beyond-end" in codes(plan_of(shorter, start=FromSavepoint(seq=5)))


@pytest.mark.parametrize("epoch", [7, None])
def test_a_changelog_of_an_unknown_epoch_is_refused(facts: Facts, plan_of: PlanOf, epoch: int | None) -> None:
    finding = only(plan_of(facts, start=FromMarker(epoch=epoch)))
    assert (finding.code, finding.numbers) == ("unknown-epoch", {"epoch": epoch, "known": []})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"position": pos(101, 80)}, "stored-vector-beyond-end"),
        ({"topic_ids": {"pos": "id-0"}}, "recreated-topic"),
        ({"shapes": {}}, "seed-lacks-table"),
    ],
)
def test_an_unsuitable_marker_is_refused(
    facts: Facts, marker: MarkerFacts, plan_of: PlanOf, change: dict[str, Any], code: str
) -> None:
    plan = plan_of(replace(facts, live=None, markers=(replace(marker, **change),)), start=FromMarker())
    assert code in [finding.code for finding in plan.refusals]


def test_a_marker_below_the_low_watermark_is_refused(facts: Facts, marker: MarkerFacts, plan_of: PlanOf) -> None:
    cut_off = with_log(replace(facts, live=None, markers=(marker,)), low=pos(91, 0))
    assert [finding.code for finding in plan_of(cut_off, start=FromMarker()).refusals] == ["start-below-low-watermark"]


def test_a_rebuild_continues_from_the_epoch_that_sent_last(facts: Facts, marker: MarkerFacts, plan_of: PlanOf) -> None:
    behind = replace(marker, epoch=4, position=pos(89, 80))
    held = replace(marker, epoch=5, sends="held")
    lost = replace(facts, live=None, markers=(held, behind, marker))
    assert plan_of(lost, start=FromMarker()).seed_epoch == 3
    assert not plan_of(lost, start=FromMarker(epoch=5)).is_refused, "a candidate that was as far sends nothing twice"
    (finding,) = plan_of(lost, start=FromMarker(epoch=4)).refusals
    assert (finding.code, finding.numbers["last_epoch"]) == ("marker-behind-last-sender", 3)
    assert not plan_of(replace(lost, live=facts.live), start=FromMarker(epoch=4)).is_refused, (
        "it is held beside a live one"
    )


def test_a_changelog_still_being_written_is_refused(facts: Facts, marker: MarkerFacts, plan_of: PlanOf) -> None:
    growing = replace(facts, markers=(replace(marker, is_growing=True),))
    (finding,) = plan_of(growing, start=FromMarker()).refusals
    assert (finding.code, finding.numbers) == ("changelog-goes-on", {"epoch": marker.epoch, "seq": marker.seq})
    assert "kappa stop" in str(finding) and "savepoint" in str(finding)


def test_a_rebuild_warns_that_append_outputs_are_not_restored(
    facts: Facts, marker: MarkerFacts, plan_of: PlanOf
) -> None:
    finding = only(plan_of(replace(facts, live=None, markers=(marker,)), start=FromMarker()))
    assert (finding.code, finding.severity, finding.numbers) == (
        "append-outputs-lost",
        Severity.WARN,
        {"outputs": ["notifications"]},
    )


@pytest.mark.parametrize(("first", "expected"), [(0, []), (1, ["partial-history"])])
def test_a_late_start_with_empty_tables_is_a_warning(
    facts: Facts, plan_of: PlanOf, first: int, expected: list[str]
) -> None:
    plan = plan_of(replace(facts, first_records={("pos", 0): first, ("pos", 1): 0}), start=ToDatetime(at=AT))
    assert (plan.is_refused, codes(plan)) == (False, expected)


def test_a_savepoint_is_a_partial_history_only_without_its_tables(facts: Facts, plan_of: PlanOf) -> None:
    assert codes(plan_of(facts, start=FromSavepoint(seq=5))) == []
    assert codes(plan_of(facts, start=FromSavepoint(seq=5), seed=Seed.EMPTY)) == ["partial-history"]


@pytest.mark.parametrize(("stable", "expected"), [(100, []), (99, ["open-transactions"])])
def test_an_open_transaction_is_a_warning(facts: Facts, plan_of: PlanOf, stable: int, expected: list[str]) -> None:
    plan = plan_of(with_log(facts, stable=pos(stable, 80)))
    assert (plan.is_refused, codes(plan)) == (False, expected)


def test_all_findings_are_reported_at_once(facts: Facts, plan_of: PlanOf) -> None:
    many = with_log(facts, topic_ids={"pos": "id-2"}, cleanup={"pos": "compact"}, stable=pos(99, 80))
    many = replace(many, active=ActiveFacts(epoch=4, stage=Stage.PLANNED, plan="ab12"))
    expected = ["compacted-source", "open-transactions", "recreated-topic", "replay-already-active"]
    assert codes(plan_of(many)) == expected


def test_other_topics_of_the_broker_do_not_matter(facts: Facts, plan_of: PlanOf) -> None:
    other = Offsets({"other": {0: 7}})
    log = LogFacts(
        low=facts.log.low.merge(other),
        high=facts.log.high.merge(other),
        stable=facts.log.stable,
        topic_ids={**facts.log.topic_ids, "other": "x"},
        cleanup={"other": "compact"},
    )
    assert plan_of(replace(facts, log=log)).findings == ()


def test_a_source_dropped_by_the_new_version_does_not_matter(facts: Facts, plan_of: PlanOf) -> None:
    assert isinstance(facts.live, LiveFacts)
    dropped = with_live(facts, position=facts.live.position.with_("old", 0, 5), topic_ids={"pos": "id-1", "old": "o"})
    plan = plan_of(dropped)
    assert (plan.findings, plan.end) == ((), facts.live.position)


def test_suspects_in_the_step_are_part_of_the_plan_and_its_id(facts: Facts, plan_of: PlanOf) -> None:
    suspect = Suspect(effect="notifications", cause=Cause.RANDOM, expression="uuid()", column="id")
    plan = plan_of(replace(facts, step=tuple(step_findings([suspect]))))
    assert (plan.is_refused, codes(plan)) == (False, ["draws-random"])
    assert plan.id != plan_of(facts).id
    assert ReplayPlan.from_json(plan.to_json()) == plan


def test_computing_twice_needs_a_live_epoch(facts: Facts, plan_of: PlanOf) -> None:
    assert codes(plan_of(facts, determinism=True)) == []
    assert codes(plan_of(replace(facts, live=None), determinism=True)) == ["determinism-without-live-epoch"]


@pytest.mark.parametrize(
    ("value", "is_told"),
    [
        (1_772_323_200, True),  # the record's own second
        (1_772_323_200 - 365 * 86_400, True),
        (1_772_323_200 - 400 * 86_400, False),
        (1_772_323_200_000, False),
        (0, False),
        (-1_772_323_200, False),
    ],
)
def test_a_time_in_seconds_is_recognised_by_the_time_of_its_record(value: int, is_told: bool) -> None:
    assert log_rules.is_in_seconds(value, 1_772_323_200_000) == is_told
