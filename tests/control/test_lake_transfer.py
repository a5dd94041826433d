"""Files on their way to another lake: what cannot be read is named, and what is no file is not taken for one."""

from __future__ import annotations

import errno
import http.client
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.damages import drain
from support.live_lake import NAME, open_run
from support.moved_lakes import Places, contents, copied, full_lake, is_open, places, write
from support.s3_server import S3Server

from kappa import clock
from kappa.archive.writer import Archiver
from kappa.control.lakes import inventory, moving, transfer
from kappa.control.lakes.transfer import Freight
from kappa.control.lakes.writers import Writers
from kappa.errors import DamagedTableError, LakeMovedError, LakeUnreachableError, RefusedError
from kappa.names import ArchivePaths, EpochPaths
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.store.options import declare
from kappa.store.stores import PIECE_BYTES, store_of


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """A lake on a disk, and a place for it on S3."""
    target = f"{s3.url}/moved"
    yield places(full_lake(tmp_path, monkeypatch), target, s3, tmp_path)
    declare(target, "")


def until(lake: Places, effect: str) -> Callable[[], object]:
    """A copy up to an effect, which is left to be made."""
    for one in moving.copy.planned(lake.config, lake.target, actor="ann").effects:
        if one.what.startswith(effect):
            return one.make
        one.make()
    raise AssertionError(effect)


# What is there


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_lake_with_links_that_are_not_followed_is_not_copied(disk: Places, tmp_path: Path, is_folder: bool) -> None:
    place = tmp_path / "large disk"
    if is_folder:
        place.mkdir()
    link = Path(disk.config.lake, f"{NAME}/e0001/changes/far")
    link.symlink_to(place)
    with pytest.raises(RefusedError, match=f"{link} is a link to a folder, or to nothing"):
        moving.copy(disk.config, disk.target, actor="ann")
    assert is_open(disk.config.lake) and not Path(disk.target).exists()
    link.unlink()
    file = Path(disk.config.lake, "_kappa/plans/1.json")
    file.rename(tmp_path / "plan")
    file.symlink_to(tmp_path / "plan")
    copied(disk)
    assert contents(disk.target)["_kappa/plans/1.json"] == b"{}"


def test_objects_for_folders_are_not_files(bucket: Places, s3: S3Server) -> None:
    def make_folder(name: str) -> None:
        connection = http.client.HTTPConnection(s3.endpoint.removeprefix("http://"))
        connection.request("PUT", f"/{s3.bucket}/moved/{name}", body=b"")
        assert connection.getresponse().status == http.client.OK

    make_folder("")
    assert list(store_of(bucket.target).files(bucket.target)) == []
    copied(bucket)
    for name in ("_kappa/", f"{NAME}/e0001/tables/rewards/_delta_log/", "empty/"):
        make_folder(name)
    write(bucket.target, "_kappa/plans/none.json", b"")  # a file may have no content
    write(bucket.config.lake, "_kappa/plans/none.json", b"")
    assert inventory.sizes(bucket.target) == {
        name: len(content) for name, content in contents(bucket.config.lake).items() if inventory.is_copied(name)
    }
    copied(bucket.back)
    assert contents(bucket.config.lake) == contents(bucket.target)


def test_a_lake_with_a_file_that_s3_cannot_have_is_not_copied(bucket: Places) -> None:
    folder = Path(bucket.config.lake, "_kappa/plans")
    for name in ("a\nb.json", "\x7f", os.fsdecode(b"caf\xe9.json"), f"{'d' * 200}/" * 5 + "e"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"{}")
        with pytest.raises(RefusedError, match=r"one of 1, cannot be an object of s3://.*: kappa lake copy"):
            moving.copy.planned(bucket.config, bucket.target, actor="ann")
        file.unlink()
    assert inventory.sizes(bucket.target) == {}
    for name in ("a b?%zz*#.json", "é.json", f"{'d' * 200}/" * 4 + "e"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}")
    copied(bucket)
    assert contents(bucket.target) == contents(bucket.config.lake)


# What cannot be read


def test_a_file_that_cannot_be_read_is_named(disk: Places) -> None:
    file = Path(disk.config.lake, "_kappa/plans/2.json")
    file.symlink_to("/proc/self/mem")  # a file whose first byte nobody can read
    with pytest.raises(LakeUnreachableError, match=f"{file} cannot be read: Input/output error.*kappa lake copy$"):
        moving.copy(disk.config, disk.target, actor="ann")
    file.unlink()
    copied(disk)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOENT])
