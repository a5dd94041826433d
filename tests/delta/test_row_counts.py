"""Rows of a slice, counted by the log of its table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kappa.delta import tables, vacuum
from kappa.delta.row_counts import LOOK_BACK, rows_of_slice
from kappa.topology.ddl import columns_of

PLACE = pa.schema({"_seq": pa.int64(), "id": pa.string()})


@pytest.fixture
def path(tmp_path: Path) -> str:
    folder = str(tmp_path / "rows")
    tables.create(folder, [tables.SEQ, *columns_of("id STRING", "rows")])
    return folder


def write(path: str, seq: int, rows: int) -> int:
    tables.append(path, pa.Table.from_pylist([{"_seq": seq, "id": "a"}] * rows, PLACE), seq, "plan")
    return tables.version(path)


def test_rows_per_slice_are_counted_whatever_follows_them(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {seq: write(path, seq, rows) for seq, rows in ((1, 3), (2, 0), (3, 5))}
    assert [rows_of_slice(path, version, seq) for seq, version in versions.items()] == [3, 0, 5]
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 1)
    vacuum.compact(path)
    now = tables.version(path)
    assert now > versions[3]
    assert [rows_of_slice(path, now, seq) for seq in (1, 2, 3, 4)] == [3, 0, 5, 0]


def test_a_commit_far_back_or_without_a_log_entry_counts_nothing(path: str) -> None:
    first = write(path, 1, 3)
    assert rows_of_slice(path, first + LOOK_BACK - 1, 1) == 3
    assert rows_of_slice(path, first + LOOK_BACK, 1) == 0
    (Path(path) / "_delta_log" / f"{first:020d}.json").unlink()
    assert rows_of_slice(path, first, 1) == 0
