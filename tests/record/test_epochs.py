"""The record of epochs: the state that events add up to, and impossible transitions."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kappa.errors import IllegalTransitionError, UnknownEpochError
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event
from kappa.record.topology_records import record_of
from kappa.replay.stages import Stage

FIRST = ("planned", "rewound", "seeded", "moved")
SECOND = ("planned", "rewound", "seeded", "replayed", "caught_up", "verified", "handover", "moved")


def event(epoch: int, name: str, **detail: object) -> Event:
    return Event(
        topology="a.b",
        epoch=epoch,
        event=name,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        actor="test",
        detail={"code": "c", **detail},
    )


@pytest.fixture
def epochs(tmp_path: Path) -> Epochs:
    record = Epochs(str(tmp_path))
    for name in FIRST:
        record.change("a.b", lambda _, name=name: [event(1, name)])  # type: ignore[misc]
    return record


def test_a_move_retires_the_previous_epoch(epochs: Epochs) -> None:
    for name in SECOND:
        epochs.change("a.b", lambda _, name=name: [event(2, name)])  # type: ignore[misc]
    record = epochs.record("a.b")
    assert record.live == 2
    assert record.epoch(1).stage is Stage.RETIRED and not record.epoch(1).is_wanted
    assert record.handover is None and record.candidate is None
    assert [move.epoch for move in record.moves] == [1, 2]


def test_a_retired_epoch_returns_without_another_verification(epochs: Epochs) -> None:
    for name in SECOND:
        epochs.change("a.b", lambda _, name=name: [event(2, name)])  # type: ignore[misc]
    for name in ("recalled", "caught_up", "handover", "moved"):
        epochs.change("a.b", lambda _, name=name: [event(1, name)])  # type: ignore[misc]
    assert epochs.record("a.b").live == 1
    assert epochs.record("a.b").epoch(2).stage is Stage.RETIRED


@pytest.mark.parametrize(
    ("epoch", "name", "message"),
    [
        (1, "planned", "planned already"),
        (1, "aborted", "from CUT_OVER to ABORTED"),
        (1, "recalled", "only a RETIRED epoch"),
        (1, "seeded", "from CUT_OVER to SEEDED"),
    ],
)
def test_an_impossible_transition_is_refused_with_both_stages(
    epochs: Epochs, epoch: int, name: str, message: str
) -> None:
    before = len(epochs.events())
    with pytest.raises(IllegalTransitionError, match=message):
        epochs.change("a.b", lambda _: [event(epoch, name)])
    assert len(epochs.events()) == before


def test_an_epoch_that_does_not_exist_is_named(epochs: Epochs) -> None:
    with pytest.raises(UnknownEpochError, match="no epoch 9"):
        epochs.change("a.b", lambda _: [event(9, "verified")])
    with pytest.raises(UnknownEpochError, match=r"it has \[1\]"):
        epochs.record("a.b").epoch(9)


def test_an_epoch_being_built_is_the_candidate_until_it_is_aborted() -> None:
    building = [event(1, name) for name in FIRST] + [event(2, "planned")]
    record = record_of("a.b", building)
    assert record.candidate is not None and record.candidate.epoch == 2
    assert record_of("a.b", [*building, event(2, "aborted")]).candidate is None


def test_topologies_do_not_see_each_other(epochs: Epochs) -> None:
    assert epochs.topologies() == ["a.b"]
    assert epochs.record("other").epochs == {}


def named(name: str, seq: int, event_name: str = "savepoint") -> Event:
    return replace(event(1, event_name), detail={"name": name, "seq": seq})


def test_a_savepoint_is_known_by_its_name_until_it_is_dropped(epochs: Epochs) -> None:
    epochs.change("a.b", lambda _: [named("a", 4)])
    epochs.change("a.b", lambda _: [named("b", 5)])
    assert {name: e.detail["seq"] for name, e in epochs.record("a.b").savepoints.items()} == {"a": 4, "b": 5}
    assert epochs.record("a.b").named_seqs(1) == {4, 5} and epochs.record("a.b").named_seqs(2) == set()
    epochs.change("a.b", lambda _: [named("a", 4, "savepoint_dropped")])
    assert list(epochs.record("a.b").savepoints) == ["b"]
    assert epochs.record("a.b").live == 1 and epochs.record("a.b").epoch(1).stage is Stage.CUT_OVER


def test_a_completed_upgrade_changes_the_code_and_a_withdrawn_one_does_not(tmp_path: Path) -> None:
    epochs = Epochs(str(tmp_path))
    for name in ("planned", "rewound", "seeded", "moved"):
        epochs.add("a.b", 1, name, actor="test", code="c1", version="1", **{"from": None})
    request = epochs.add("a.b", 1, "upgrade", actor="ada", code="c2", version="2")
    epoch = epochs.record("a.b").epoch(1)
    assert (epoch.code, epoch.version, epoch.upgrade, epoch.codes) == ("c1", "1", request, {"c1", "c2"})
    epochs.add("a.b", 1, "upgraded", actor="ada", code="c2", version="2")
    epochs.add("a.b", 1, "upgrade", actor="bob", code="c3", version="3")
    epochs.add("a.b", 1, "upgrade_withdrawn", actor="driver")
    epoch = epochs.record("a.b").epoch(1)
    assert (epoch.code, epoch.version, epoch.upgrade, epoch.codes) == ("c2", "2", None, {"c1", "c2"})


def test_a_copy_of_a_lake_keeps_its_id_and_another_lake_differs(epochs: Epochs, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert Epochs(str(other)).lake_id() == ""
    shutil.copytree(tmp_path / "_kappa", tmp_path / "copy" / "_kappa")
    Epochs(str(other)).change("a.b", lambda _: [event(1, "planned")])
    lake_id = epochs.lake_id()
    for _ in range(200):  # long enough for its log to be merged and checkpointed
        epochs.change("a.b", lambda _: [event(1, "start")])
    assert lake_id and Epochs(str(tmp_path)).lake_id() == lake_id == Epochs(str(tmp_path / "copy")).lake_id()
    assert Epochs(str(other)).lake_id() not in ("", lake_id)


def test_a_decision_holds_only_for_the_events_it_read_despite_another_thread(tmp_path: Path) -> None:
    """The thread of a stream reads the record during a decision of the driver, which stays compare-and-set."""
    ours, theirs = Epochs(str(tmp_path)), Epochs(str(tmp_path))
    ours.change("a.b", lambda _: [event(1, "planned")])
    shown: list[list[int]] = []
    threads: list[threading.Thread] = []

    def decide(now: Now) -> list[Event]:
        shown.append([one.epoch for one in now.records.events()])
        if len(shown) == 1:
            theirs.change("a.b", lambda _: [event(2, "planned")])
            threads.append(threading.Thread(target=ours.events))
            threads[0].start()
            threads[0].join(0.5)  # it waits for this decision where there is a lock, and is done where there is none
        return [event(3, "planned")]

    ours.change("a.b", decide)
    threads[0].join()
    assert shown == [[1], [1, 2]]
