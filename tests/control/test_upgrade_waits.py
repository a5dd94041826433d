"""An upgrade is over when the new code has committed a slice, or waits for records: a first heartbeat is neither."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.page_lake import TopologyStory, live_story

from kappa import clock
from kappa.control.upgrade import Upgrade, await_switch
from kappa.errors import DriverNotRunningError, MoveRefusedError
from kappa.presence import heartbeat
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow

IDLE = {"code": "new", "message": heartbeat.LIVE, "line": heartbeat.WATCHING}


@pytest.fixture
def story(tmp_path: Path) -> TopologyStory:
    """An epoch whose ledger and record have the upgrade, and no slice since."""
    story, now = live_story(tmp_path), clock.now()
    ledger = Ledger(story.paths(1).ledger)
    ledger.claim("d", "old", ledger.state())
    ledger.append(LedgerRow(kind="upgrade", seq=3, writer="d", at=now, code="new", detail={"asked": 9}))
    detail = {"code": "new", "from": "old", "version": "2", "upgrade": 9, "seq": 3}
    story.tell(1, "upgraded", now, **detail, at={}, savepoint="before-upgrade-e1-s3")
    return story


def wait(story: TopologyStory, seconds: float = 60.0) -> None:
    proposal = Upgrade(topology=story.name, epoch=1, from_code="old", to_code="new", from_version="1", to_version="2")
    await_switch(story.config, proposal, timeout_seconds=seconds)


def in_turn(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], None]) -> None:
    """Each pause between two looks is one more step; other threads of the run pause as ever."""
    rest, real, here = iter(steps), time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() == here:
            next(rest)()
        else:
            real(seconds)

    monkeypatch.setattr(time, "sleep", sleep)


@pytest.mark.parametrize(
    "beat",
    [
        {"message": "starting"},
        {"message": "catching up with the log", "line": heartbeat.WATCHING},
        {"message": heartbeat.LIVE, "line": "publishing"},
        {**IDLE, "role": "candidate"},
        {**IDLE, "code": "old"},
    ],
)
def test_a_driver_that_beats_and_has_not_read_the_log_is_waited_for(beat: dict[str, Any], story: TopologyStory) -> None:
    story.beat(1, **{"code": "new", **beat})
    with pytest.raises(DriverNotRunningError, match="has not committed a slice with the new code after 0 s"):
        wait(story, 0.01)


@pytest.mark.parametrize("line", [heartbeat.WATCHING, heartbeat.WAITING])
def test_a_driver_that_has_nothing_to_read_is_enough(
    line: str, story: TopologyStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.beat(1, code="new", message="starting")
    in_turn(monkeypatch, lambda: story.beat(1, **{**IDLE, "line": line}))
    wait(story)


def test_a_first_slice_of_the_new_code_is_enough(story: TopologyStory, monkeypatch: pytest.MonkeyPatch) -> None:
    story.beat(1, code="new", message="catching up with the log")
    in_turn(monkeypatch, lambda: None, lambda: story.grow(1))
    wait(story)
    last = Ledger(story.paths(1).ledger).state().committed
    assert last is not None and last.seq == 4


def test_a_driver_that_is_stuck_with_the_new_code_ends_the_wait(story: TopologyStory) -> None:
    story.beat(1, code="new", state="stuck", message="slice 4 failed 3 times")
    with pytest.raises(DriverNotRunningError, match=r"is stuck with the new code.*slice 4 failed 3 times"):
        wait(story)


def test_a_driver_that_is_stuck_with_the_old_code_is_freed(
    story: TopologyStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.beat(1, code="old", state="stuck")
    in_turn(monkeypatch, lambda: story.beat(1, **IDLE))
    wait(story)


def test_a_driver_that_ends_before_its_first_slice_ends_the_wait(
    story: TopologyStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies() -> None:
        beat = replace(heartbeat.this_process("d", "new"), pid=2**22, started=7, role="live", message="starting")
        heartbeat.write(story.paths(1).heartbeat, beat)

    story.beat(1, code="new", message="starting")
    in_turn(monkeypatch, dies)
    with pytest.raises(DriverNotRunningError, match="is dead with the new code, before its first commit: starting"):
        wait(story)


def test_an_epoch_that_somebody_stops_is_not_waited_for(story: TopologyStory, monkeypatch: pytest.MonkeyPatch) -> None:
    story.beat(1, code="new", message="catching up with the log")
    in_turn(monkeypatch, lambda: story.tell(1, "stop", clock.now(), actor="ben", reason="deploys wait"))
    with pytest.raises(MoveRefusedError, match=r"by ben.*: deploys wait\. Nothing is waited for.*kappa start"):
        wait(story)
