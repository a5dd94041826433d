"""An estimate follows from earlier replays, and a measurement shows its error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kappa.offsets.coverage import ArchiveFacts
from kappa.offsets.vector import OffsetRange
from kappa.replay.estimates import Estimate, Measured, comparison, size
from kappa.replay.explain import explain
from kappa.replay.facts import Facts
from kappa.replay.plan import ReplayPlan
from kappa.replay.starts import FromSavepoint

PlanOf = Callable[..., ReplayPlan]

RATES = {
    "records_per_second": 34.0,
    "records_per_offset": 0.5,
    "bytes_per_record": 530.0,
    "disk_per_record": 100.0,
    "measured_epoch": 3,
    "measured_records": 85,
    "live_bytes": 7,
}


def test_an_estimate_follows_from_rates(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(replace(facts, **RATES))  # type: ignore[arg-type]
    assert plan.estimate == Estimate(
        offsets=170, records=85, bytes=45_050, seconds=2.5, disk_bytes=8500, measured_epoch=3
    )
    assert ReplayPlan.from_json(plan.to_json()) == plan
    (line,) = [line for line in explain(plan) if line.startswith("  REPLAYED")]
    assert "about 85 records, about 45 KB, about 8.5 KB in the lake, about 2 s at the rate of epoch 3;" in line


def test_an_estimate_includes_the_disk_space_of_a_seed(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(replace(facts, **RATES), start=FromSavepoint(seq=5))  # type: ignore[arg-type]
    assert (plan.estimate.records, plan.estimate.disk_bytes) == (50, 5007)


def test_an_estimate_without_a_measurement_says_so(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(facts)
    assert plan.estimate == Estimate(offsets=170)
    assert "no replay measured yet" in "\n".join(explain(plan))
    assert set(plan.as_dict()["estimate"]) == {"offsets", "bytes", "seconds"}, "an older plan keeps its id"


def test_an_archive_without_holes_counts_a_record_per_offset(facts: Facts, plan_of: PlanOf) -> None:
    whole = (OffsetRange(topic="pos", partition=0, start=0, end=90),)
    half = ArchiveFacts(topic="pos", topic_id="id-1", covered=whole, whole=whole)
    assert plan_of(replace(facts, archives={"pos": half}, records_per_offset=0.5)).estimate.records == 90 + 40
    assert plan_of(replace(facts, archives={"pos": half})).estimate.records is None
    other = replace(half, topic_id="id-2")
    assert plan_of(replace(facts, archives={"pos": other}, records_per_offset=0.5)).estimate.records == 85


@pytest.mark.parametrize(("measured", "is_rough"), [(6, False), (5, False), (4, True), (None, False)])
def test_an_estimate_beyond_twenty_times_the_measurement_is_rough(
    facts: Facts, plan_of: PlanOf, measured: int | None, is_rough: bool
) -> None:
    plan = plan_of(
        replace(facts, records_per_second=34.0, measured_epoch=3, measured_records=measured), start=FromSavepoint(seq=5)
    )
    assert plan.estimate.offsets == 100
    assert plan.estimate.rough is is_rough
    assert (", which was much smaller" in "\n".join(explain(plan))) is is_rough


def test_measured_values_are_shown_beside_the_estimate() -> None:
    estimate = Estimate(offsets=100, records=80, seconds=12.0, disk_bytes=1000)
    measured = Measured(offsets=100, records=80, seconds=15.0, bytes=53_000, disk_bytes=900)
    assert measured.ratios(estimate) == {"records": 1.0, "seconds": 1.25, "disk_bytes": 0.9}
    assert comparison(estimate, measured) == (
        "estimated 80 records, were 80 (+0 %); was 53 KB read, not estimated; estimated 12 s, took 15 s (+25 %); "
        "estimated 1 KB in the lake, was 900 bytes (-10 %)"
    )
    assert Measured.from_dict({**measured.as_dict(), "later": 1}) == measured
    assert comparison(Estimate(offsets=1), replace(measured, bytes=None, disk_bytes=None)) == (
        "were 80 records, not estimated; took 15 s, not estimated"
    )


@pytest.mark.parametrize(("count", "text"), [(999, "999 bytes"), (1000, "1 KB"), (2_500_000, "2.5 MB"), (7e9, "7 GB")])
def test_a_size_is_shown_in_a_suitable_unit(count: float, text: str) -> None:
    assert size(count) == text
