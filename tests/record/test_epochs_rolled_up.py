"""Epochs that ended long ago: a few of their events stay on record, all of them are in a file beside it."""

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.epoch_record import empty_plan

from kappa import clock, control, serving
from kappa.config import Config
from kappa.control.removals import orphans
from kappa.delta import row_files
from kappa.delta.append_log import AppendLog
from kappa.errors import DamagedTableError, LedgerError, NewerFormatError
from kappa.names import epochs_history
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record import epochs as epochs_module
from kappa.record.epochs import Epochs, epochs_of
from kappa.record.events import LASTING, Event, EventKind
from kappa.record.moves import rollbacks
from kappa.record.topology_records import TopologyRecords
from kappa.verify import measurements

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NIGHT: tuple[EventKind, ...] = ("rewound", "seeded", "replayed", "caught_up", "verified", "approved", "handover")
DETAIL: dict[str, dict[str, Any]] = {
    "planned": {"plan_id": "p", "code": "c", "version": "1", "start": "{}", "origin": "{}", "live": None},
    "verified": {"verdict": "same", "report": '{"tables": []}'},
    "moved": {"from": None, "at": {}, "seq": 3, "handover": None, "certificate": '{"complete": true}'},
}


def night(epochs: Epochs, number: int, topology: str = "a.a") -> None:
    """One more epoch, which goes live; the one before the last is removed."""
    kinds: tuple[EventKind, ...] = ("planned", *NIGHT, "moved")
    for kind in kinds:
        epochs.add(topology, number, kind, actor="test", **DETAIL.get(kind, {}))
    if number > 2:
        epochs.add(topology, number - 2, "dropped", actor="test")


@pytest.fixture
def nights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is an hour after the one before; ten events are enough for a roll-up."""
    hours = iter(range(1_000_000))
    monkeypatch.setattr(clock, "now", lambda: BEGIN + timedelta(hours=next(hours)))
    monkeypatch.setattr(epochs_module, "ROLL_UP_EVENTS", 10)


@pytest.mark.usefixtures("nights")
def test_what_was_live_and_which_numbers_were_used_stays_on_record(tmp_path: Path) -> None:
    lake = str(tmp_path)
    follower, whole = Epochs(lake), Epochs(lake)
    for number in range(1, 9):
        night(whole, number)
        follower.record("a.a")
    for epochs in (whole, follower, Epochs(lake)):
        record = epochs.record("a.a")
        assert sorted(record.epochs) == list(range(1, 9)) and record.live == 8
        assert [move.epoch for move in record.moves] == list(range(1, 9)) and not rollbacks(record.events)
        rolled = [epoch.epoch for epoch in record.epochs.values() if epoch.rolled_up]
        assert rolled and max(rolled) < 7 and rolled == list(range(1, max(rolled) + 1))
        assert [record.epoch(n).stage for n in (1, 6, 7, 8)] == ["DROPPED", "DROPPED", "RETIRED", "CUT_OVER"]
        kinds = [event.event for event in record.events if event.epoch == 1]
        assert kinds == ["planned", "seeded", "replayed", "moved", "dropped"]
        assert "certificate" not in record.moves[0].detail and "certificate" in record.moves[-1].detail


@pytest.mark.usefixtures("nights")
def test_no_driver_of_the_past_is_looked_for_when_code_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.from_env({"KAPPA_LAKE": str(tmp_path / "lake"), "KAPPA_HOME": str(tmp_path)})
    epochs, places = epochs_of(config.lake), list[str]()
    real = heartbeat.read
    monkeypatch.setattr(heartbeat, "read", lambda path: (places.append(path), real(path))[1])
    for number in range(1, 21):
        night(epochs, number)
    assert orphans.named_codes(config) == {"c"}
    rolled_up = [number for number, epoch in epochs_of(config.lake).record("a.a").epochs.items() if epoch.rolled_up]
    assert len(rolled_up) > 15 and len(places) == 20 - len(rolled_up)


@pytest.mark.usefixtures("nights")
def test_all_events_are_in_the_history_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = Epochs(str(tmp_path))
    before: list[Event] = []
    for number in range(1, 7):
        night(epochs, number, "a.a")
        night(epochs, number, "b.b")
        before = [*before, *(event for event in epochs.history() if event.n > len(before))]
    assert epochs.rolled_up_to > 0
    assert [event.n for event in epochs.history()] == list(range(1, len(before) + 1))
    assert epochs.history() == before
    assert epochs.history("b.b") == [event for event in before if event.topology == "b.b"]
    assert len(epochs.events()) < len(before)
    with monkeypatch.context() as older:
        older.setattr(epochs_module, "FORMAT", 0)
        with pytest.raises(NewerFormatError, match=r"event in .*epochs_history has format 2"):
            epochs.history()
    for file in Path(epochs_history(str(tmp_path))).iterdir():
        file.unlink()
    with pytest.raises(DamagedTableError, match=r"epochs_history/.*\.parquet is missing.*: kappa status$"):
        epochs.history()


@pytest.mark.usefixtures("nights")
def test_an_append_between_the_look_and_the_roll_up_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = str(tmp_path)
    ours, theirs = Epochs(lake), Epochs(lake)
    real = row_files.keep

    def keep(*arguments: Any) -> None:
        theirs.add("b.b", 1, "planned", actor="other", **DETAIL["planned"])
        real(*arguments)

    for number in range(1, 4):
        night(ours, number)
    monkeypatch.setattr(row_files, "keep", keep)
    night(ours, 4)
    monkeypatch.setattr(row_files, "keep", real)
    assert ours.rolled_up_to == 0 and ours.topologies() == ["a.a", "b.b"]
    (unnamed,) = Path(epochs_history(lake)).iterdir()
    night(ours, 5)
    named = {epoch.rolled_up for epoch in ours.record("a.a").epochs.values()} - {""}
    assert ours.rolled_up_to > 0 and len(named) == 1 and unnamed.stem not in named
    assert [event.n for event in ours.history()] == list(range(1, 50))


def test_epochs_of_a_host_whose_clock_is_ahead_are_rolled_up_after_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their events are all older than those of the roll-up before."""
    monkeypatch.setattr(epochs_module, "ROLL_UP_EVENTS", 6)
    lake = str(tmp_path)
    ours, follower = Epochs(lake), Epochs(lake)

    def put(hours: int, topology: str, *kinds: EventKind) -> None:
        monkeypatch.setattr(clock, "now", lambda: BEGIN + timedelta(hours=hours))
        for epoch in (1, 2):
            for kind in kinds:
                ours.add(topology, epoch, kind, actor="test", **DETAIL.get(kind, {}))

    put(12, "ahead.a", "planned", "rewound", "aborted")
    put(0, "b.b", "planned", "rewound", "aborted")
    before = ours.history()
    for hours, topologies in ((25, {"b.b"}), (37, {"ahead.a", "b.b"})):
        put(hours, f"last.h{hours}", "planned", "aborted")
        for one in (ours, follower, Epochs(lake)):
            epochs = [epoch for record in one.records() for epoch in record.epochs.values()]
            assert {epoch.planned.topology for epoch in epochs if epoch.rolled_up} == topologies
            assert one.history()[: len(before)] == before


