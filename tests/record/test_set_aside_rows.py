"""Records set aside in a ledger, row by row and rolled up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.growth import calls

from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAside
from kappa.offsets.vector import OffsetRange
from kappa.record import rollup
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.record.ledger_state import LedgerState, StateBuilder
from kappa.record.rollup import runs_of

AT = datetime(2026, 1, 2, tzinfo=UTC)


def aside(offset: int) -> tuple[SetAside, ...]:
    one = SetAside(decision=5, reason="why", topic="pos", topic_id="id", partition=0, offsets={offset: "hash"})
    return (one,)


def row(kind: str, seq: int, **detail: object) -> LedgerRow:
    ranges = (OffsetRange(topic="pos", partition=0, start=max(0, seq - 1), end=seq),)
    return LedgerRow(kind=kind, seq=seq, writer="w", at=AT, ranges=ranges, detail=detail)  # type: ignore[arg-type]  # of a test


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """An epoch of 14 slices, of which the third and the thirteenth set their record aside."""
    new_ledger = Ledger(str(tmp_path / "ledger"))
    new_ledger.create()
    new_ledger.claim("w", "code", LedgerState())
    new_ledger.state()
    new_ledger.append(row("commit", 0, shapes={}))
    new_ledger.append(row("maintain", 0, readable_from=14, savepoints=[], merges={}, forgotten={}))
    for seq in range(1, 15):
        is_aside = seq in (3, 13)
        committed = replace(row("commit", seq, **set_asides.detail(aside(seq - 1) if is_aside else ())), rows_read=1)
        new_ledger.append(replace(committed, rows_set_aside=1) if is_aside else replace(committed, rows_parsed=1))
    return new_ledger


def test_a_roll_up_keeps_the_list_and_count_of_records_set_aside(ledger: Ledger) -> None:
    before = ledger.state()
    rolled = rollup.rolled_up(before, writer="w", code="code", at=AT)
    assert rolled is not None and [one.offsets for one in rolled.set_aside] == [{2: "hash"}]
    ledger.roll_up(rolled)
    for state in (ledger.state(), Ledger(ledger.path).state()):
        assert state.set_aside == before.set_aside and set_asides.count(state.set_aside) == 2
        facts = [run.facts for run in runs_of(state)]
        assert sum(one.rows_set_aside for one in facts) == 2 and all(one.is_counted for one in facts)
        assert sum(one.rows_parsed for one in facts) == 12
    assert len(runs_of(state)) < 14, "slices that set something aside are no reason to stay apart"


def test_a_plan_that_sets_a_record_aside_has_another_id(ledger: Ledger) -> None:
    plan = row("plan", 15)
    assert len({plan_hash(one) for one in (plan, row("plan", 15, set_aside=set_asides.as_list(aside(14))))}) == 2
    assert plan_hash(row("plan", 15, set_aside=set_asides.as_list(aside(14)))) == plan_hash(
        row("commit", 15, set_aside=set_asides.as_list(aside(14)), seconds={})
    )


def test_only_a_row_that_sets_a_record_aside_needs_newer_code(ledger: Ledger) -> None:
    assert {one.format for one in ledger.rows() if "merges" in one.detail} == {3}
    assert {one.format for one in ledger.rows() if not {"set_aside", "merges"} & one.detail.keys()} == {1}
    assert {one.format for one in ledger.rows() if "set_aside" in one.detail} == {2}


def test_a_commit_does_not_go_over_what_earlier_ones_set_aside() -> None:
    def read(slices: int) -> None:
        builder = StateBuilder()
        for seq in range(slices):
            builder.add(row("commit", seq, **set_asides.detail(aside(seq))))
        assert set_asides.count(builder.state().set_aside) == slices

    assert calls(lambda: read(200)) < 6 * calls(lambda: read(50))
