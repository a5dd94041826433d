"""Upkeep packs small files of a table together, and leaves those that a merge of Spark writes as they are."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.slices import AT, Epoch

from kappa.config import Config
from kappa.delta import queries, table_files, vacuum
from kappa.driver import maintenance
from kappa.slices.merging import merge_between

MERGES = 6


@pytest.mark.parametrize(
    ("factor", "is_rewritten"),
    [(0.6, False), (1.6, False), (4.0, True)],
    ids=["larger than the target", "more than half of it", "small"],
)
def test_files_of_a_size_that_merges_of_spark_write_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, is_rewritten: bool
) -> None:
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    for number in range(MERGES):  # each adds a file
        epoch.slice({(f"{number}", 0): number})
        merge_between(epoch.run, is_asked=True)
    table = DeltaTable(epoch.paths.table("sums"))
    sizes = table_files.files_of(table)["size_bytes"].to_pylist()
    assert len(sizes) == MERGES
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", MERGES - 1)
    monkeypatch.setattr(maintenance, "TABLE_BYTES", int(factor * min(sizes)))
    folders = dict.fromkeys(("topologies", "home", "cache"), tmp_path)

    maintenance.maintain(epoch.run, Config(lake=str(tmp_path), bootstrap_servers="", **folders), AT + timedelta(days=9))

    table.update_incremental()
    assert ("OPTIMIZE" in [entry["operation"] for entry in table.history()]) == is_rewritten
    assert queries.query(epoch.paths.table("sums"), None).num_rows == MERGES
