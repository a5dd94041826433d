"""One record per process and lake, by topology: each look reads what is new, and builds what it is asked for."""

import multiprocessing
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.growth import calls

from kappa.delta import tail_table
from kappa.errors import LedgerError
from kappa.names import epochs_log
from kappa.record.epochs import Epochs, epochs_of
from kappa.record.events import Event, EventKind
from kappa.record.topology_records import record_of
from kappa.replay import stored
from kappa.store.stores import store_of


def planned(lake: str, topology: str, epoch: int = 1) -> None:
    Epochs(lake).add(topology, epoch, "planned", actor="test", code="c", version="1", plan_id="p")


def test_a_topology_keeps_its_record_until_something_of_it_is_new(tmp_path: Path) -> None:
    lake = str(tmp_path)
    planned(lake, "a.a")
    planned(lake, "b.b")
    epochs = Epochs(lake)
    a, b = epochs.record("a.a"), epochs.record("b.b")
    planned(lake, "b.b", 2)
    assert epochs.record("a.a") is a
    assert epochs.record("b.b") is not b and sorted(epochs.record("b.b").epochs) == [1, 2]
    assert [(event.n, event.topology) for event in epochs.events()] == [(1, "a.a"), (2, "b.b"), (3, "b.b")]


def test_an_earlier_look_stays_as_it_was(tmp_path: Path) -> None:
    lake = str(tmp_path)
    planned(lake, "a.a")
    now = Epochs(lake).now("a.a")
    later = now.after([now.event("aborted", 1, actor="test")])
    assert [now.record.epoch(1).stage, later.record.epoch(1).stage] == ["PLANNED", "ABORTED"]
    assert (now.records.last, later.records.last) == (1, 2)
    assert now.after([]).records is now.records


def test_a_process_has_one_record_per_lake(tmp_path: Path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    planned(one, "a.a")
    planned(other, "b.b")
    assert epochs_of(one) is epochs_of(one) is not epochs_of(other)
    assert epochs_of(one).topologies() == ["a.a"] and epochs_of(other).topologies() == ["b.b"]


def test_a_lake_that_is_removed_and_made_again_has_a_new_record(tmp_path: Path) -> None:
    lake = str(tmp_path)
    assert epochs_of(lake).topologies() == []
    planned(lake, "a.a")
    assert epochs_of(lake).topologies() == ["a.a"]
    shutil.move(epochs_log(lake), tmp_path / "away")
    assert epochs_of(lake).topologies() == []
    planned(lake, "b.b")
    assert epochs_of(lake).topologies() == ["b.b"]


def test_a_child_of_a_process_has_a_record_of_its_own(tmp_path: Path) -> None:
    lake = str(tmp_path)
    planned(lake, "a.a")
    parent = epochs_of(lake)
    with parent._lock:  # as another thread of the parent would hold it
        child = multiprocessing.get_context("fork").Process(target=_look, args=(lake,))
        child.start()
        child.join()
    assert child.exitcode == 0


def _look(lake: str) -> None:
    assert epochs_of(lake)._lock.acquire(blocking=False)


def test_a_row_that_cannot_be_read_is_read_again_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path)
    planned(lake, "a.a")
    epochs, read = Epochs(lake), stored.read

    def fail(*_: Any) -> Any:
        raise LedgerError("cut short")

    monkeypatch.setattr(stored, "read", fail)
    for _ in range(2):
        with pytest.raises(LedgerError, match="cut short"):
            epochs.record("a.a")
    monkeypatch.setattr(stored, "read", read)
    assert sorted(epochs.record("a.a").epochs) == [1]


def test_a_look_may_be_as_old_as_its_caller_allows(tmp_path: Path) -> None:
    lake = str(tmp_path)
    planned(lake, "a.a")
    epochs = Epochs(lake)
    before = epochs.records(age_seconds=60)
    planned(lake, "b.b")
    assert epochs.records(age_seconds=60) is before
    assert epochs.records().topologies == ["a.a", "b.b"]


