"""The verdict of a comparison, and its report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kappa.offsets.vector import Offsets
from kappa.replay.proof.verdict import (
    CheckResult,
    DiffReport,
    Drift,
    OutputDiff,
    Sample,
    TableDiff,
    ThresholdResult,
    Verdict,
)

SAME = TableDiff(name="rewards", rows_live=3, rows_candidate=3)
CHANGED = TableDiff(
    name="rewards",
    rows_live=3,
    rows_candidate=4,
    keys_added=1,
    keys_changed=2,
    changed_columns={"points": 1, "tier": 2},
    samples=(Sample(key={"card": "c1"}, live={"points": 5}, candidate=None),),
)
DRIFT = Drift(keys=1, sum_live=5.0, sum_candidate=7.5, mean_difference=2.5, max_difference=2.5, share=0.025)
GOOD = ThresholdResult(measure="rewards.drift.points", allowed=0.1, found=0.025, ok=True)
EXCEEDED = ThresholdResult(measure="rewards.keys_added", allowed=0, found=1, ok=False)


def report(**parts: Any) -> DiffReport:
    at = Offsets({"pos": {0: 90}})
    epochs = {"live_epoch": 3, "live_seq": 9, "candidate_epoch": 4, "candidate_seq": 2}
    return DiffReport(topology="retail.loyalty", at=at, **{**epochs, **parts})


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ({}, Verdict.SAME),
        ({"tables": (SAME,)}, Verdict.SAME),
        ({"tables": (SAME, CHANGED)}, Verdict.DIFFERS),
        ({"tables": (TableDiff(name="t", rows_live=3, rows_candidate=3, keys_changed=1),)}, Verdict.DIFFERS),
        ({"tables": (TableDiff(name="t", rows_live=3, rows_candidate=3, keys_added=1),)}, Verdict.DIFFERS),
        ({"tables": (TableDiff(name="t", rows_live=3, rows_candidate=3, keys_removed=1),)}, Verdict.DIFFERS),
        ({"tables": (TableDiff(name="t", rows_live=None, rows_candidate=0),)}, Verdict.DIFFERS),
        ({"outputs": (OutputDiff(name="o", rows_live=5, rows_candidate=5),)}, Verdict.SAME),
        ({"outputs": (OutputDiff(name="o", rows_live=5, rows_candidate=6),)}, Verdict.DIFFERS),
        (
            {"outputs": (OutputDiff(name="o", rows_live=5, rows_candidate=5, rows_added=1, rows_removed=1),)},
            Verdict.DIFFERS,
        ),
        ({"tables": (TableDiff(name="t", rows_live=3, rows_candidate=3, columns_added=("c",)),)}, Verdict.DIFFERS),
        ({"thresholds": (GOOD,)}, Verdict.SAME),
        ({"thresholds": (GOOD, EXCEEDED)}, Verdict.FAILED),
        ({"checks": (CheckResult(name="c", ok=True),)}, Verdict.SAME),
        ({"checks": (CheckResult(name="c", ok=True), CheckResult(name="d", ok=False))}, Verdict.FAILED),
        ({"tables": (CHANGED,), "checks": (CheckResult(name="d", ok=False),)}, Verdict.FAILED),
    ],
)
def test_only_checks_and_thresholds_fail_a_candidate_and_differences_are_shown(
    parts: dict[str, Any], verdict: Verdict
) -> None:
    assert report(**parts).verdict is verdict


def test_a_report_survives_json() -> None:
    full = report(
        tables=(SAME, CHANGED),
        outputs=(OutputDiff(name="notifications", rows_live=5, rows_candidate=None),),
        checks=(CheckResult(name="no negative balance", ok=False, detail="2 rows"),),
        notes=("The epochs were cut differently.",),
    )
    assert DiffReport.from_json(full.to_json()) == full
    assert '"verdict":"failed"' in full.to_json()


def test_a_report_is_readable() -> None:
    full = report(
        tables=(CHANGED,),
        outputs=(OutputDiff(name="notifications", rows_live=1500, rows_candidate=None),),
        checks=(CheckResult(name="no negative balance", ok=False, detail="2 rows"),),
        notes=("The epochs were cut differently.",),
    )
    assert full.render() == [
        "retail.loyalty: live epoch 3 (seq 9) and epoch 4 (seq 2), both at the same offsets: failed",
        "  table rewards: 3 -> 4 rows; keys: 1 added, 0 removed, 2 changed",
        "    column tier: changed in 2 keys",
        "    column points: changed in 1 keys",
        "    card=c1: points=5 -> absent",
        "  output notifications: 1,500 -> none rows",
        "  check no negative balance: DOES NOT HOLD: 2 rows",
        "  note: The epochs were cut differently.",
    ]


def test_a_whole_report_survives_json_and_an_older_one_is_read() -> None:
    table = replace(CHANGED, drift={"points": DRIFT}, columns_retyped=("tier",), masked=("card",))
    full = report(tables=(table,), thresholds=(GOOD, EXCEEDED))
    assert DiffReport.from_json(full.to_json()) == full
    old = json.loads(report(tables=(CHANGED,)).to_json())
    del old["thresholds"]
    for name in ("drift", "columns_added", "columns_removed", "columns_retyped", "masked"):
        del old["tables"][0][name]
    assert DiffReport.from_json(json.dumps(old)) == report(tables=(CHANGED,))


def test_drift_thresholds_and_failures_are_readable_with_measured_values() -> None:
    table = replace(CHANGED, drift={"points": DRIFT}, masked=("card",), columns_added=("tier",))
    full = report(tables=(table,), thresholds=(GOOD, EXCEEDED), checks=(CheckResult(name="c", ok=False, detail="why"),))
    lines = full.render()
    assert "    columns added: tier" in lines and "    columns masked: card" in lines
    assert (
        "    column points: changed in 1 keys; sum 5 -> 7.5, mean difference 2.5, at most 2.5, 2.5 % of the "
        "column" in lines
    )
    assert "  threshold rewards.drift.points: found 2.5 %, allowed 10 %: kept" in lines
    assert "  threshold rewards.keys_added: found 1, allowed 0: EXCEEDED" in lines
    assert full.failures == ("check c: why", "threshold rewards.keys_added: found 1, allowed 0")


def test_a_null_and_an_empty_text_can_be_told_apart() -> None:
    sample = Sample(key={"k": ""}, live={"v": None, "w": ""}, candidate={"v": "", "w": None})
    lines = report(tables=(replace(CHANGED, samples=(sample,)),)).render()
    assert lines[-1] == "    k=: v=null, w= -> v=, w=null"


def test_a_value_cannot_move_the_cursor_or_break_a_line() -> None:
    hostile = Sample(key={"k": "a\nb"}, live={"v": "\x1b[2J"}, candidate=None)
    lines = report(tables=(replace(CHANGED, samples=(hostile,)),)).render()
    assert lines[-1] == "    k=a\\nb: v=\\x1b[2J -> absent"
