"""Engines that read a published table by its path, before and after it shows another epoch."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from support.path_readers import by_engine, rows_of
from support.published_lake import SCHEMA, Lake

from kappa.store.options import options_of

ENGINES = ("deltalake", "polars", "duckdb")


@pytest.fixture(params=["disk", "S3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A published table that was never published."""
    return Lake(request.getfixturevalue("s3_lake") if request.param == "S3" else tmp_path)


def test_engines_read_the_same_rows_over_a_cutover_and_of_earlier_versions(lake: Lake) -> None:
    lake.create(1)
    for seq in (1, 2):
        lake.append(1, seq, f"a{seq}")
        lake.publish(1)
    options = options_of(lake.path)
    opened = DeltaTable(lake.path, storage_options=options)
    before, version = rows_of(lake.path), opened.version()
    pinned = pl.scan_delta(lake.path, version=version, storage_options=options)
    scanned = pl.scan_delta(lake.path, storage_options=options)
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
