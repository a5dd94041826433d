"""How long files of a published table stay, and which files stay for a publication that is to come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.published_lake import Lake

from kappa import clock
from kappa.delta import tables, vacuum
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


@pytest.mark.parametrize("most_entries", [200, 4, 2])
@pytest.mark.parametrize("hours", [30, 0, -30])
def test_a_late_publication_names_no_file_that_upkeep_removed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, hours: int, most_entries: int
) -> None:
    """Whatever the clocks say: the publication before may have been made by a host whose clock was ahead."""
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 2)
    monkeypatch.setattr("kappa.delta.published.MOST_ENTRIES", most_entries)
    now = datetime.now(UTC)
    monkeypatch.setattr(clock, "now", lambda: now)
    lake.append(1, 1, "a")
    lake.publish(1)
    now += timedelta(hours=hours)
    for seq in (2, 3, 4):
        lake.append(1, seq, f"r{seq}")
    vacuum.compact(lake.source(1))
    newest = DeltaTable(lake.source(1)).version()
    spared = lake.published.needed("_e0001")
    vacuum.vacuum(lake.source(1), lambda: [newest], age=timedelta(0), check=lambda: None, spared=spared)
    lake.append(1, 5, "r5")
    commits = lake.publish(1)
    assert commits == (3 if most_entries == 200 else 1), "merged files are a commit of their own where that is possible"
    assert [lake.ids(version) for version in range(1, commits)] == [["a", "r2", "r3", "r4"]] * (commits - 1)
    assert lake.ids() == ["a", "r2", "r3", "r4", "r5"]
    vacuum.vacuum(lake.source(1), tuple, age=timedelta(0), check=lambda: None, spared=lake.published.needed("_e0001"))
    assert lake.ids(0) == ["a"] and lake.ids(1)[:2] == ["a", "r2"]


def test_files_of_an_epoch_that_is_not_shown_stay_for_no_publication(lake: Lake) -> None:
    """It is shown as a whole when it goes live again."""
    lake.append(1, 1, "a")
    lake.publish(1)
    lake.create(2)
    lake.append(2, 1, "A")
    lake.publish(2)
    (file,) = lake.published.needed("_e0001")
    lake.append(1, 2, "b")
    assert lake.published.needed("_e0001") == {file}
