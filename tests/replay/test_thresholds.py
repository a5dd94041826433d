"""How much a candidate may differ: thresholds, measured values, and their judgement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kappa.errors import TopologyError, UsageError
from kappa.replay.explain import explain
from kappa.replay.facts import Facts
from kappa.replay.plan import ReplayPlan
from kappa.replay.proof.verdict import Drift, OutputDiff, TableDiff, judged
from kappa.replay.request import ReplayRequest
from kappa.replay.starts import ToEarliest
from kappa.topology.thresholds import Threshold, limits_of, parsed

DRIFT = Drift(keys=2, sum_live=10.0, sum_candidate=11.0, mean_difference=0.5, max_difference=1.0, share=0.1)
REWARDS = TableDiff(
    name="rewards",
    rows_live=200,
    rows_candidate=190,
    keys_added=0,
    keys_removed=10,
    keys_changed=2,
    changed_columns={"points": 2, "tier": 1},
    drift={"points": DRIFT},
    columns_added=("new",),
)
ROWS = OutputDiff(name="rows", rows_live=0, rows_candidate=3, rows_added=3)


@pytest.mark.parametrize(
    ("threshold", "value", "ok"),
    [
        ({"keys_removed": 10}, 10, True),
        ({"keys_removed": 9}, 10, False),
        ({"keys_removed": 0.05}, 0.05, True),
        ({"keys_removed": 0.0499}, 0.05, False),
        ({"keys_added": 0}, 0, True),
        ({"keys_changed": 0.01}, 0.01, True),
        ({"rows": 9}, 10, False),
        ({"rows": 0.05}, 0.05, True),
        ({"drift": {"points": 0.1}}, 0.1, True),
        ({"drift": {"points": 0.09}}, 0.1, False),
        ({"drift": {"points": 1}}, 1.0, True),
        ({"drift": {"points": 0}}, 1.0, False),
        ({"drift": {"steady": 0.0}}, 0.0, True),
        ({"drift": {"tier": 1.0}}, None, False),
        ({"drift": {"new": 0.0}}, None, True),
    ],
)
def test_an_int_is_a_count_and_a_float_a_share(threshold: dict[str, Any], value: float | None, ok: bool) -> None:
    (result,) = judged(limits_of([Threshold(table="rewards", **threshold)]), [REWARDS], [ROWS])
    assert (result.found, result.ok) == (value, ok)


@pytest.mark.parametrize("limit", [0, 0.0])
def test_a_limit_of_no_drift_is_exceeded_by_any_changed_value(limit: float) -> None:
    drift = replace(DRIFT, mean_difference=0.0, max_difference=0.0, share=0.0)
    (result,) = judged({"rewards.drift.points": limit}, [replace(REWARDS, drift={"points": drift})], [])
    assert not result.ok and "found changes without a numeric difference, allowed 0" in str(result)


def test_a_share_of_zero_is_exceeded_by_any_count_but_zero() -> None:
    results = judged(limits_of([Threshold(table="rows", rows_added=1.0, rows_removed=0.0, rows=3)]), [REWARDS], [ROWS])
    assert {r.measure: r.ok for r in results} == {
        "rows.rows": True,
        "rows.rows_added": False,
        "rows.rows_removed": True,
    }


def test_measures_missing_in_the_live_epoch_are_reported_as_not_judged() -> None:
    new = TableDiff(name="rewards", rows_live=None, rows_candidate=3, keys_added=3)
    (result,) = judged(limits_of([Threshold(table="rewards", keys_added=0)]), [new], [])
    assert result.ok and str(result) == "rewards.keys_added: found not applied: nothing to compare with, allowed 0"


def test_a_former_output_that_is_now_a_table_is_judged_as_a_table() -> None:
    new = TableDiff(name="rewards", rows_live=None, rows_candidate=3, keys_added=3)
    former = OutputDiff(name="rewards", rows_live=7, rows_candidate=None, rows_removed=7)
    (result,) = judged(limits_of([Threshold(table="rewards", keys_added=0)]), [new], [former])
    assert result.ok


def test_a_result_names_the_measured_and_the_allowed_value() -> None:
    results = judged(limits_of([Threshold(table="rewards", keys_removed=0.01, keys_changed=1)]), [REWARDS], [])
    assert [str(r) for r in results] == [
        "rewards.keys_changed: found 2, allowed 1",
        "rewards.keys_removed: found 5 %, allowed 1 %",
    ]


@pytest.mark.parametrize("limit", [-1, 1.5, -0.1, float("nan"), float("inf"), True, "0"])
def test_a_limit_is_a_share_or_a_count(limit: Any) -> None:
    with pytest.raises(TopologyError, match="give a share"):
        Threshold(table="t", keys_added=limit)


def test_a_threshold_limits_at_least_one_measure_and_each_once() -> None:
    with pytest.raises(TopologyError, match="limits nothing"):
        Threshold(table="t")
    with pytest.raises(TopologyError, match=r"'t\.rows' is given more than once"):
        limits_of([Threshold(table="t", rows=1), Threshold(table="t", rows=2, keys_added=0)])


def test_thresholds_are_parsed_from_plain_notation() -> None:
    limits = limits_of(parsed(["rewards.keys_removed=0", " rewards.drift.Total.Points = 0.1", "rows.rows=1.0"]))
    assert limits == {"rewards.keys_removed": 0, "rewards.drift.Total.Points": 0.1, "rows.rows": 1.0}
    assert [type(limit) for limit in limits.values()] == [int, float, float]
    assert limits_of(parsed(["rows.drift.$n (a = b)=0.1"])) == {"rows.drift.$n (a = b)": 0.1}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["rewards"], "is not a threshold"),
        (["rewards.keys_removed"], "is not a threshold"),
        (["rewards.keys_removed=few"], "is not a threshold"),
        (["rewards.keys_removed=1e"], "is not a threshold"),
        (["rewards.keys_removed=2.0"], "give a share"),
        (["rewards.key_removed=0"], "Did you mean 'keys_removed'"),
        (["rewards.rows=1", "rewards.rows=2"], "more than once"),
    ],
)
def test_malformed_thresholds_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parsed(texts)


def test_thresholds_survive_json_and_a_request_without_any_keeps_its_hash() -> None:
    plain = ReplayRequest(topology="a.b", start=ToEarliest(), reason="r", actor="a")
    assert "thresholds" not in plain.as_dict()
    request = ReplayRequest(
        topology="a.b",
        start=ToEarliest(),
        reason="r",
        actor="a",
        thresholds=parsed(["rewards.keys_removed=0", "rewards.drift.P=1.0"]),
    )
    assert ReplayRequest.from_dict(request.as_dict()) == request
    assert limits_of(ReplayRequest.from_dict(request.as_dict()).thresholds) == {
        "rewards.keys_removed": 0,
        "rewards.drift.P": 1.0,
    }
    with pytest.raises(UsageError, match="more than once"):
        ReplayRequest(topology="a.b", start=ToEarliest(), reason="r", actor="a", thresholds=parsed(["t.rows=1"]) * 2)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("reward.keys_removed=0", "Did you mean 'rewards.keys_removed'?"),
        ("rewards.drift.TotalLoyaltyPoint=0.1", "Did you mean 'rewards.drift.TotalLoyaltyPoints'?"),
        ("notifications.keys_added=0", "Did you mean 'notifications.rows'?"),
    ],
)
def test_a_plan_refuses_unknown_thresholds_and_suggests_the_nearest(
    facts: Facts, plan_of: Callable[..., ReplayPlan], text: str, hint: str
) -> None:
    (finding,) = plan_of(facts, thresholds=parsed([text])).refusals
    assert (finding.code, finding.remedy) == ("unknown-threshold", hint)


def test_a_plan_names_its_thresholds_and_survives_json(facts: Facts, plan_of: Callable[..., ReplayPlan]) -> None:
    plan = plan_of(facts, thresholds=parsed(["rewards.keys_removed=0", "rewards.keys_changed=0.05"]))
    assert not plan.is_refused
    fails = "run the checks; fail above rewards.keys_removed=0, rewards.keys_changed=0.05"
    assert [line for line in explain(plan) if line.endswith(fails)]
    assert ReplayPlan.from_json(plan.to_json()) == plan
