"""A lake that was closed by a copy goes on where it was, if it did not go on elsewhere."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from support.live_lake import NAME, further_slices
from support.moved_lakes import Places, contents, copied, counted, full_lake, is_open, places
from support.s3_logins import certificates
from support.s3_server import S3Server

from kappa import clock
from kappa.acts import Act
from kappa.config import Config
from kappa.control.lakes import inventory, moving, opening
from kappa.control.lakes.transfer import Transfer
from kappa.errors import ConflictError, RefusedError, StaleWriterError
from kappa.names import ArchivePaths, EpochPaths
from kappa.record import epochs as epochs_module
from kappa.record import savepoints
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.store.options import declare


def ledgers(config: Config) -> dict[str, Ledger]:
    """The ledgers of a lake."""
    epoch = EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    return {"driver": Ledger(epoch.ledger), "archiver": Ledger(ArchivePaths(lake=config.lake, topic="pos").ledger)}


def claim(config: Config, who: str) -> None:
    """A driver, or an archiver, takes its ledger, as it does before all else."""
    ledger = ledgers(config)[who]
    ledger.claim("another", "code", ledger.state())


def way_back(lake: Places) -> Act[None]:
    """The way back, which nobody has gone yet."""
    return opening.reopen.planned(lake.config, actor="ann")


# A copy that came to its end


def test_a_lake_goes_on_where_it_was_and_is_closed_at_the_other_address(lake: Places) -> None:
    copied(lake)
    way_back(lake).make()
    assert lake.open_ones() == [lake.config.lake]
    for name, ledger in ledgers(lake.there).items():
        assert ledger.state().claim == ledger.rows()[-1], name
    with pytest.raises(StaleWriterError, match=f"claimed by the copy to {lake.config.lake}"):
        ledgers(lake.there)["driver"].check_claim("me")
    assert way_back(lake).effects == ()
    copied(lake)
    assert contents(lake.target) == contents(lake.config.lake)


@pytest.mark.parametrize("point", ["lake.back.closed", "lake.back.ledgers"])
def test_a_way_back_that_is_killed_is_finished_by_the_same_command(lake: Places, point: str) -> None:
    copied(lake).die_opening(point)
    assert lake.open_ones() == []
    way_back(lake).make()
    assert lake.open_ones() == [lake.config.lake]
    assert Epochs(lake.config.lake).events() == Epochs(lake.target, is_anywhere=True).events()


def test_a_copy_after_a_way_back_that_is_killed_is_finished_by_the_same_command(disk: Places) -> None:
    hashed = counted(copied(disk).config.lake)
    way_back(disk).make()  # its two commits are alike, and name files of their own
    for _ in range(2):
        disk.die("lake.entry")
        assert disk.open_ones() == []
    copied(disk)
    assert (counted(disk.target), contents(disk.target)) == (hashed, contents(disk.config.lake))


# The other one went on


def test_a_lake_whose_record_went_on_elsewhere_stays_closed(lake: Places) -> None:
    savepoints.create(copied(lake).there, NAME, "later", actor="ann")
    with pytest.raises(RefusedError, match=rf"has gone on.*KAPPA_LAKE=.*{lake.target}.* kappa lake copy"):
        way_back(lake)
    assert lake.open_ones() == [lake.target]


def test_a_record_that_was_rolled_up_elsewhere_is_still_that_of_the_lake(
    disk: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs_module, "ROLL_UP_EVENTS", 4)
    plan = {"plan_id": "p", "code": "c", "version": "1", "start": "{}", "origin": "{}", "live": None}
    here = Epochs(disk.config.lake)
    for epoch in (1, 2, 3):
        here.add("a.a", epoch, "planned", actor="ann", **plan)
        here.add("a.a", epoch, "rewound", actor="ann")
        here.add("a.a", epoch, "aborted", actor="ann")
    disk.die("lake.record")  # the mark of the copy stays
    assert disk.open_ones() == [disk.target]
    later = clock.now() + timedelta(days=2)
    monkeypatch.setattr(clock, "now", lambda: later)
    there = Epochs(disk.target)
    there.add("a.a", 4, "planned", actor="ann", **plan)
    there.add("a.a", 4, "aborted", actor="ann")
    assert there.rolled_up_to > 0
    before = contents(disk.target)
    moving.copy(disk.config, disk.target, actor="ann")
    assert {name: before[name] for name in contents(disk.target)} == contents(disk.target)
    assert moving.copy.planned(disk.config, disk.target, actor="ann").effects == ()
    with pytest.raises(RefusedError, match="has gone on"):
        way_back(disk)
    moving.copy(disk.there, disk.config.lake, actor="ann")
    assert disk.open_ones() == [disk.config.lake]
    assert Epochs(disk.config.lake).events() == Epochs(disk.target, is_anywhere=True).events()


@pytest.mark.parametrize("who", ["driver", "archiver"])
def test_a_lake_whose_slices_or_archives_went_on_elsewhere_stays_closed(disk: Places, who: str) -> None:
    early = way_back(copied(disk))
    claim(disk.there, who)
    for act in (early.make, lambda: way_back(disk).make()):
        with pytest.raises(RefusedError, match="has gone on"):
            act()
    assert disk.open_ones() == [disk.target]


def test_slices_that_came_while_the_other_lake_was_closed_are_not_lost(disk: Places) -> None:
    closing, *others = way_back(copied(disk)).effects
    closing.make()
    ledger = ledgers(disk.there)["driver"]
    ledger.claim("me", "code", ledger.state())
    further_slices(disk.there, 1)
    with pytest.raises(RefusedError, match="has gone on"):
        for effect in others:
            effect.make()
    assert disk.open_ones() == []
    moving.copy(disk.there, disk.config.lake, actor="ann")
    assert disk.open_ones() == [disk.config.lake]
    assert ledgers(disk.config)["driver"].begun().committed.seq == 4


# A copy that was begun


@pytest.mark.parametrize("point", ["lake.closed", "lake.files", "lake.entry", "lake.opening"])
def test_a_lake_goes_on_where_it_was_after_half_a_copy(lake: Places, point: str) -> None:
    lake.die(point)
    assert lake.open_ones() == []
    way_back(lake).make()
    assert lake.open_ones() == [lake.config.lake]
    copied(lake)
    assert contents(lake.target) == contents(lake.config.lake)


@pytest.mark.parametrize("point", ["lake.closed", "lake.files", "lake.opening"])
def test_a_copy_that_wakes_up_after_the_way_back_opens_nothing(disk: Places, point: str) -> None:
    with disk.frozen(point) as woken:
        assert disk.open_ones() == []
        way_back(disk).make()
        claim(disk.config, "driver")
        code, errors = woken()
    assert code == 3 and "\nConflictError: " in errors, errors
    assert disk.open_ones() == [disk.config.lake]
    ledgers(disk.config)["driver"].check_claim("another")


def test_a_copy_that_wakes_up_at_its_last_step_opens_nothing_on_s3(lake: Places) -> None:
    with lake.frozen("lake.opening") as woken:
        way_back(lake).make()
        assert woken()[0] == 3
    assert lake.open_ones() == [lake.config.lake]


def test_no_copy_can_create_the_file_that_opens_a_lake_after_the_way_back(lake: Places) -> None:
    lake.die("lake.opening")
    opener = inventory.opener(inventory.of_record(contents(lake.config.lake)))
    way_back(lake).make()
    assert not Transfer(lake.config.lake, lake.target, lambda _: None).create(opener)
    assert lake.open_ones() == [lake.config.lake]


def test_a_copy_that_wakes_up_after_another_one_has_begun_opens_nothing(disk: Places) -> None:
    with disk.frozen("lake.files") as woken:
        disk.die("lake.entry")
        code, errors = woken()
    assert code == 3 and "another copy has begun since" in errors
    assert disk.open_ones() == []
    copied(disk)


def test_a_copy_waits_for_a_way_back_that_is_killed(disk: Places) -> None:
    disk.die("lake.opening")
    disk.die_opening("lake.back.fenced")
    with pytest.raises(RefusedError, match=rf"KAPPA_LAKE={disk.config.lake} kappa lake open --execute$"):
        moving.copy(disk.config, disk.target, actor="ann")
    assert disk.open_ones() == []
    way_back(disk).make()
    assert disk.open_ones() == [disk.config.lake]
    copied(disk)


def test_a_way_back_ends_if_the_lake_was_opened_and_closed_meanwhile(disk: Places) -> None:
    disk.die("lake.files")
    fence, opened = way_back(disk).effects
    fence.make()
    way_back(disk).make()
    copied(disk)
    with pytest.raises(ConflictError, match="came to its end meanwhile"):
        opened.make()
    assert disk.open_ones() == [disk.target]


def test_a_way_back_is_no_match_for_a_copy_that_ends_before_it(disk: Places) -> None:
    disk.die("lake.entry")
    early = way_back(disk)
    copied(disk)
    with pytest.raises(ConflictError, match="came to its end meanwhile"):
        early.make()
    assert disk.open_ones() == [disk.target]


def test_half_a_copy_over_an_older_state_does_not_open(disk: Places) -> None:
    copied(disk)
    savepoints.create(disk.there, NAME, "later", actor="ann")
    back = disk.back
    back.die("lake.closed")  # the older state is at the target as it was
    way_back(back).make()
    assert disk.open_ones() == [disk.target]
    assert not is_open(disk.config.lake)
    copied(back)


# Nobody can see it


def test_a_lake_that_cannot_be_read_has_to_be_given_up(disk: Places) -> None:
    shutil.rmtree(copied(disk).target)
    with pytest.raises(RefusedError, match=r"Nobody can see whether.*neither a lake.*kappa lake open --give-up"):
        way_back(disk)
    assert disk.open_ones() == []
    answer = disk.kappa("lake", "open", "--give-up")
    assert f"The lake at {disk.target} is given up" in answer.stdout, answer.stderr
    opening.reopen(disk.config, actor="ann", gives_up=True)
    assert disk.open_ones() == [disk.config.lake]


def test_a_lake_in_a_store_that_refuses_has_to_be_given_up(lake: Places, tmp_path: Path) -> None:
    copied(lake)
    if not lake.config.lake_client_file:
        Path(lake.target, "_kappa/epochs/_delta_log").rename(tmp_path / "aside")
    else:
        (tmp_path / "empty.properties").write_text("aws_endpoint_url=http://127.0.0.1:1\n")
    other = replace(lake.config, lake_client_file=lake.config.lake_client_file and str(tmp_path / "empty.properties"))
    with pytest.raises(RefusedError, match="Nobody can see whether"):
        opening.reopen(other, actor="ann")
    assert not is_open(lake.config.lake)
    opening.reopen(other, actor="ann", gives_up=True)
    assert is_open(lake.config.lake)


def test_a_folder_without_a_lake_is_not_opened(disk: Places, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="there is no lake that could be opened"):
        opening.reopen(replace(disk.config, lake=str(tmp_path / "nothing")), actor="ann")


def test_a_log_opens_with_its_newest_checkpoint() -> None:
    names = [f"_kappa/epochs/_delta_log/{n:020}.{end}" for n, end in ((9, "json"), (10, "checkpoint.parquet"))]
    names += [f"_kappa/epochs/_delta_log/{n:020}.json" for n in (10, 11)]
    record = inventory.of_record(names)
    assert inventory.opener(record).endswith("10.checkpoint.parquet")
    assert inventory.opener([name for name in record if name.endswith("json")]).endswith("09.json")


def test_copy_and_way_back_have_the_cache_of_their_settings(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where authorities are put: the default one may be in a home that cannot be written."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_FILE_OF_KAPPA", "SSL_CERT_FILE_BEFORE_KAPPA"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates(tmp_path)[1]))
    lake = places(full_lake(tmp_path, monkeypatch), f"{s3.url}/moved", s3, tmp_path)
    first, second = (replace(lake.config, cache=tmp_path / name) for name in ("first", "second"))
    moving.copy(first, lake.target, actor="ann")
    assert list(first.cache.glob("authorities-*.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", "")
    opening.reopen(second, actor="ann")
    assert list(second.cache.glob("authorities-*.pem"))
    declare(lake.target, "")