def test_an_epoch_that_was_replaced_days_ago_is_rolled_up_as_soon_as_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that was aborted stays for a day."""
    epochs = Epochs(str(tmp_path))
    monkeypatch.setattr(epochs_module, "ROLL_UP_EVENTS", 1)
    for number in (1, 2, 3):
        monkeypatch.setattr(clock, "now", lambda day=number: BEGIN + timedelta(days=day))
        for kind in ("planned", *NIGHT, "moved"):
            epochs.add("a.a", number, kind, actor="test", **DETAIL.get(kind, {}))
        epochs.add("a.a", 10 + number, "planned", actor="test", **DETAIL["planned"])
        epochs.add("a.a", 10 + number, "aborted", actor="test")
    epochs.add("a.a", 1, "dropped", actor="test")
    epochs.add("a.a", 2, "dropped", actor="test")
    record = epochs.record("a.a")
    assert sorted(record.recent) == [2, 3, 12, 13]
    assert {number for number, epoch in record.epochs.items() if epoch.rolled_up} == {1, 11}


@pytest.mark.usefixtures("nights")
def test_topics_and_measures_of_an_epoch_stay_and_its_other_facts_are_refused(tmp_path: Path) -> None:
    places = {"KAPPA_LAKE": str(tmp_path), "KAPPA_HOME": str(tmp_path), "KAPPA_TOPOLOGIES": str(tmp_path)}
    config = Config.from_env({**places, "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    epochs = epochs_of(config.lake)
    measured = {"offsets": 20, "records": 10, "seconds": 5.0, "bytes": 100, "disk_bytes": 50}
    for number in range(1, 8):
        plan = replace(empty_plan("a.a", number, Offsets({"moves": {0: 3}})), topics=("sums",), id="")
        planned = {"plan": plan.to_json(), "plan_id": plan.id, "code": "c", "version": "1", "start": "{}"}
        epochs.add("a.a", number, "planned", actor="test", **planned)
        details: dict[EventKind, dict[str, Any]] = {kind: {"verdict": "same"} for kind in NIGHT[:-1]}
        if number == 1:
            details["seeded"] = {"findings": [], "folded": {"offsets": 8, "seconds": 2.0}}
            details["replayed"] = {"seq": 4, "measured": measured, "estimate": {"records": 1}}
        for kind, detail in details.items():
            epochs.add("a.a", number, kind, actor="test", **detail)
        epochs.add("a.a", number, "moved", actor="test", at={}, seq=1)
        if number > 1:
            epochs.add("a.a", number - 1, "dropped", actor="test")
    record = epochs.record("a.a")
    epoch = record.epoch(1)
    assert epoch.rolled_up and epoch.seeded is not None and epoch.replayed is not None
    assert epoch.seeded.detail == {"folded": {"offsets": 8, "seconds": 2.0}}
    assert epoch.replayed.detail == {"seq": 4, "measured": measured}
    assert [turn.topic for turn in serving.turns(config, "a.a", "sums")] == ["sums"] * 7
    rates = measurements.rates(config.lake, record)
    assert (rates.epoch, rates.records_per_second, rates.disk_per_record) == (1, 2.0, 5.0)
    progress = control.progress(config, "a.a", 1)
    assert (progress.stage, progress.done, progress.total, progress.outcome) == ("DROPPED", 0, 0, "")
    assert control.status(config, "a.a").reads == {}
    for name in ("plan", "bound", "reconciled", "brought_in", "origin", "root_start", "seed_epoch"):
        with pytest.raises(LedgerError, match="ended long ago: its plan is only in the history now"):
            getattr(epoch, name)


@pytest.mark.usefixtures("nights")
def test_an_epoch_ends_also_where_nothing_can_be_rolled_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise LedgerError("cut short")

    epochs = Epochs(str(tmp_path))
    monkeypatch.setattr(TopologyRecords, "long_ended", fails)
    for number in range(1, 8):
        night(epochs, number)
    assert epochs.record("a.a").epoch(5).stage == "DROPPED" and epochs.rolled_up_to == 0


@pytest.mark.usefixtures("nights")
def test_a_file_that_was_removed_before_its_commit_is_there_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by housekeeping on a host that slept for a day."""
    epochs, real = Epochs(str(tmp_path)), AppendLog.replace

    def late(log: AppendLog, *arguments: Any) -> None:
        for file in Path(epochs_history(str(tmp_path))).iterdir():
            file.unlink()
        real(log, *arguments)

    monkeypatch.setattr(AppendLog, "replace", late)
    for number in range(1, 5):
        night(epochs, number)
    assert epochs.rolled_up_to > 0
    assert [event.n for event in epochs.history()] == list(range(1, 39))