def test_an_error_after_some_pieces_is_one_of_reading(
    bucket: Places, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def torn(path: str) -> Iterator[bytes]:
        yield bytes(PIECE_BYTES)
        raise OSError(error, os.strerror(error), path)

    monkeypatch.setattr(transfer, "pieces", torn)
    way = transfer.Transfer(bucket.config.lake, bucket.target, lambda _: None)
    if error == errno.ENOENT:
        way.copy("copying", {"large": 2 * PIECE_BYTES})
    else:
        with pytest.raises(LakeUnreachableError, match=f"{bucket.config.lake}/large cannot be read"):
            way.copy("copying", {"large": 2 * PIECE_BYTES})
    assert inventory.sizes(bucket.target) == {}


def test_a_folder_that_cannot_be_listed_is_named(disk: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, scandir = f"{disk.config.lake}/lost+found", os.scandir
    Path(folder).mkdir()

    def guarded(path: str) -> object:
        if path == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)  # this user may be root, whom no right keeps out
    with pytest.raises(LakeUnreachableError, match=r"lost\+found cannot be listed: Permission denied"):
        moving.copy(disk.config, disk.target, actor="ann")


def test_a_lake_with_a_damaged_ledger_is_not_closed(disk: Places) -> None:
    ledger = EpochPaths(lake=disk.config.lake, topology=NAME, epoch=1).ledger
    reason = drain(max(Path(f"{ledger}/_delta_log").glob("*.json")))
    for _ in range(2):
        with pytest.raises(DamagedTableError, match=reason):
            moving.copy(disk.config, disk.target, actor="ann")
        assert is_open(disk.config.lake)


# Who writes meanwhile


def test_an_archiver_that_claims_after_the_lake_was_closed_ends(disk: Places) -> None:
    class Late(Archiver):
        def _check(self) -> None:
            rest()

    rest = until(disk, "close this lake")
    with pytest.raises(LakeMovedError, match="has moved to"):
        Late(disk.config, "pos")._claim()
    assert heartbeat.read(ArchivePaths(lake=disk.config.lake, topic="pos").heartbeat) is None
    copied(disk)


@pytest.mark.parametrize("what", ["copying logs", "comparing"])
def test_what_comes_while_the_rest_is_copied_is_copied_too(disk: Places, what: str) -> None:
    ledger = Ledger(ArchivePaths(lake=disk.config.lake, topic="pos").ledger)
    present: set[str] = set()

    def disturb(freight: Freight) -> None:
        present.add(freight.what)
        late = Path(disk.config.lake, "_archive/pos/records/late.parquet")
        if freight.what == what and "copying logs" in present and not late.exists():
            ledger.claim("late", "", ledger.state())
            write(disk.config.lake, "_archive/pos/records/late.parquet")

    moving.copy(disk.config, disk.target, actor="ann", progress=disturb)
    assert disk.open_ones() == [disk.target]
    assert contents(disk.target) == contents(disk.config.lake)
    claim = ledger.state().claim
    assert claim is not None and claim.writer == "nobody"


def test_a_driver_that_goes_on_all_the_same_is_waited_for_and_named(disk: Places) -> None:
    lake = replace(disk, config=replace(disk.config, stale_seconds=0.3))
    paths, lines = EpochPaths(lake=lake.config.lake, topology=NAME, epoch=1), list[str]()
    effects = moving.copy.planned(
        lake.config, lake.target, actor="ann", progress=lambda freight: lines.append(freight.what)
    ).effects
    close = next(index for index, effect in enumerate(effects) if effect.what.startswith("close this lake"))
    for effect in effects[: close + 1]:
        effect.make()
    beating = heartbeat.Beating(paths.heartbeat, heartbeat.this_process("me", "code"), 0.02, lambda: True)
    try:
        who = f"the driver of epoch 1 of {NAME}, process {os.getpid()} on "
        with pytest.raises(RefusedError, match=rf"{who}.*kill -9 {os.getpid()}; then again: kappa lake copy .*execute"):
            effects[close + 1].make()
    finally:
        beating.close()
    assert any(line.startswith(f"waiting for {who}") for line in lines)
    copied(lake)


def test_dead_drivers_of_other_hosts_are_waited_for_together(disk: Places) -> None:
    lines, stale, count = list[str](), 2.0, 8
    topics = [f"t{number}" for number in range(count)]
    for topic in topics:
        paths = ArchivePaths(lake=disk.config.lake, topic=topic)
        Ledger(paths.ledger).create()
        heartbeat.write(paths.heartbeat, replace(heartbeat.this_process("me", "code"), host="another", boot="another"))
    writers = Writers(disk.config.lake, Epochs(disk.config.lake), stale)
    began = time.monotonic()
    assert writers.working(lambda freight: lines.append(freight.what)) == []
    assert stale < time.monotonic() - began < count * stale / 2
    assert lines == ["looking which drivers and archivers run"]


def test_the_move_of_a_lake_is_not_an_attempt_at_the_slice_that_is_open(disk: Places) -> None:
    run = open_run(disk.config)
    seq = run.ledger.state().seq + 1
    run.ledger.append(LedgerRow(kind="plan", seq=seq, writer="me", at=clock.now()))
    copied(disk)
    ledger = Ledger(EpochPaths(lake=disk.target, topology=NAME, epoch=1).ledger)
    assert ledger.state().tries == 0
    ledger.claim("first", "code", ledger.state())
    assert ledger.state().tries == 1
