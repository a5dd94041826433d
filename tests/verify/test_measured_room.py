"""What an epoch takes in the lake: all of its folder but a second run, where that is a local one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kappa.names import EpochPaths
from kappa.verify import measurements


def test_the_whole_folder_counts_except_a_second_run(tmp_path: Path) -> None:
    paths = EpochPaths(lake=str(tmp_path), topology="a.b", epoch=1)
    for name, size in (("ledger/x", 5), ("tables/t/y", 7), ("recomputed/replay/a.b/e0001/z", 100)):
        file = Path(paths.root, name)
        file.parent.mkdir(parents=True)
        file.write_bytes(b"." * size)
    assert measurements.disk_bytes(paths, {}) == 12


def test_a_file_removed_while_it_is_counted_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = EpochPaths(lake=str(tmp_path), topology="a.b", epoch=1)
    Path(paths.root).mkdir(parents=True)
    Path(paths.root, "x").write_bytes(b"12345")
    walked = [(folder, names, [*files, "gone"]) for folder, names, files in os.walk(paths.root)]
    monkeypatch.setattr(os, "walk", lambda *_, **__: walked)
    assert measurements.disk_bytes(paths, {}) == 5


def test_only_tables_count_if_the_lake_is_not_a_folder(tmp_path: Path) -> None:
    paths = EpochPaths(lake=str(tmp_path / "none"), topology="a.b", epoch=1)
    assert measurements.disk_bytes(paths, {"tables/t": 0}) == 0