def copied(lake: Path, to: Path) -> Epochs:
    shutil.copytree(lake, to)
    return Epochs(str(to), is_anywhere=True)


@pytest.mark.usefixtures("nights")
def test_a_record_continues_those_that_it_was_before_and_no_other(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    epochs = Epochs(str(lake), is_anywhere=True)
    for number in (1, 2, 3):
        night(epochs, number)
    before = copied(lake, tmp_path / "before")
    other = copied(lake, tmp_path / "other")
    epochs.add("a.a", 3, "start", actor="test")
    epochs.add("a.a", 3, "relocated", actor="test", to=str(lake))
    other.add("a.a", 3, "relocated", actor="test", to=str(lake))
    moved = copied(lake, tmp_path / "moved")
    assert epochs.continues(moved) and moved.continues(epochs) and epochs.continues(before)
    assert not before.continues(epochs), "it has less"
    for number in range(4, 9):
        night(epochs, number)
    assert epochs.rolled_up_to > moved.records().last and not moved.rolled_up_to
    assert epochs.continues(moved) and epochs.continues(before)
    assert epochs.continues(copied(lake, tmp_path / "after"))
    assert not moved.continues(epochs)
    assert not epochs.continues(other), "it was relocated another time"
    stranger, nothing = Epochs(str(tmp_path / "stranger")), Epochs(str(tmp_path / "nothing"))
    night(stranger, 1)
    assert not epochs.continues(stranger) and not epochs.continues(nothing) and not nothing.continues(nothing)


def test_the_page_of_formats_names_what_stays() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs", "formats.md").read_text()
    (listing,) = re.findall(r"only the events (.*?) stay,", page, re.DOTALL)
    assert tuple(re.findall(r"`(\w+)`", listing)) == LASTING


SCRIPT = """
import sys
from datetime import timedelta
sys.path[:0] = sys.argv[2:]
from kappa import clock
from kappa.delta import row_files
from kappa.delta.append_log import AppendLog
from kappa.errors import NewerFormatError
from kappa.record import epochs
from record.test_epochs_rolled_up import BEGIN, night
clock.now = lambda: BEGIN + timedelta(days=9)
epochs.ROLL_UP_EVENTS = 10
night(epochs.Epochs(sys.argv[1]), 4)
"""


@pytest.mark.parametrize(("point", "is_rolled"), [("record.history", False), ("record.rolled_up", True)])
def test_a_process_that_dies_in_a_roll_up_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, is_rolled: bool
) -> None:
    lake = str(tmp_path / "lake")
    with monkeypatch.context() as patch:
        patch.setattr(clock, "now", lambda: BEGIN)
        for number in range(1, 4):
            night(Epochs(lake), number)
    before = Epochs(lake).events()
    tests = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", SCRIPT, lake, str(tests)]
    environment = {**os.environ, "KAPPA_CRASH_AFTER": point, "KAPPA_HOME": str(tmp_path)}
    died = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    epochs = Epochs(lake)
    assert bool(epochs.record("a.a").epoch(1).rolled_up) is is_rolled
    history = epochs.history()
    assert history[: len(before)] == before and [event.event for event in history[-2:]] == ["moved", "dropped"]
    monkeypatch.setattr(epochs_module, "ROLL_UP_EVENTS", 10)
    night(epochs, 5)
    assert epochs.record("a.a").epoch(1).rolled_up and epochs.history()[: len(history)] == history
