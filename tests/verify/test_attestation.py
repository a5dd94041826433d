"""Whether a ledger and a marker tell of the same slices: by number, end and the plan's hash."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.markers import slice_marker
from support.slices import SCHEMA, TOPOLOGY, Epoch

from kappa.delta import tables
from kappa.errors import DisagreementError
from kappa.kafka.markers import Marker
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.record.ledger_state import LedgerState
from kappa.slices.abandoning import abandon_slice
from kappa.slices.places import create_tables
from kappa.slices.writing import write_frames
from kappa.verify import attestation

AT = datetime(2026, 3, 1, tzinfo=UTC)
EPOCH = EpochPaths(lake="/lake", topology="a.b", epoch=1)


def plan(seq: int, end: int, **values: Any) -> LedgerRow:
    ranges = (OffsetRange(topic="pos", partition=0, start=end - 10, end=end),)
    return LedgerRow(
        kind="plan", seq=seq, writer="me", at=AT, ranges=ranges, **{"logged": True, "sends": "live", **values}
    )


def commit(seq: int, end: int, **values: Any) -> LedgerRow:
    return replace(plan(seq, end, **values), kind="commit", rows_read=10)


def marker(seq: int, end: int, row: LedgerRow | None = None) -> Marker:
    return slice_marker(seq, end, plan=None if row is None else plan_hash(row))


COMMITS = (commit(0, 10, logged=False, sends="held"), commit(1, 20), commit(2, 30))
STATE = LedgerState(commits=COMMITS, seq=2, baseline_seq=0)
PLANNED = replace(STATE, open_plan=plan(3, 40), seq=3)

AGREE = {
    "nothing was ever sent": (None, LedgerState()),
    "a seed, and its baseline's marker": (marker(0, 10), LedgerState(commits=COMMITS[:1], seq=0)),
    "the last commit's marker": (marker(2, 30, plan(2, 30)), STATE),
    "a plan whose transaction is not there": (marker(2, 30, plan(2, 30)), PLANNED),
    "a plan whose transaction is there and whose commit is not": (marker(3, 40, plan(3, 40)), PLANNED),
    "an epoch that went live since its last slice": (marker(2, 30), STATE),
    "a slice was abandoned since": (marker(2, 30, plan(2, 30)), replace(STATE, seq=3)),
}
LAKE_IS_OLDER = {
    "a slice that the ledger does not know": (
        marker(5, 60, plan(5, 60)),
        STATE,
        "of slice 5, the ledger's last slice is 2",
    ),
    "the same number, another plan": (marker(3, 70, plan(3, 70)), PLANNED, "by the ledger that slice ends at"),
    "the same number and end, other ranges": (
        marker(2, 30, replace(plan(2, 30), ranges=(OffsetRange(topic="pos", partition=0, start=0, end=30),))),
        STATE,
        "not",
    ),
    "the marker of a baseline elsewhere": (marker(2, 90), STATE, "the ledger at"),
    "the baseline of another seed is not a slice": (marker(3, 40), PLANNED, "the ledger at"),
    "a slice that was abandoned": (marker(3, 40, plan(3, 40)), replace(STATE, seq=3), "abandoned"),
    "a ledger without rows": (marker(0, 10), LedgerState(), "the ledger's last slice is -1"),
}
BROKER_IS_OLDER = {
    "no marker": (None, STATE, "slice 2 was sent, there is no marker"),
    "an older one": (marker(1, 20, plan(1, 20)), STATE, "slice 2 was sent, the last marker is of slice 1"),
    "no baseline": (None, LedgerState(commits=COMMITS[:1], seq=0, baseline_seq=0), "slice 0 was sent"),
}


@pytest.mark.parametrize("case", AGREE)
def test_a_ledger_that_explains_the_marker_may_send(case: str) -> None:
    marker, state = AGREE[case]
    attestation.check(EPOCH, marker, state, is_settled=True)


@pytest.mark.parametrize("case", LAKE_IS_OLDER)
def test_a_lake_older_than_the_broker_is_refused_with_a_remedy(case: str) -> None:
    marker, state, message = LAKE_IS_OLDER[case]
    with pytest.raises(
        DisagreementError,
        match=rf"lake is older than the broker.*{message}.*kappa rebuild a\.b --from-changelog --execute",
    ):
        attestation.check(EPOCH, marker, state, is_settled=False)


@pytest.mark.parametrize("case", BROKER_IS_OLDER)
def test_a_broker_older_than_the_lake_is_refused_once_its_transactions_are_readable(case: str) -> None:
    marker, state, message = BROKER_IS_OLDER[case]
    attestation.check(EPOCH, marker, state, is_settled=False)
    with pytest.raises(DisagreementError, match=f"broker is older than the lake.*{message}"):
        attestation.check(EPOCH, marker, state, is_settled=True)


def test_a_plan_and_its_commit_have_the_same_hash_even_when_read_back(tmp_path: Path) -> None:
    ranges = tuple(OffsetRange(topic="pos", partition=p, start=p, end=p + 1) for p in range(12))
    roots = {"root": {str(p): 5 for p in range(12)}}
    row = LedgerRow(kind="plan", seq=1, writer="me", at=AT, ranges=ranges, detail={"roots": roots})
    ledger = Ledger(str(tmp_path / "ledger"))
    ledger.create()
    ledger.claim("me", "code", ledger.state())
    ledger.append(row)
    read = ledger.state().open_plan
    assert read is not None
    commit = replace(read, kind="commit", code="other", rows_read=9, detail={**read.detail, "started_at": "then"})
    in_memory = replace(row, detail={"roots": {"root": dict.fromkeys(range(12), 5)}})
    assert plan_hash(row) == plan_hash(read) == plan_hash(commit) == plan_hash(in_memory)
    others = [
        replace(row, seq=2),
        replace(row, ranges=ranges[:11]),
        replace(row, sends="live"),
        replace(row, logged=True),
        replace(row, detail={}),
    ]
    assert plan_hash(row) not in {plan_hash(other) for other in others}


def test_tables_ahead_of_or_behind_their_ledger_are_refused(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path / "lake")
    one, two = epoch.slice({("a", 0): 1}), epoch.slice({("b", 0): 2})
    whole = epoch.run.ledger.state()
    attestation.check_tables(epoch.paths, whole)
    lost = replace(whole, commits=whole.commits[:2], seq=one.seq)
    with pytest.raises(
        DisagreementError, match=r"ledger is older than its tables: .*changes/sums holds slice 2.*kappa rebuild sums"
    ):
        attestation.check_tables(epoch.paths, lost)
    attestation.check_tables(epoch.paths, replace(lost, seq=2, open_plan=replace(two, kind="plan")))
    shutil.rmtree(epoch.paths.changes("sums"))
    create_tables(TOPOLOGY, epoch.paths)
    with pytest.raises(
        DisagreementError,
        match=r"table is older than the ledger: .*changes/sums is at version 0, slice 2 names version 2",
    ):
        attestation.check_tables(epoch.paths, whole)


def test_a_ledger_that_lost_its_tail_and_planned_other_ranges_writes_nothing(tmp_path: Path) -> None:
    """The tables kept slice 2; the ledger plans it anew with more records, and a writer of the rows comes too late."""
    epoch = Epoch(tmp_path / "lake")
    first = epoch.slice({("a", 0): 1})
    ranges = (OffsetRange(topic="pos", partition=0, start=2, end=3),)
    old = LedgerRow(kind="plan", seq=2, writer="me", at=AT, ranges=ranges)
    new = replace(old, ranges=(replace(ranges[0], end=9),))
    rows = pa.Table.from_pylist([{"id": "a", "select": 0, "total": 2, "_deleted": False}], SCHEMA.remove(0))
    assert write_frames(epoch.run, old, {}, {"sums": rows})
    version = tables.version(epoch.paths.changes("sums"))
    with pytest.raises(DisagreementError, match="ledger is older than its tables"):
        write_frames(epoch.run, new, {}, {"sums": rows})
    with pytest.raises(DisagreementError, match="ledger is older than its tables"):
        abandon_slice(epoch.run, new)
    assert write_frames(epoch.run, old, {}, {"sums": rows}) == {}, "the rows that are there are its own"
    assert tables.version(epoch.paths.changes("sums")) == version
    assert epoch.run.ledger.state().committed == first
