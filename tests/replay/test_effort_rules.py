"""What an estimate is checked against, at each boundary: retention by time and size, room on the disk, tombstones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kappa.replay.facts import Facts
from kappa.replay.findings import Finding, Severity
from kappa.replay.plan import ReplayPlan
from kappa.replay.rules.effort import (
    FOLD_AT_LEAST,
    FOLD_AT_MOST,
    disk_too_small,
    fold_outlasts_tombstones,
    retention_overtakes,
    size_overtakes,
)
from kappa.replay.topic_retention import FoldFacts, RetentionFacts, RetentionProbe

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PlanOf = Callable[..., ReplayPlan]


def retention(due: timedelta, *, share: float = 0.0) -> RetentionFacts:
    """A topic that keeps an hour, whose record may go ``due`` from now; it is gone 15 minutes later."""
    probe = RetentionProbe(partition=0, offset=7, share=share, at=NOW + due - HOUR)
    wait = {"segment": timedelta(minutes=10), "check": timedelta(minutes=5)}
    return RetentionFacts(topic="pos", keeps=HOUR, probes=(probe,), **wait)


def one(findings: list[Finding]) -> tuple[str, Severity]:
    (finding,) = findings
    return finding.code, finding.severity


@pytest.mark.parametrize(
    ("gone_before", "code"),
    [(-1, "retention-close-behind"), (0, "retention-close-behind"), (1, "retention-overtakes-replay")],
)
def test_a_record_that_expires_before_it_is_read_is_refused(gone_before: int, code: str) -> None:
    read = timedelta(seconds=7200)
    removal = read - timedelta(seconds=gone_before)
    facts = retention(removal - timedelta(minutes=15))
    (finding,) = retention_overtakes([facts], 7200.0, 1.0, NOW)
    assert finding.code == code
    assert finding.numbers["due"] == (NOW + removal - timedelta(minutes=15)).isoformat()
    assert finding.numbers["gone"] == (NOW + removal).isoformat()
    assert finding.numbers["read"] == (NOW + read).isoformat()
    assert (finding.numbers["retention_ms"], finding.numbers["offset"]) == (3_600_000, 7)


@pytest.mark.parametrize(("due", "is_close"), [(199, True), (200, False), (201, False)])
def test_a_record_that_may_expire_within_twice_the_estimate_is_a_close_call(due: int, is_close: bool) -> None:
    findings = retention_overtakes([retention(timedelta(seconds=due))], 100.0, 1.0, NOW)
    assert [f.code for f in findings] == (["retention-close-behind"] if is_close else [])


def test_the_first_slice_is_read_with_its_last_record_and_later_ones_later() -> None:
    due = timedelta(seconds=60)
    assert retention_overtakes([retention(due)], 1000.0, 0.01, NOW) == []
    assert one(retention_overtakes([retention(due)], 1000.0, 0.04, NOW))[0] == "retention-close-behind"
    assert one(retention_overtakes([retention(due, share=0.9)], 1000.0, 0.01, NOW))[0] == "retention-close-behind"
    assert one(retention_overtakes([retention(due, share=0.9)], 10_000.0, 0.01, NOW))[0] == "retention-overtakes-replay"


def test_a_plan_without_an_estimate_only_warns_about_due_records() -> None:
    assert retention_overtakes([retention(timedelta(seconds=1))], None, 1.0, NOW) == []
    assert one(retention_overtakes([retention(timedelta())], None, 1.0, NOW)) == (
        "retention-close-behind",
        Severity.WARN,
    )


def test_an_overdue_record_that_still_exists_is_only_a_warning() -> None:
    """Its segment has a later record: the time of its removal is unknown."""
    overdue = retention(-timedelta(minutes=16))
    assert one(retention_overtakes([overdue], 7200.0, 1.0, NOW)) == ("retention-close-behind", Severity.WARN)


def test_the_worst_record_of_each_partition_is_reported() -> None:
    early, late = retention(timedelta(seconds=60)).probes[0], retention(timedelta(seconds=60), share=0.5).probes[0]
    facts = replace(retention(timedelta()), probes=(early, late, replace(early, partition=1)))
    findings = retention_overtakes([facts], 7200.0, 0.01, NOW)
    assert [(f.code, f.numbers["partition"]) for f in findings] == [
        ("retention-overtakes-replay", 0),
        ("retention-close-behind", 1),
    ]


def test_an_endless_replay_is_overtaken_without_a_date_overflow() -> None:
    assert one(retention_overtakes([retention(HOUR)], 1e300, 1.0, NOW))[0] == "retention-overtakes-replay"


def test_records_kept_for_ever_are_never_overtaken() -> None:
    assert retention_overtakes([replace(retention(-HOUR), keeps=None)], 7200.0, 1.0, NOW) == []


@pytest.mark.parametrize(
    ("rate", "code"), [(9.9, "size-close-behind"), (11.0, "size-close-behind"), (11.1, "size-overtakes-replay")]
)
def test_a_partition_that_grows_beyond_its_retention_size_is_refused(rate: float, code: str) -> None:
    facts = RetentionFacts(
        topic="pos", keeps_bytes=1000, segment_bytes=100, bytes_held={0: 900.0}, bytes_per_second={0: rate}
    )
    (finding,) = size_overtakes([facts], 100.0)
    assert (finding.code, finding.numbers["growth"], finding.numbers["held"]) == (code, round(100 * rate), 900)


@pytest.mark.parametrize(("held", "is_close"), [(799, False), (800, False), (801, True)])
def test_a_partition_that_is_nearly_full_is_a_close_call(held: float, is_close: bool) -> None:
    facts = RetentionFacts(topic="pos", keeps_bytes=1000, bytes_held={0: held}, bytes_per_second={0: 1.0})
    assert bool(size_overtakes([facts], 100.0)) is is_close
    assert size_overtakes([facts], None) == []
    assert size_overtakes([replace(facts, bytes_per_second={0: 0.0})], 100.0) == []


@pytest.mark.parametrize(
    ("needed", "code"),
    [(499, None), (500, None), (501, "disk-gets-tight"), (1000, "disk-gets-tight"), (1001, "not-enough-disk")],
)
def test_a_plan_that_exceeds_the_disk_is_refused(needed: int, code: str | None) -> None:
    findings = disk_too_small(needed, 1000, "/lake")
    assert [(f.code, f.numbers) for f in findings] == (
        [] if code is None else [(code, {"needed": needed, "free": 1000})]
    )
    assert disk_too_small(None, 1000, "/lake") == disk_too_small(needed, None, "s3://lake") == []


def fold(offsets: float, rate: float | None = None) -> FoldFacts:
    return FoldFacts(epoch=3, offsets=round(offsets), keeps=timedelta(seconds=60), offsets_per_second=rate)


@pytest.mark.parametrize(("offsets", "is_refused"), [(599, False), (600, False), (601, True)])
def test_a_fold_that_outlasts_tombstones_is_refused(offsets: int, is_refused: bool) -> None:
    findings = fold_outlasts_tombstones(fold(offsets, rate=10.0))
    assert [f.code for f in findings] == (["fold-outlasts-tombstones"] if is_refused else [])
    if is_refused:
        assert findings[0].numbers == {"epoch": 3, "offsets": 601, "seconds": 60.1, "delete_retention_ms": 60_000}


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        (60 * FOLD_AT_LEAST, None),
        (60 * FOLD_AT_LEAST + 1, "fold-may-outlast-tombstones"),
        (60 * FOLD_AT_MOST, "fold-may-outlast-tombstones"),
        (60 * FOLD_AT_MOST + 1, "fold-outlasts-tombstones"),
    ],
)
def test_without_a_measurement_only_hopeless_folds_are_refused(offsets: float, code: str | None) -> None:
    assert [f.code for f in fold_outlasts_tombstones(fold(offsets))] == ([] if code is None else [code])
    assert fold_outlasts_tombstones(None) == []


def slow(facts: Facts, **changes: object) -> Facts:
    """A replay of 170 offsets at ten a second beside a topic whose records are gone in seconds."""
    probe = RetentionProbe(partition=0, offset=0, share=0.0, at=NOW - HOUR + timedelta(seconds=5))
    retention = RetentionFacts(
        topic="pos", keeps=HOUR, probes=(probe,), segment=timedelta(seconds=1), check=timedelta(seconds=1)
    )
    return replace(facts, retention=(retention,), records_per_second=10.0, **changes)  # type: ignore[arg-type]


def test_findings_of_effort_are_in_a_plan_and_may_be_allowed(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(slow(facts))
    assert [f.code for f in plan.refusals] == ["retention-overtakes-replay"]
    assert "kappa archive start pos" in plan.refusals[0].remedy
    allowed = plan_of(slow(facts), allow=frozenset({"retention-overtakes-replay"}))
    assert (allowed.is_refused, [f.code for f in allowed.warnings]) == (False, ["retention-overtakes-replay"])


def test_a_first_epoch_never_ends_and_is_not_checked_against_an_estimate(facts: Facts, plan_of: PlanOf) -> None:
    assert not plan_of(slow(replace(facts, live=None))).is_refused


def test_an_estimate_from_a_much_smaller_replay_refuses_nothing(facts: Facts, plan_of: PlanOf) -> None:
    room = {"disk_per_record": 1000.0, "free_bytes": 100}
    assert [f.code for f in plan_of(replace(facts, **room)).refusals] == ["not-enough-disk"]  # type: ignore[arg-type]
    few, enough = slow(facts, measured_records=8, **room), slow(facts, measured_records=9, **room)
    assert (plan_of(few).estimate.rough, plan_of(few).findings) == (True, ())
    assert not plan_of(enough).estimate.rough
    assert {f.code for f in plan_of(enough).refusals} == {"retention-overtakes-replay", "not-enough-disk"}
