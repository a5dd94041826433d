"""A table as of a commit: its last merge and the changes since, against the same changes merged slice by slice."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.slices import AT, TABLE, Changes, Epoch, Rows, as_rows, merged, slices

from kappa import clock
from kappa.delta import queries, tables
from kappa.record import merge_on_read
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import MERGED
from kappa.slices import merging
from kappa.slices.merging import is_due, merge, merge_between, unmerged
from kappa.slices.protocol import apply_changes, commit_slice


@pytest.mark.parametrize("histories", [6, 25])
def test_a_table_with_its_unmerged_changes_is_the_table_of_every_commit(
    tmp_path_factory: pytest.TempPathFactory, histories: int
) -> None:
    @settings(max_examples=histories, deadline=None)
    @given(slices=slices, chance=st.randoms(use_true_random=False))
    def every_commit(slices: list[Changes], chance: random.Random) -> None:
        assert_each_commit_reads_as_it_was(tmp_path_factory.mktemp("epoch"), slices, chance)

    every_commit()


def assert_each_commit_reads_as_it_was(base: Path, slices: list[Changes], chance: random.Random) -> None:
    epoch = Epoch(base, merge_seconds=3600.0)
    expected: list[tuple[LedgerRow, Rows]] = []
    now: Rows = {}
    for changes in slices:
        epoch.merge_after(chance.choice([0.0, 3600.0, 3600.0]))
        row = epoch.slice(changes)
        now = merged(now, changes)
        expected.append((row, now))
        assert epoch.table(row) == now
        if chance.random() < 0.2:
            merge_between(epoch.run, is_asked=True)
            assert as_rows(queries.query(epoch.paths.table("sums"), None)) == now
    for row, rows in expected:
        assert epoch.table(row) == rows, f"slice {row.seq}, later"


def test_an_unmerged_slice_leaves_the_table_unchanged_and_says_so(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path)
    row = epoch.slice({("a", 0): 1})
    assert as_rows(queries.query(epoch.paths.table("sums"), None)) == {}
    entry = row.detail[MERGED]["sums"]
    assert (entry["seq"], entry["key"], entry["rows"]) == (0, ["id", "select"], 1)
    again = epoch.slice({("a", 0): 2, ("b", 0): 3})
    assert (again.detail[MERGED]["sums"]["seq"], again.detail[MERGED]["sums"]["rows"]) == (0, 3)
    assert again.detail[MERGED]["sums"]["since"] == entry["since"], "the oldest of them counts"


def test_only_committed_changes_are_merged_between_slices(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path)
    epoch.slice({("a", 0): 1})
    epoch.put_without_commit({"id": "b", "select": 0, "total": 2})
    merge_between(epoch.run, is_asked=True)
    assert as_rows(queries.query(epoch.paths.table("sums"), None)) == {("a", 0): 1}


def test_the_end_of_a_driver_leaves_what_spark_would_merge_to_the_next(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    for limits, is_merged in ({"merge_bytes": 0}, False), ({"arrow_rows": 0}, False), ({}, True):
        row = epoch.slice({("a", 0): 1})
        engines = epoch.run.engines
        epoch.run.engines = replace(engines, merge_seconds=0.0, **limits)  # a merge by Spark would fail: there is none
        assert merge_between(epoch.run, is_asked=True, is_hasty=True) is is_merged
        epoch.run.engines = engines
        assert epoch.table(row) == {("a", 0): 1}


def test_a_condition_never_returns_a_changed_or_removed_row(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    epoch.slice({("a", 0): 1, ("b", 0): 1})
    epoch.merge_after(3600.0)
    row = epoch.slice({("a", 0): 2, ("b", 0): None})
    assert as_rows(merge_on_read.query(epoch.at(row), where="total = 1")) == {}
    assert as_rows(merge_on_read.query(epoch.at(row), where="id = 'a'", order_by="total", limit=1)) == {("a", 0): 2}


def test_changes_are_merged_after_the_merge_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = Epoch(tmp_path, merge_seconds=60.0)
    monkeypatch.setattr(clock, "now", lambda: AT)
    row = epoch.slice({("a", 0): 1})
    for seconds, expected in ((59, False), (60, True)):
        assert is_due(epoch.run, unmerged(epoch.run, TABLE, row), AT + timedelta(seconds=seconds)) is expected
    monkeypatch.setattr(clock, "now", lambda: AT + timedelta(seconds=60))
    row = epoch.slice({("b", 0): 2})
    assert MERGED not in row.detail
    assert as_rows(queries.query(epoch.paths.table("sums"), None)) == {("a", 0): 1, ("b", 0): 2}


def test_the_first_commit_of_a_savepoint_period_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = Epoch(tmp_path, merge_seconds=36_000.0, savepoint_grain=timedelta(hours=1))
    are_merged = []
    for minutes in (0, 30, 59, 61, 119, 120):
        monkeypatch.setattr(clock, "now", lambda minutes=minutes: AT + timedelta(minutes=minutes))
        are_merged.append(MERGED not in epoch.slice({("a", 0): minutes}).detail)
    assert are_merged[1:] == [False, False, True, False, True]


def test_many_changes_are_merged_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "most_changes", lambda _: 2)
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    rows = [epoch.slice({("a", 0): number}) for number in range(4)]
    assert [MERGED in row.detail for row in rows] == [True, True, False, True], "the third change is one too many"
    assert [epoch.table(row) for row in rows] == [{("a", 0): number} for number in range(4)]


def test_a_slice_merged_before_a_crash_is_committed_as_merged(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    before = epoch.slice({("a", 0): 1})
    plan, effects = epoch.begin({("b", 0): 2})
    epoch.merge_after(0.0)
    apply_changes(epoch.run, plan, effects)
    version = tables.version(epoch.paths.table("sums"))
    assert epoch.table(before) == {("a", 0): 1}, "who reads the last commit sees nothing of it"
    epoch.run.scratch.written = {}
    epoch.merge_after(3600.0)  # the next attempt would not merge
    apply_changes(epoch.run, plan, effects)
    row = commit_slice(epoch.run, plan, effects)
    assert (MERGED in row.detail, row.delta_versions["tables/sums"]) == (False, version)
    assert epoch.table(row) == {("a", 0): 1, ("b", 0): 2}


def test_the_next_slice_finds_an_unrecorded_merge_between_slices(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    before = epoch.slice({("a", 0): 1})
    assert merge_between(epoch.run, is_asked=True)
    assert not merge_between(epoch.run, is_asked=True)
    row = epoch.slice({("b", 0): 2})
    entry = row.detail[MERGED]["sums"]
    assert (entry["seq"], entry["rows"]) == (before.seq, 1)
    assert [epoch.table(one) for one in (before, row)] == [{("a", 0): 1}, {("a", 0): 1, ("b", 0): 2}]


def test_a_late_merge_of_a_replaced_writer_changes_no_commit(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    rows = [epoch.slice({("a", 0): number, ("b", number % 2): number}) for number in range(3)]
    late = epoch.at(rows[0])
    tables.merge(late.path, merge_on_read.changed(late), TABLE.key, TABLE.columns, late.seq)
    row = epoch.slice({})
    assert row.detail[MERGED]["sums"]["seq"] == rows[0].seq
    assert epoch.table(row) == epoch.table(rows[2]) == {("a", 0): 2, ("b", 0): 2, ("b", 1): 1}
    assert epoch.table(rows[0]) == {("a", 0): 0, ("b", 0): 0}


def test_ledger_rows_of_earlier_code_count_as_merged(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    row = epoch.slice({("a", 0): 1})
    quiet = epoch.slice({})  # without a change earlier code wrote no Delta commit either
    assert MERGED not in row.detail and MERGED not in quiet.detail
    assert epoch.at(quiet).is_merged
    epoch.merge_after(3600.0)
    after = epoch.slice({("a", 0): None})
    assert epoch.table(after) == {}
    assert epoch.table(quiet) == {("a", 0): 1}


def test_a_merge_without_changed_rows_is_a_merge(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    assert MERGED not in epoch.slice({("a", 0): None}).detail, "a key that was never there is removed"
    assert tables.merged(epoch.paths.table("sums")) == (1, 1)


def test_merging_again_changes_nothing(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    pending = unmerged(epoch.run, TABLE, epoch.slice({("a", 0): 1}))
    for _ in range(2):
        merge(epoch.run, TABLE, pending)
    assert tables.merged(pending.contents.path) == (1, 1)
