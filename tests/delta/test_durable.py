"""Commits that are on the disk before the caller goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.power_cut import Disk

from kappa import clock
from kappa.delta import append_log, queries, tables
from kappa.delta.log_entries import sync_commits
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow


def test_appended_ledger_rows_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_log, "COMPACT_AFTER", 8)
    disk = Disk(root=tmp_path)
    disk.watch(monkeypatch)
    ledger = Ledger(str(tmp_path / "a" / "b" / "ledger"))
    ledger.create()
    ledger.claim("me", "code", ledger.state())
    for seq in range(12):  # past a merge of small files
        ledger.append(LedgerRow(kind="plan", seq=seq, writer="me", at=clock.now()))
    before = ledger.rows()
    disk.restore(disk.image())
    assert Ledger(ledger.path).rows() == before
    assert len(before) == 13


def test_the_record_of_epochs_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(root=tmp_path)
    disk.watch(monkeypatch)
    epochs = Epochs(str(tmp_path / "lake"))
    epochs.add("a.b", 1, "planned", actor="test", plan="{}", code="c")
    disk.restore(disk.image())
    assert [event.event for event in Epochs(str(tmp_path / "lake")).events()] == ["planned"]


def test_table_commits_reach_the_disk_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "lake" / "outputs" / "moves")
    disk = Disk(root=tmp_path)
    disk.watch(monkeypatch)
    tables.create(path, [tables.SEQ])
    schema = pa.schema([pa.field("_seq", pa.int64(), nullable=False)])
    for seq in (1, 2, 3):
        tables.append(path, pa.table({"_seq": [seq]}, schema=schema), seq)
    sync_commits(path, range(3))
    assert disk.restore(disk.image()) == 2, "the last commit and its file"
    assert tables.version(path) == 2
    assert queries.query(path, None, order_by="_seq").to_pylist() == [{"_seq": 1}, {"_seq": 2}]
