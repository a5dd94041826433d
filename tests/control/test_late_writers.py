"""A driver that was frozen while its epoch was removed wakes up: a disk has no folder for it, S3 has no folders."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.s3_options import config_on

from kappa import clock
from kappa.config import Config
from kappa.control.removals import orphans, served_tables
from kappa.control.removals.leftovers import Present
from kappa.delta import row_files
from kappa.delta.access import create_table
from kappa.driver.driver import Driver
from kappa.errors import IllegalTransitionError, LakeUnreachableError, LedgerError, StaleWriterError
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs
from kappa.record.ledger import SEAL, Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.store.stores import store_of
from kappa_local.kafka import free_port

if TYPE_CHECKING:
    from support.s3_server import S3Server

WRITER = "driver"


@pytest.fixture(params=["disk", "s3"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    if request.param == "disk":
        return Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake")})
    return config_on(request.getfixturevalue("s3"), tmp_path)


def begun(config: Config) -> tuple[EpochPaths, Ledger]:
    """An epoch that was given up, and the ledger as its driver holds it."""
    epochs = Epochs(config.lake)
    for number, events in {1: ("planned", "aborted"), 2: ("planned", "rewound", "seeded", "moved")}.items():
        for event in events:
            epochs.add(
                "a.b", number, event, actor="test", **({"code": "c", "plan_id": "p"} if event == "planned" else {})
            )
    paths = EpochPaths(lake=config.lake, topology="a.b", epoch=1)
    ledger = Ledger(paths.ledger)
    ledger.create()
    ledger.claim(WRITER, "c", ledger.state())
    for path in (paths.changes("t"), paths.table("t")):
        create_table(path, pa.schema({"id": pa.int64()}))
    heartbeat.write(paths.heartbeat, heartbeat.this_process(WRITER, "c"))
    return paths, ledger


def row(kind: str = "commit") -> LedgerRow:
    return LedgerRow(kind=kind, seq=0, writer=WRITER, at=clock.now())


def paths_below(folder: str) -> list[str]:
    return sorted(file.path for file in store_of(folder).files(folder))


def removed(paths: EpochPaths) -> None:
    """What a removal does in the lake."""
    orphans.seal(paths.ledger)
    served_tables.remove(paths)
    store_of(paths.root).delete_folder(paths.root)


def leftovers(config: Config) -> list[str]:
    """The folders of epochs that housekeeping finds, which are removed then."""
    epochs = Epochs(config.lake)
    records = {"a.b": epochs.record("a.b")}
    lake, now = epochs.lake_id(), Present.of(config.lake)
    inventory = orphans.find(config, (), records, lambda _: None, lambda *_: None, lake, now)
    items = [item for item in inventory.leftovers if item.kind == "epoch folder"]
    orphans.remove(config, items, now)
    return [item.name for item in items]


def test_a_writer_of_a_sealed_ledger_appends_nothing_more(config: Config) -> None:
    paths, ledger = begun(config)
    orphans.seal(paths.ledger)
    with pytest.raises(StaleWriterError, match=SEAL):
        ledger.append(row())
    assert not ledger.has_claim(WRITER)
    rows = len(Ledger(paths.ledger).rows())
    orphans.seal(paths.ledger)
    assert len(Ledger(paths.ledger).rows()) == rows, "sealed once"


def test_a_writer_that_looked_before_the_seal_appends_nothing(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, ledger = begun(config)
    look = ledger.check_claim

    def frozen(writer: str, **options: bool) -> None:
        look(writer, **options)
        monkeypatch.setattr(ledger, "check_claim", look)
        orphans.seal(paths.ledger)

    monkeypatch.setattr(ledger, "check_claim", frozen)
    with pytest.raises(StaleWriterError, match=SEAL):
        ledger.append(row())
    assert [one.kind for one in Ledger(paths.ledger).rows()] == ["claim", "claim"]


def test_a_ledger_is_sealed_although_its_driver_appends_meanwhile(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, ledger = begun(config)
    remover = Ledger(paths.ledger)
    claim = remover.claim

    def outrun(*arguments: object, is_taken: bool = False) -> None:
        monkeypatch.setattr(remover, "claim", claim)
        ledger.append(row())
        claim(*arguments, is_taken=is_taken)  # type: ignore[arg-type]

    monkeypatch.setattr(remover, "claim", outrun)
    remover.seal()
    assert [one.kind for one in Ledger(paths.ledger).rows()] == ["claim", "commit", "claim"]


def test_a_removed_ledger_takes_no_row(config: Config) -> None:
    paths, ledger = begun(config)
    ledger.append(row())
    removed(paths)
    with pytest.raises((StaleWriterError, LedgerError)):
        ledger.append(row())
    assert not ledger.has_claim(WRITER)
    assert paths_below(paths.root) == []


@pytest.mark.parametrize("rest", ["data", "log", "nothing"])
def test_a_removal_that_died_half_way_goes_on(config: Config, rest: str) -> None:
    paths, ledger = begun(config)
    for _ in range(3):
        ledger.append(row())
    orphans.seal(paths.ledger)
    store = store_of(paths.root)
    files = paths_below(paths.ledger)
    gone = {
        "data": [path for path in files if "/_delta_log/" not in path],
        "log": [path for path in files if path.endswith(("0.json", "1.json"))],
        "nothing": files,
    }
    for path in gone[rest]:
        store.delete(path)
    removed(paths)
    assert paths_below(paths.root) == []


def test_no_heartbeat_comes_back_to_a_removed_folder(config: Config) -> None:
    paths, _ = begun(config)
    run = paths.recomputed("backfill-1").root
    beating = heartbeat.Beating(
        paths.heartbeat, heartbeat.this_process(WRITER, "c"), 60.0, lambda: Ledger(paths.ledger).has_claim(WRITER)
    )
    with heartbeat.at_work(run, WRITER, "c", 60.0), contextlib.closing(beating):
        removed(paths)
        beating.say(message="late")
        assert beating.is_lost
    assert paths_below(paths.root) == []


def test_what_a_late_writer_leaves_is_found_and_removed(config: Config) -> None:
    """Rows between two looks at the ledger: effects, the rows that a roll-up takes away."""
    paths, _ = begun(config)
    removed(paths)
    assert leftovers(config) == []
    for path in (paths.changes("t"), paths.table("t")):
        create_table(path, pa.schema({"id": pa.int64()}))
    row_files.keep(f"{paths.ledger}_history", "one", [{"n": 1}], pa.schema({"n": pa.int64()}))
    late = Ledger(paths.ledger)
    late.create()
    late.claim(WRITER, "c", late.state())  # came up before the removal, and looks at the record after this
    assert leftovers(config) == [paths.root, paths.table("t")]
    assert paths_below(paths.root) == [] and leftovers(config) == []
    with pytest.raises((StaleWriterError, LedgerError)):
        late.append(row())


def test_a_store_that_does_not_answer_stops_the_removal(s3: S3Server, tmp_path: Path) -> None:
    config = config_on(s3, tmp_path)
    paths, _ = begun(config)
    config_on(replace(s3, endpoint=f"http://127.0.0.1:{free_port()}"), tmp_path)
    with pytest.raises(LakeUnreachableError):
        orphans.seal(paths.ledger)


def test_the_number_of_a_removed_epoch_stays_on_record(config: Config) -> None:
    paths, _ = begun(config)
    removed(paths)
    epochs = Epochs(config.lake)
    assert max(epochs.record("a.b").epochs) == 2
    with pytest.raises(IllegalTransitionError, match="planned already"):
        epochs.add("a.b", 1, "planned", actor="test")


@pytest.mark.parametrize("rest", ["half a log", "nothing"])
def test_a_driver_that_lost_its_ledger_ends_because_its_epoch_has_ended(config: Config, rest: str) -> None:
    paths, _ = begun(config)
    store = store_of(paths.root)
    log = [file.path for file in store.files(paths.ledger) if file.path.endswith("0.json")]
    for path in paths_below(paths.ledger) if rest == "nothing" else log:
        store.delete(path)
    driver = object.__new__(Driver)
    driver.epoch = SimpleNamespace(paths=paths, writer=WRITER)  # type: ignore[assignment]
    driver.voice = SimpleNamespace(is_lost=True)  # type: ignore[assignment]
    assert driver._unwanted(Epochs(config.lake).record("a.b").epoch(1)) == "epoch is aborted"
