"""How long files of a published table stay, and which files stay for a publication that is to come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.published_lake import Lake

from kappa import clock
from kappa.delta import tables
from kappa.delta.published import PublishedTable

DAY = timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create(1)
    return lake


def overwrite(lake: Lake, seq: int) -> None:
    """A slice that replaces all rows."""
    schema = pa.schema(DeltaTable(lake.source(1)).schema().to_arrow())
    tables.overwrite(lake.source(1), pa.Table.from_pylist([{"_seq": seq, "id": "x"}], schema), seq)


def test_a_longer_retention_counts_from_the_next_publication_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC) - timedelta(hours=3)
    monkeypatch.setattr(clock, "now", lambda: now)
    lake.published = PublishedTable(lake.path, timedelta(hours=2))
    lake.append(1, 1, "a")
    lake.publish(1)
    (removed,) = lake.published.needed("_e0001")
    overwrite(lake, 2)
    lake.publish(1)
    now += timedelta(hours=1)
    lake.published = PublishedTable(lake.path, 7 * DAY)  # the driver was started again, with another setting
    overwrite(lake, 3)
    assert lake.publish(1) == 1
    assert DeltaTable(lake.path).metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 168 hours"
    assert [next(iter(action)) for action in lake.entry()].count("metaData") == 1
    now += timedelta(hours=2)
    DeltaTable(lake.path).create_checkpoint()  # what is older than the table's retention is not in it
    assert removed in PublishedTable(lake.path, 7 * DAY).needed("_e0001")
    overwrite(lake, 4)
    assert lake.publish(1) == 1
    assert "metaData" not in [next(iter(action)) for action in lake.entry()]
