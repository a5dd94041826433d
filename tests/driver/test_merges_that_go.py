"""Merges that go while commits stay readable: random slices, merges and looks after files, and every commit that is
held.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.slices import AT, Epoch, Rows, as_rows, merged

from kappa import clock, serving
from kappa.config import Config
from kappa.delta import queries, vacuum
from kappa.driver.maintenance import is_piled_up, maintain
from kappa.record import merge_on_read
from kappa.record.epochs import Epochs
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import MERGED, contents_of
from kappa.slices.merging import merge_between


class Watch:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = AT

    def __call__(self) -> Any:
        return self.at


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    fake = Watch()
    monkeypatch.setattr(clock, "now", fake)
    return fake


def config_of(base: Path, **settings: Any) -> Config:
    return Config(
        lake=str(base), bootstrap_servers="", topologies=base, home=base, cache=base, delete_after_hours=0.0, **settings
    )


def maintain_as_earlier_code(epoch: Epoch, config: Config, now: Any) -> None:
    """What a look after files was before merges: each commit has its own, and only the last slice's changes stay."""
    state = epoch.run.ledger.begun()
    row = LedgerRow(kind="maintain", seq=state.seq, writer="me", at=now, detail={"readable_from": 0, "savepoints": []})
    epoch.run.ledger.append(row)
    vacuum.forget_before(epoch.paths.changes("sums"), state.seq)
    versions = {state.committed.delta_versions["changes/sums"]}
    vacuum.vacuum(epoch.paths.changes("sums"), lambda: versions, age=timedelta(0), check=lambda: None)


@pytest.mark.parametrize(("seed", "slices"), [(0, 40), (1, 80), (2, 80), (3, 80)], ids=range(4))
def test_every_held_commit_reads_as_it_was_whatever_was_merged_and_removed(
    tmp_path: Path, watch: Watch, seed: int, slices: int
) -> None:
    chance = random.Random(seed)
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    config = config_of(tmp_path, keep_minutes=20.0, savepoint_minutes=60.0, savepoint_hours=3.0)
    expected: dict[int, Rows] = {}
    now: Rows = {}
    earlier = 25 if seed % 2 else 0  # half of them begin with earlier code
    for number in range(slices):
        watch.at += timedelta(minutes=chance.choice([1, 2, 9]))
        epoch.merge_after(0.0 if number < earlier else chance.choice([0.0, 120.0, 120.0, 900.0]))
        ids = chance.sample(["a", "b", "c'", 'd"'], chance.randint(0, 2))
        changes = {(id, 0): chance.choice([None, number]) for id in ids}
        row = epoch.slice(changes)
        expected[row.seq] = now = merged(now, changes)
        if chance.random() < 0.1:
            merge_between(epoch.run, is_asked=True)
        if number < earlier:
            if chance.random() < 0.15:
                maintain_as_earlier_code(epoch, config, watch.at)
        elif chance.random() < 0.15 or is_piled_up(epoch.run.ledger.state()):
            named = {seq for seq in (30, 31) if seq <= row.seq}
            keep = chance.choice([5.0, 20.0, 60.0])  # the settings change now and then
            names = None if chance.random() < 0.1 else named
            maintain(epoch.run, replace(config, keep_minutes=keep), watch.at, lambda names=names: names)
            state = epoch.run.ledger.state()
            rows = {
                commit.seq: as_rows(merge_on_read.query(epoch.at(state.resolved(commit)))) for commit in state.readable
            }
            assert rows == {seq: expected.get(seq, {}) for seq in rows}
            assert row.seq in rows and (len(rows) > 1 or keep == 5.0)


def test_a_snapshot_finds_its_rows_though_the_merge_that_it_knew_is_gone(tmp_path: Path, watch: Watch) -> None:
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    config = config_of(tmp_path)
    for event in ("planned", "rewound", "seeded", "moved"):
        Epochs(config.lake).add("sums", 1, event, actor="test")
    for number in range(8):
        watch.at += timedelta(minutes=1)
        epoch.slice({("a", 0): number})
    snapshot = serving.snapshot(config, "sums", seq=3)
    again = serving.snapshot(config, "sums", seq=8)
    for number in range(8, 12):
        watch.at += timedelta(minutes=1)
        epoch.slice({("a", 0): number})
    connection = duckdb.connect()
    frame, view = snapshot.polars("sums"), snapshot.duckdb("sums", connection)
    maintain(epoch.run, config, watch.at)
    with pytest.raises(Exception, match=r"[Nn]ot found|No such file"):
        queries.query(*snapshot.place("sums"))
    for table in (snapshot.arrow("sums"), frame.collect().to_arrow(), view.to_arrow_table()):
        assert as_rows(table) == {("a", 0): 2}
    connection.close()
    assert as_rows(snapshot.rows("sums")) == {("a", 0): 2}
    assert as_rows(again.rows("sums", "total = 7")) == {("a", 0): 7}
    assert serving.snapshot(config, "sums", seq=3).merged("sums") < 3


def test_changes_do_not_pile_up(tmp_path: Path, watch: Watch) -> None:
    epoch = Epoch(tmp_path, merge_seconds=60.0)
    config = config_of(tmp_path)
    most_changes = most_merges = 0
    for number in range(120):
        watch.at += timedelta(minutes=1)
        epoch.slice({("a", 0): number})
        if number % 10 == 9:
            row = maintain(epoch.run, config, watch.at)
            most_merges = max(most_merges, len(row.detail["merges"]["sums"]["kept"]))
            most_changes = max(most_changes, queries.query(epoch.paths.changes("sums"), None).num_rows)
    assert most_changes <= 30 + 30 + 2, "those of the commits that stay, and of what their oldest merge lacks"
    assert most_merges <= 3 + 2 + 6 + 1, "savepoints, one a half hour, those of the last minutes, and the newest"
    last = epoch.run.ledger.begun().committed
    assert contents_of(epoch.paths, last, "sums").merged >= last.seq - 1
    assert MERGED not in last.detail or last.detail[MERGED]["sums"]["rows"] == 1
