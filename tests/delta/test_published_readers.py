"""Engines that read a published table by its path, before and after it shows another epoch."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from deltalake import DeltaTable
from support.path_readers import by_engine, rows_of
from support.published_lake import SCHEMA, Lake

ENGINES = ("deltalake", "polars", "duckdb")


def test_engines_read_the_same_rows_over_a_cutover_and_of_earlier_versions(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create(1)
    for seq in (1, 2):
        lake.append(1, seq, f"a{seq}")
        lake.publish(1)
    before, version = rows_of(lake.path), DeltaTable(lake.path).version()
    opened, pinned, scanned = DeltaTable(lake.path), pl.scan_delta(lake.path, version=version), pl.scan_delta(lake.path)
    lake.create(2, f"{SCHEMA}, currency STRING")
    lake.append(2, 1, "A", "B", currency="EUR")
    lake.publish(2)
    after = [("A", 1, "EUR"), ("B", 1, "EUR")]
    assert by_engine(lake.path) == dict.fromkeys(ENGINES, after)
    assert by_engine(lake.path, version) == dict.fromkeys(ENGINES, before)
    assert sorted(tuple(row.values()) for row in opened.to_pyarrow_table().to_pylist()) == before
    assert sorted(pinned.collect().rows()) == before
    assert sorted(scanned.collect().rows()) == after, "a scan without a version looks when it is run"
    lake.append(1, 3, "a3")
    lake.publish(1)
    back = [*before, ("a3", 3)]
    assert by_engine(lake.path) == dict.fromkeys(ENGINES, back)
