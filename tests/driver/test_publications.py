"""Looks of a live driver at what it has to publish, without Spark or a broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support import epoch_record
from support.live_lake import NAME, fill, live_lake, open_run
from support.s3_options import config_on

from kappa.config import Config
from kappa.delta import tables, vacuum
from kappa.delta.access import open_table
from kappa.delta.publication import EPOCH, SEQ, Origin
from kappa.delta.published import PublishedTable
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.merges import Merges
from kappa.driver.publications import Publications
from kappa.driver.voice import Voice
from kappa.record.ledger_state import LedgerState
from kappa.record.merge_on_read import contents_of
from kappa.slices.merging import merge_between
from kappa.slices.places import record_files
from kappa.topology.shapes import shapes_of

PLACE = "outputs/notifications"
#: Values of columns by their types in Arrow; numbers aside.
VALUES = {"string": "x", "timestamp[us, tz=UTC]": datetime(2026, 3, 1, tzinfo=UTC)}


@pytest.fixture(params=["disk"])
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A lake with a live epoch of two slices."""
    if request.param == "disk":
        return live_lake(tmp_path, monkeypatch)
    config = config_on(request.getfixturevalue("s3"), tmp_path)
    fill(config)
    return config


@pytest.fixture
def epoch(config: Config) -> DrivenEpoch:
    """The live epoch, claimed by a driver."""
    epoch = DrivenEpoch(config, NAME, 1)
    epoch.ledger.claim(epoch.writer, epoch.code, epoch.ledger.state())
    return epoch


@pytest.fixture
def publications(epoch: DrivenEpoch) -> Publications:
    voice = Voice(epoch)
    return Publications(epoch, voice, Merges(epoch, LazyEngines(epoch, voice), voice))


def append(epoch: DrivenEpoch, seq: int) -> None:
    """A row of an output, of a slice that is on record."""
    path = epoch.paths.place(PLACE)
    schema = pa.schema(DeltaTable(path).schema().to_arrow())
    row = {field.name: seq if field.name == "_seq" else VALUES.get(str(field.type), 1) for field in schema}
    tables.append(path, pa.Table.from_pylist([row], schema), seq)


def test_a_look_on_request_publishes_all_of_the_way_over_merged_files(
    config: Config, epoch: DrivenEpoch, publications: Publications, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 2)
    publications.look(epoch.record(), is_asked=True)
    for seq in (3, 4, 5):
        append(epoch, seq)
    vacuum.compact(epoch.paths.place(PLACE))
    append(epoch, 6)
    run = open_run(config)
    run.writer = epoch.writer
    record_files(run)
    epoch.ledger.state()
    publications.look(epoch.record(), is_asked=True)
    published = DeltaTable(epoch.paths.published("notifications"))
    assert (published.version(), published.transaction_version(SEQ)) == (3, 6)
    assert published.to_pyarrow_table().num_rows == 4


def test_a_look_with_a_record_from_before_a_move_publishes_nothing(
    config: Config, epoch: DrivenEpoch, publications: Publications
) -> None:
    record = epoch.record()
    moved = {"moved": {"from": 1, "at": {"pos": {"0": 2}}}}
    epoch_record.tell(config, NAME, 2, *epoch_record.SECOND, "moved", by_event=moved)
    publications.look(record, is_asked=True)
    assert not DeltaTable.is_deltatable(epoch.paths.published("notifications"))


def test_what_the_epoch_before_published_since_the_preparation_delays_nothing(
    epoch: DrivenEpoch, publications: Publications
) -> None:
    path = epoch.paths.place(PLACE)
    before = PublishedTable(epoch.paths.published("notifications"), timedelta(days=7))
    origin = Origin(path=path, folder="_e0009", epoch=9, version=0)
    before.publish(origin, before.version)
    publications.prepare()
    append(epoch, 3)
    before.publish(replace(origin, version=1), before.version)
    publications.look(epoch.record(), is_asked=True)
    published = DeltaTable(before.path)
    assert (published.version(), published.transaction_version(EPOCH)) == (2, 1)


@pytest.mark.parametrize("has_offsets", [True, False])
def test_a_table_is_not_published_while_it_lacks_what_readers_have_seen(
    config: Config, epoch: DrivenEpoch, publications: Publications, monkeypatch: pytest.MonkeyPatch, has_offsets: bool
) -> None:
    shapes = shapes_of(epoch.topology)
    monkeypatch.setattr(LedgerState, "shapes", property(lambda _: shapes))
    committed = epoch.ledger.begun().committed
    assert not contents_of(epoch.paths, committed, "rewards").is_merged
    path, offsets = epoch.paths.changes("rewards"), committed.standing.as_dict() if has_offsets else None
    before = PublishedTable(epoch.paths.published("rewards"), timedelta(days=7))
    version = tables.version(path)  # its rows are those of another epoch's table here
    before.publish(
        Origin(path=path, folder="_e0009", epoch=9, version=version, offsets=lambda _: offsets), before.version
    )
    publications.look(epoch.record(), is_asked=True, may_merge=True)
    assert DeltaTable(before.path).transaction_version(EPOCH) == 9, "nothing is open yet that merges"
    run = open_run(config)
    run.writer = epoch.writer
    assert merge_between(run, is_asked=True)
    epoch.ledger.state()
    publications.look(epoch.record(), is_asked=True, may_merge=True)
    published = DeltaTable(before.path)
    assert (published.transaction_version(EPOCH), published.transaction_version(SEQ)) == (1, committed.seq)


@pytest.mark.parametrize("config", ["disk", "S3"], indirect=True)
def test_a_table_that_is_merged_while_no_slice_comes_is_published(
    config: Config, epoch: DrivenEpoch, publications: Publications, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = shapes_of(epoch.topology)
    monkeypatch.setattr(LedgerState, "shapes", property(lambda _: shapes))
    publications.look(epoch.record(), is_asked=True)
    path = epoch.paths.published("rewards")
    assert open_table(path).to_pyarrow_table().num_rows == 0
    run = open_run(config)
    run.writer = epoch.writer
    assert merge_between(run, is_asked=True)
    committed = epoch.ledger.begun().committed
    publications.look(epoch.record(), is_asked=True)
    assert open_table(path).transaction_version(SEQ) == committed.seq
    assert open_table(path).to_pyarrow_table().num_rows == 2
