"""What an epoch needs of the tables of another job that it begins with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kappa.errors import UsageError
from kappa.offsets.vector import Offsets
from kappa.replay.adoption import Adoption, ExistingColumns, ExistingTable
from kappa.replay.facts import Facts, SourceFacts
from kappa.replay.plan import FIRST_EPOCH, ReplayPlan
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.rules.adoption import delta_type, is_lossless, may_become
from kappa.replay.starts import Start, ToEarliest, ToLatest, ToOffset
from kappa.topology.shapes import Timing

PlanOf = Callable[..., ReplayPlan]

TABLE = ExistingTable(place="tables/rewards", address="/old/rewards", version=7, newest=9, rows=3)
OFFSETS = Offsets({"pos": {0: 60, 1: 50}})
ADOPTION = Adoption(tables=(TABLE,), offsets=OFFSETS, job="the end of batch 7")
TYPES: Mapping[str, Any] = {"card": "string", "points": "long", "tier": "string"}


def adopted(facts: Facts, plan_of: PlanOf, types: Mapping[str, Any] = TYPES, **changes: Any) -> ReplayPlan:
    """The plan of an adoption of a table with these columns."""
    columns = {"tables/rewards": changes.pop("existing", ExistingColumns(types=types))}
    adoption = changes.pop("adoption", ADOPTION)
    start = ToOffset(offsets=adoption.offsets, file="/c/offsets/7")
    return plan_of(replace(facts, live=None, existing=columns), start=start, adoption=adoption, **changes)


def codes(plan: ReplayPlan) -> set[str]:
    return {finding.code for finding in plan.findings}


def test_an_adoption_begins_where_its_job_stood_and_goes_live(facts: Facts, plan_of: PlanOf) -> None:
    plan = adopted(facts, plan_of)
    assert (plan.seed, plan.start, plan.stages) == (Seed.FROM_TABLES, OFFSETS, FIRST_EPOCH)
    assert plan.seed_tables == (TABLE,)
    assert plan.origin == Offsets({"pos": {0: 0, 1: 0}})
    assert codes(plan) == {"adoption-lacks-output"}
    assert ReplayPlan.from_json(plan.to_json()) == plan


def test_a_plan_without_an_adoption_has_no_word_of_one(facts: Facts, plan_of: PlanOf) -> None:
    assert "adoption" not in plan_of(facts).to_json()


@pytest.mark.parametrize(
    ("types", "code"),
    [
        ({"card": "string", "points": "long"}, "adopted-lacks-column"),
        ({"points": "long", "tier": "string"}, "adopted-lacks-required-column"),
        ({**TYPES, "mail": "string"}, "adopted-column-left-out"),
        ({**TYPES, "points": "string"}, "adopted-type-differs"),
    ],
)
def test_columns_of_another_kind_are_objected_to(
    facts: Facts, plan_of: PlanOf, types: Mapping[str, Any], code: str
) -> None:
    assert code in codes(adopted(facts, plan_of, types))


def test_the_type_of_a_column_is_told_as_a_whole(facts: Facts, plan_of: PlanOf) -> None:
    kind = delta_type("MAP<STRING, ARRAY<STRUCT<a: BIGINT, b: DATE>>>")
    (finding,) = adopted(facts, plan_of, {**TYPES, "tier": kind}).refusals
    assert "is map<string, array<struct<a: long, b: date>>>, and 'rewards' declares it STRING" in finding.message
    assert finding.remedy.endswith("a copy of the table with the declared one: CAST(tier AS STRING).")


def test_columns_are_the_same_whatever_their_case(facts: Facts, plan_of: PlanOf) -> None:
    plan = adopted(facts, plan_of, {"Card": "string", "POINTS": "long", "tier": "string"})
    assert codes(plan) == {"adoption-lacks-output"}
    assert "adopted-type-differs" in codes(adopted(facts, plan_of, {**TYPES, "points": "long", "Tier": "long"}))


def test_a_table_that_is_not_named_refuses(facts: Facts, plan_of: PlanOf) -> None:
    other = replace(ADOPTION, tables=(replace(TABLE, place="tables/reward"),))
    assert {"adoption-lacks-table", "adoption-names-unknown"} <= codes(adopted(facts, plan_of, adoption=other))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"hidden": ("tier",)}, "adopted-lacks-internal-columns"),
        ({"times": {"pos": Timing(time=None, grace_ms=0)}}, "adopted-table-timed"),
    ],
)
def test_state_that_no_other_job_has_refuses(
    facts: Facts, plan_of: PlanOf, changes: Mapping[str, Any], code: str
) -> None:
    assert facts.topology is not None
    shapes = {**facts.topology.shapes}
    shapes["tables/rewards"] = replace(shapes["tables/rewards"], **changes)
    stateful = replace(facts, topology=replace(facts.topology, shapes=shapes))
    plan = adopted(stateful, plan_of, {"card": "string", "points": "long"})
    assert plan.is_refused and code in codes(plan)


def test_values_that_are_not_masked_refuse(facts: Facts, plan_of: PlanOf) -> None:
    assert facts.topology is not None
    sensitive = replace(facts, topology=replace(facts.topology, is_sensitive=True, mask="m"))
    assert "adopted-values-unmasked" in codes(adopted(sensitive, plan_of))


def test_a_topic_that_the_topology_does_not_read_refuses(facts: Facts, plan_of: PlanOf) -> None:
    more = replace(ADOPTION, offsets=Offsets({"pos": {0: 60, 1: 50}, "web": {0: 1}}))
    assert "start-names-unknown" in codes(adopted(facts, plan_of, adoption=more))


def test_state_beside_the_tables_refuses_unless_it_is_allowed(facts: Facts, plan_of: PlanOf) -> None:
    stateful = replace(ADOPTION, state="/c/state")
    plan = adopted(facts, plan_of, adoption=stateful)
    assert plan.is_refused and "adopted-job-keeps-state" in codes(plan)
    assert ReplayPlan.from_json(plan.to_json()).adoption == stateful
    allowed = adopted(facts, plan_of, adoption=stateful, allow={"adopted-job-keeps-state"})
    assert not allowed.is_refused and "adopted-job-keeps-state" in codes(allowed)


def test_rows_of_others_refuse_unless_they_are_allowed(facts: Facts, plan_of: PlanOf) -> None:
    shared = replace(ADOPTION, others="version 7 of /old/rewards is a WRITE of query q-2, batch 3")
    plan = adopted(facts, plan_of, adoption=shared)
    assert plan.is_refused and "adopted-written-by-others" in codes(plan)
    assert ReplayPlan.from_json(plan.to_json()).adoption == shared
    assert not adopted(facts, plan_of, adoption=shared, allow={"adopted-written-by-others"}).is_refused


@pytest.mark.parametrize(("padded", "is_refused"), [("CARD", True), ("tier", False)])
def test_a_padded_key_is_not_the_key_of_records(facts: Facts, plan_of: PlanOf, padded: str, is_refused: bool) -> None:
    columns = ExistingColumns(types={**TYPES, "CARD": TYPES["card"]}, padded=frozenset({padded}))
    plan = adopted(facts, plan_of, existing=columns)
    assert ("adopted-key-padded" in codes(plan)) == is_refused == plan.is_refused


@pytest.mark.parametrize(
    ("offsets", "low", "code"),
    [
        ({"pos": {0: 60, 1: 50}, "web": {0: 1}}, 0, "start-names-unknown"),
        ({"pos": {0: 60}}, 0, "start-lacks-partition"),
        ({"pos": {0: 60, 1: 9999}}, 0, "start-above-high-watermark"),
        ({"pos": {0: 60, 1: 50}}, 70, "start-below-low-watermark"),
    ],
)
def test_a_way_out_of_an_adoption_is_one_that_its_command_has(
    facts: Facts, plan_of: PlanOf, offsets: dict[str, dict[int, int]], low: int, code: str
) -> None:
    begins = replace(facts, log=replace(facts.log, low=Offsets({"pos": {0: low, 1: 0}})))
    plan = adopted(begins, plan_of, adoption=replace(ADOPTION, offsets=Offsets(offsets)))
    (remedy,) = (finding.remedy for finding in plan.refusals if finding.code == code)
    assert "--from-file" in remedy
    assert set(re.findall(r"--[a-z-]+", remedy)) == {"--from-file"}
    if low:
        assert "pos,0,70" in remedy


def test_a_partition_without_an_offset_refuses(facts: Facts, plan_of: PlanOf) -> None:
    less = replace(ADOPTION, offsets=Offsets({"pos": {0: 60}}))
    assert "start-lacks-partition" in codes(adopted(facts, plan_of, adoption=less))


def test_a_version_that_cannot_be_read_refuses(facts: Facts, plan_of: PlanOf) -> None:
    gone = replace(facts, live=None, existing={"tables/rewards": ExistingColumns(error="no such version")})
    plan = plan_of(gone, start=ToOffset(offsets=OFFSETS), adoption=ADOPTION)
    (finding,) = (finding for finding in plan.refusals if finding.code == "adopted-version-gone")
    assert "rewards=ADDRESS@VERSION" in finding.remedy and "no such version" in finding.message


class TestReplays:
    """Later replays of a topology whose first epoch was adopted."""

    @pytest.fixture
    def later(self, facts: Facts) -> Facts:
        assert facts.live is not None
        return replace(
            facts,
            live=replace(facts.live, adoption=ADOPTION),
            existing={"tables/rewards": ExistingColumns(types=TYPES)},
        )

    def test_one_begins_again_with_the_rows_and_the_offsets(self, later: Facts, plan_of: PlanOf) -> None:
        plan = plan_of(later, seed=Seed.FROM_TABLES)
        assert not plan.is_refused
        assert (plan.start, plan.seed_tables, plan.adoption) == (OFFSETS, (TABLE,), ADOPTION)
        assert plan.request.adoption is None

    @pytest.mark.parametrize(
        ("ends", "sources", "start"),
        [
            ({"pos": {0: 100, 1: 80, 2: 5}}, ["pos"], {"pos": {0: 60, 1: 50, 2: 0}}),
            ({"pos": {0: 100, 1: 80}, "web": {0: 9}}, ["pos", "web"], {"pos": {0: 60, 1: 50}, "web": {0: 0}}),
            ({"web": {0: 9}}, ["web"], {"web": {0: 0}}),
        ],
        ids=["a partition more", "a source more", "a source less"],
    )
    def test_one_reads_what_its_sources_have_got_since_from_its_beginning(
        self,
        later: Facts,
        plan_of: PlanOf,
        ends: dict[str, dict[int, int]],
        sources: list[str],
        start: dict[str, dict[int, int]],
    ) -> None:
        assert later.topology is not None and later.live is not None
        high = Offsets(ends)
        log = replace(
            later.log,
            low=Offsets(),
            high=high,
            stable=high,
            topic_ids={topic: f"id-{topic}" for topic in sources} | {"pos": "id-1"},
            cleanup=dict.fromkeys(sources, "delete"),
        )
        topology = replace(later.topology, sources=tuple(SourceFacts(topic=topic) for topic in sources))
        plan = plan_of(replace(later, log=log, topology=topology), seed=Seed.FROM_TABLES)
        assert not any(code.startswith(("start-", "adopt")) for code in (finding.code for finding in plan.refusals))
        assert plan.start == Offsets(start)

    def test_one_is_refused_where_the_log_ends_before_the_offsets(self, later: Facts, plan_of: PlanOf) -> None:
        short = Offsets({"pos": {0: 59, 1: 80}})
        plan = plan_of(replace(later, log=replace(later.log, high=short, stable=short)), seed=Seed.FROM_TABLES)
        assert "stored-vector-beyond-end" in codes(plan)

    @pytest.mark.parametrize(
        ("changes", "place", "code"),
        [
            ({"existing": {"tables/rewards": ExistingColumns(error="no such version")}}, None, "adopted-version-gone"),
            ({}, "tables/ranks", "adoption-lacks-table"),
            ({}, "outputs/notifications", "adoption-lacks-output"),
        ],
    )
    def test_a_way_out_of_one_names_only_what_a_replay_takes(
        self, later: Facts, plan_of: PlanOf, changes: Mapping[str, Any], place: str | None, code: str
    ) -> None:
        assert later.topology is not None
        shapes = {**later.topology.shapes}
        if place is not None:
            shapes[place] = replace(shapes["tables/rewards"])
        plan = plan_of(
            replace(later, topology=replace(later.topology, shapes=shapes), **changes), seed=Seed.FROM_TABLES
        )
        (remedy,) = (finding.remedy for finding in plan.findings if finding.code == code)
        assert "--to-earliest without --seed, or --from-savepoint" in remedy
        assert "--table" not in remedy and "--output" not in remedy and "@" not in remedy

    def test_a_savepoint_hands_the_adoption_on(self, later: Facts, plan_of: PlanOf) -> None:
        from kappa.replay.starts import FromSavepoint

        assert plan_of(later, start=FromSavepoint(seq=9)).adoption == ADOPTION

    def test_an_empty_seed_says_which_rows_it_leaves_out(self, later: Facts, plan_of: PlanOf) -> None:
        plan = plan_of(later)
        assert not plan.is_refused and plan.adoption is None
        assert "adopted-rows-left-out" in codes(plan)

    def test_an_empty_seed_refuses_where_the_log_lost_what_the_job_had_read(
        self, later: Facts, plan_of: PlanOf
    ) -> None:
        short = replace(later, log=replace(later.log, low=Offsets({"pos": {0: 10, 1: 0}})))
        assert "start-below-low-watermark" in codes(plan_of(short))

    def test_a_topology_that_was_not_adopted_has_none(self, facts: Facts, plan_of: PlanOf) -> None:
        assert "adoption-missing" in codes(plan_of(facts, seed=Seed.FROM_TABLES))


@pytest.mark.parametrize(
    ("start", "seed", "adoption"),
    [
        (ToLatest(), Seed.FROM_TABLES, None),
        (ToEarliest(), None, ADOPTION),
        (ToOffset(offsets=OFFSETS), Seed.EMPTY, ADOPTION),
        (ToOffset(offsets=OFFSETS), Seed.FROM_TABLES, None),
    ],
)
def test_a_request_whose_parts_contradict_each_other_is_refused(
    start: Start, seed: Seed | None, adoption: Adoption | None
) -> None:
    with pytest.raises(UsageError):
        ReplayRequest(topology="t", start=start, seed=seed, adoption=adoption, reason="", actor="ana")


@pytest.mark.parametrize(
    ("existing", "declared", "may", "fits"),
    [
        ("INT", "BIGINT", True, True),
        ("BIGINT", "INT", True, False),
        ("DECIMAL(10,2)", "DECIMAL(12,2)", True, True),
        ("DECIMAL(12,2)", "DECIMAL(12,3)", True, False),
        ("BIGINT", "DECIMAL(19,0)", True, True),
        ("BIGINT", "DECIMAL(18,0)", True, False),
        ("DECIMAL(4,0)", "INT", True, False),
        ("FLOAT", "DOUBLE", True, True),
        ("DOUBLE", "FLOAT", True, False),
        ("INT", "DOUBLE", True, True),
        ("BIGINT", "DOUBLE", True, False),
        ("STRING", "BIGINT", False, False),
        ("BIGINT", "STRING", False, False),
        ("TIMESTAMP", "DATE", False, False),
        ("ARRAY<INT>", "ARRAY<INT>", True, True),
        ("ARRAY<INT>", "ARRAY<BIGINT>", False, False),
    ],
)
def test_a_value_is_cast_only_where_nothing_of_it_is_lost(existing: str, declared: str, may: bool, fits: bool) -> None:
    assert may_become(delta_type(existing), delta_type(declared)) is may
    assert is_lossless(delta_type(existing), delta_type(declared)) is fits
