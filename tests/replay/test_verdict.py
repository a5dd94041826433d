"""What a comparison says."""

from __future__ import annotations

from typing import Any

import pytest

from kappa.replay.offsets import Offsets
from kappa.replay.verdict import CheckResult, DiffReport, OutputDiff, Sample, TableDiff, Verdict

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
        ({"checks": (CheckResult(name="c", ok=True),)}, Verdict.SAME),
        ({"checks": (CheckResult(name="c", ok=True), CheckResult(name="d", ok=False))}, Verdict.FAILED),
        ({"tables": (CHANGED,), "checks": (CheckResult(name="d", ok=False),)}, Verdict.FAILED),
    ],
)
def test_only_a_check_fails_a_candidate_and_any_difference_is_said(parts: dict[str, Any], verdict: Verdict) -> None:
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
