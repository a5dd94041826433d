"""Ages of files on S3 are by the store's clock, whatever the clock of this host says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.s3_options import config_on

from kappa import clock
from kappa.config import Config
from kappa.control.removals import orphans
from kappa.control.removals.leftovers import Present
from kappa.control.removals.orphans import GRACE
from kappa.delta import access, vacuum
from kappa.names import code_file, plan_file
from kappa.record.epochs import Epochs
from kappa.store.stores import store_of

if TYPE_CHECKING:
    from support.s3_server import S3Server

#: Days by which this host's clock is wrong.
SKEWS = [timedelta(days=2), timedelta(days=-2)]


@pytest.fixture
def config(s3: S3Server, tmp_path: Path) -> Config:
    return config_on(s3, tmp_path)


def skew(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Set this host's clock wrong."""
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + by)
    monkeypatch.setattr("time.time", (datetime.now(UTC) + by).timestamp)


@pytest.mark.parametrize("by", SKEWS, ids=str)
def test_a_file_that_was_just_written_is_new(config: Config, monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    skew(monkeypatch, by)
    store, path = store_of(config.lake), f"{config.lake}/file"
    store.put(path, b"one")
    file = store.head(path)
    assert file is not None
    assert timedelta(0) <= store.now(config.lake) - file.modified < timedelta(minutes=1)
    assert not store.discard(path, store.now(config.lake) - GRACE)
    assert store.discard(path, store.now(config.lake) + GRACE)


@pytest.mark.parametrize("by", SKEWS, ids=str)
def test_a_refreshed_file_is_written_anew(config: Config, monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    skew(monkeypatch, by)
    store, path = store_of(config.lake), f"{config.lake}/file"
    store.put(path, b"one")
    store.refresh(path, b"two")  # the same content in earnest
    assert store.get(path) == b"two"


def test_on_a_disk_the_present_is_that_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: at)
    assert store_of(str(tmp_path)).now(str(tmp_path)) == at
    assert list(tmp_path.iterdir()) == []


def test_housekeeping_leaves_new_files_alone(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = Epochs(config.lake)
    epochs.add("a.b", 1, "planned", actor="test", code="c", plan_id="p")
    store, places = store_of(config.lake), [plan_file(config.lake, "other"), code_file(config.lake, "other")]
    for place in places:
        store.put(place, b"for an epoch that is put on record next")
    skew(monkeypatch, timedelta(days=2))
    times = Present.of(config.lake)
    records, lake = {"a.b": epochs.record("a.b")}, epochs.lake_id()

    def leftovers(now: Present) -> list[str]:
        inventory = orphans.find(config, (), records, lambda _: None, lambda *_: None, lake, now)
        return sorted(item.name for item in inventory.leftovers if item.kind in ("plan", "code"))

    assert times.host - times.lake > timedelta(days=1)
    assert leftovers(times) == []
    later = Present(host=times.host, lake=times.lake + 2 * GRACE)
    assert leftovers(later) == sorted(places)


def test_files_of_a_table_are_as_old_as_the_store_says(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{config.lake}/t"
    options = access.storage_options(path)
    for value in range(3):
        write_deltalake(path, pa.table({"a": [value]}), mode="overwrite", storage_options=options)
    assert DeltaTable(path, storage_options=options).version() == 2
    skew(monkeypatch, timedelta(days=2))
    removed = vacuum.vacuum(path, lambda: (), age=timedelta(minutes=5), check=lambda: None)
    assert removed == 0, "two files are not needed, and a moment old"
    assert vacuum.vacuum(path, lambda: (), age=timedelta(0), check=lambda: None) == 2