def test_a_record_that_was_put_back_from_a_copy_is_read_anew(tmp_path: Path) -> None:
    lake, copy = str(tmp_path / "lake"), tmp_path / "copy"
    planned(lake, "a.a")
    shutil.copytree(epochs_log(lake), copy)
    planned(lake, "b.b")
    epochs = Epochs(lake)
    assert epochs.topologies() == ["a.a", "b.b"]
    shutil.rmtree(epochs_log(lake))
    shutil.copytree(copy, epochs_log(lake))
    assert epochs.topologies() == ["a.a"]
    epochs.add("a.a", 1, "aborted", actor="test")
    assert [event.n for event in epochs.events()] == [1, 2]


def test_a_lake_that_is_made_again_is_never_mixed_with_the_one_before(tmp_path: Path) -> None:
    """Also where the log of the new one is longer, shorter, or as long, and its inodes are those of the old one."""
    lake = str(tmp_path / "lake")
    ids = set()
    for number in range(24):
        shutil.rmtree(lake, ignore_errors=True)
        for event in range(1 + number * 5 % 3):
            planned(lake, f"t.t{number}", event + 1)
        record = epochs_of(lake)
        assert record.topologies() == [f"t.t{number}"]
        assert len(record.events()) == 1 + number * 5 % 3
        ids.add(record.lake_id())
    assert len(ids) == 24


@pytest.mark.parametrize("count", [1, 12, 30])
def test_a_long_record_that_is_made_again_is_read_anew(tmp_path: Path, count: int) -> None:
    lake = str(tmp_path / "lake")
    record = epochs_of(lake)
    for epoch in range(25):
        planned(lake, "a.a", epoch + 1)
        record = epochs_of(lake)
        assert len(record.events()) == epoch + 1
    shutil.rmtree(lake)
    for epoch in range(count):
        planned(lake, "b.b", epoch + 1)
    assert epochs_of(lake) is record
    assert (record.topologies(), len(record.events())) == (["b.b"], count)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_record_on_s3_that_is_made_again_is_read_anew(
    proxied_lake: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2):
        planned(proxied_lake, "a.a", epoch)
    record = Epochs(proxied_lake)
    before = (record.lake_id(), record.topologies())
    store_of(proxied_lake).delete_folder(proxied_lake)
    for epoch in range(count):
        planned(proxied_lake, "b.b", epoch + 1)
    if count < 3:  # there is no later entry: a minute passes
        monkeypatch.setattr(tail_table, "NEXT_ENTRY_SECONDS", -1.0)
    assert (record.topologies(), len(record.events())) == (["b.b"], count)
    assert before[1] == ["a.a"] and record.lake_id() not in ("", before[0])
    assert sorted(record.record("b.b").epochs) == list(range(1, count + 1))


def test_a_decision_that_ends_does_not_go_over_all_that_are_pending() -> None:
    def event(n: int, kind: EventKind, **detail: Any) -> Event:
        at = datetime(2026, 1, 2, tzinfo=UTC)
        return Event(n=n, topology="a.a", epoch=1, event=kind, at=at, actor="test", detail=detail)

    def read(count: int) -> None:
        events = [event(1, "planned")]
        for kind, end in (("backfill", "backfilled"), ("set_aside", "set_aside_withdrawn")):
            first = len(events) + 1
            events += [event(first + n, kind) for n in range(count)]
            events += [event(first + count + n, end, **{kind: first + n}) for n in range(1, count)]
        epoch = record_of("a.a", events).epoch(1)
        assert [one.n for one in epoch.backfills] == [2]
        assert [one.n for one in epoch.set_asides] == [2 * count + 1]
        assert len(epoch.backfilled) == count - 1

    assert calls(lambda: read(200)) < 6 * calls(lambda: read(50))
