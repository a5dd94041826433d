"""Plans of code that reads a topic which the live epoch does not read: its history begins and ends in the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kappa.offsets.coverage import ArchiveFacts
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay.facts import Facts, LogFacts, SourceFacts
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import Seed
from kappa.replay.starts import FromMarker, FromSavepoint, ShiftBy, Start, ToEarliest, ToLatest, ToOffset

PlanOf = Callable[..., ReplayPlan]


def added(facts: Facts, low: int, stable: int, high: int | None = None) -> Facts:
    """The world with a source ``extra`` that the live epoch does not read, whose log has these ends."""
    assert facts.topology is not None
    log = facts.log
    return replace(
        facts,
        topology=replace(facts.topology, sources=(*facts.topology.sources, SourceFacts(topic="extra"))),
        log=replace(
            log,
            low=log.low.merge(extra(low)),
            stable=log.stable.merge(extra(stable)),
            high=log.high.merge(extra(stable if high is None else high)),
            topic_ids={**log.topic_ids, "extra": "id-2"},
            cleanup={**log.cleanup, "extra": "delete"},
        ),
    )


def renamed(facts: Facts, low: int, stable: int) -> Facts:
    """The world in which ``extra`` is the only source of the code."""
    world = added(facts, low, stable)
    assert world.topology is not None
    return replace(world, topology=replace(world.topology, sources=(SourceFacts(topic="extra"),)))


def extra(offset: int) -> Offsets:
    return Offsets({"extra": {0: offset}})


def both(first: int, second: int, last: int) -> Offsets:
    return Offsets({"pos": {0: first, 1: second}}).merge(extra(last))


@pytest.mark.parametrize("low", [0, 50])
def test_an_added_source_is_read_from_its_first_record_to_its_stable_end(
    facts: Facts, plan_of: PlanOf, low: int
) -> None:
    plan = plan_of(added(facts, low, 100, high=103))
    assert plan.refusals == ()
    assert (plan.start, plan.end, plan.origin) == (both(0, 0, low), both(90, 80, 100), both(0, 0, low))
    assert plan.estimate.offsets == 170 + 100 - low


def test_the_latest_start_of_an_added_source_is_its_stable_end(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(added(facts, 50, 100), start=ToLatest())
    assert (plan.refusals, plan.start, plan.end) == ((), both(90, 80, 100), both(90, 80, 100))


@pytest.mark.parametrize(
    ("start", "begin"),
    [(ToEarliest(), 50), (ToLatest(), 100), (ShiftBy(by=-10), 90), (ToOffset.from_texts(["extra=60"]), 60)],
)
def test_a_source_is_renamed_onto_a_log_that_does_not_begin_at_0(
    facts: Facts, plan_of: PlanOf, start: Start, begin: int
) -> None:
    plan = plan_of(renamed(facts, 50, 100), start=start)
    assert (plan.refusals, plan.start, plan.end) == ((), extra(begin), extra(100))


@pytest.mark.parametrize(
    ("start", "seed"), [(FromSavepoint(seq=5), Seed.FROM_SAVEPOINT), (FromMarker(), Seed.FROM_CHANGELOG)]
)
def test_an_added_source_of_seeded_tables_begins_with_its_first_record(
    facts: Facts, plan_of: PlanOf, marker: object, start: Start, seed: Seed
) -> None:
    world = replace(added(facts, 50, 100), markers=(marker,))
    plan = plan_of(world, start=start, seed=seed)
    assert plan.refusals == ()
    assert plan.start.only(["extra"]) == plan.origin.only(["extra"]) == extra(50)
    assert plan.end == both(90, 80, 100)


@pytest.mark.parametrize(("end", "codes"), [(100, []), (101, ["end-above-high-watermark"])])
def test_an_end_in_an_added_source_is_bounded_by_its_log(
    facts: Facts, plan_of: PlanOf, end: int, codes: list[str]
) -> None:
    plan = plan_of(added(facts, 0, 100), end=both(90, 80, end))
    assert [finding.code for finding in plan.refusals] == codes


def test_an_added_source_that_an_end_does_not_name_is_read_to_its_stable_end(facts: Facts, plan_of: PlanOf) -> None:
    plan = plan_of(added(facts, 50, 100), end=Offsets({"pos": {0: 10, 1: 10}}))
    assert (plan.refusals, plan.end) == ((), both(10, 10, 100))


def test_an_added_source_is_read_from_its_archive(facts: Facts, plan_of: PlanOf) -> None:
    held = OffsetRange(topic="extra", partition=0, start=20, end=70)
    archive = ArchiveFacts(topic="extra", topic_id="id-2", covered=(held,))
    plan = plan_of(replace(added(facts, 50, 100), archives={"extra": archive}), archive=True)
    assert (plan.start.only(["extra"]), plan.archived) == (extra(20), (held,))


def test_a_partition_that_was_added_to_a_source_of_both_still_ends_with_the_live_epoch(
    facts: Facts, plan_of: PlanOf
) -> None:
    more = Offsets({"pos": {2: 40}})
    log: LogFacts = facts.log
    log = replace(
        log, low=log.low.merge(Offsets({"pos": {2: 0}})), high=log.high.merge(more), stable=log.stable.merge(more)
    )
    plan = plan_of(replace(facts, log=log), allow=frozenset({"partition-count-changed"}))
    assert plan.end == Offsets({"pos": {0: 90, 1: 80, 2: 0}})
