"""A question whether readers are moved is on record once, and its notice is delivered whatever dies meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import epoch_record
from support.epoch_record import FIRST, SECOND, empty_lake
from support.receivers import receiver

from kappa import control
from kappa.config import Config
from kappa.monitoring import notices
from kappa.monitoring.notices import Notices
from kappa.names import EpochPaths
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.record.topology_records import record_of

NAME, DEADLINE = "demo.a", 60.0
LINK = "http://127.0.0.1:8080/dags/replay__demo.a/runs/r/tasks/approve/required_actions"
REPORT = {"verdict": "differs", "report": "{}"}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Epoch 1 is live, epoch 2 verified."""
    lake_config = empty_lake(tmp_path, monkeypatch)
    by_event = {"planned": {"plan_id": "p", "version": "1"}, "verified": REPORT, "moved": {"from": None, "at": {}}}
    epoch_record.tell(lake_config, NAME, 1, *FIRST, by_event=by_event)
    epoch_record.tell(lake_config, NAME, 2, *SECOND, by_event=by_event)
    return lake_config


def events(config: Config) -> tuple[Event, ...]:
    return Epochs(config.lake).record(NAME).events


def ask(config: Config, **how: Any) -> None:
    shown = control.approval_terms(config, NAME, 2)
    control.ask(config, shown, actor="airflow:ann", **{"hours": 24, "link": LINK, "asking": "r 3", **how})


def questions(config: Config) -> list[Event]:
    return [event for event in events(config) if event.event == "asked"]


def test_a_question_that_is_asked_again_by_a_try_after_a_killed_one_is_on_record_once(config: Config) -> None:
    ask(config)
    ask(config)
    ask(config, nth=2, needed=2)
    assert [event.detail["nth"] for event in questions(config)] == [1, 2]


def test_a_question_of_another_run_is_another_question_with_its_own_link_and_time(config: Config) -> None:
    ask(config)
    for _ in range(2):
        ask(config, asking="r2 3", link=f"{LINK}/2", hours=48)
    first, second = (event.detail for event in questions(config))
    assert (first["link"], second["link"]) == (LINK, f"{LINK}/2")
    assert second["until"] > first["until"]


def wait(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("launcher", "command"), [("here", f"kappa approve {NAME} 2"), ("elsewhere", "")])
def test_the_notice_says_what_waits_and_where_to_answer_once_also_after_a_driver_died(
    config: Config, monkeypatch: pytest.MonkeyPatch, launcher: str, command: str
) -> None:
    config = replace(config, launcher=launcher)
    monkeypatch.setattr(notices, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(notices, "TIMEOUT_SECONDS", 0.5)
    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=2)
    Path(paths.root).mkdir(parents=True)
    with receiver() as hook:
        hook.later = 503
        driver = replace(config, webhook_url=hook.url)

        def started() -> Notices:
            watcher = Notices(driver, paths)
            watcher.open(record_of(NAME, events(config)[:-1]), "lake-1")
            return watcher

        ask(config)  # and the worker is killed
        first = started()
        first.look(Epochs(config.lake).record(NAME))
        wait(lambda: hook.requests)
        first.close()  # it goes before the receiver took anything
        assert hook.taken == []
        hook.later = 204
        second = started()
        ask(config)  # by the next try
        second.look(Epochs(config.lake).record(NAME))
        wait(lambda: hook.taken)
        second.look(Epochs(config.lake).record(NAME))
        second.close()
    assert {one["id"] for one in hook.requests} == {f"lake-1/{NAME}/2/APPROVAL/{questions(config)[0].n}"}
    (notice,) = hook.taken
    assert (notice["event"], notice["topology"], notice["epoch"]) == ("APPROVAL", NAME, 2)
    assert (notice["verdict"], notice["link"], notice["command"]) == ("differs", LINK, command)
    assert "to replace epoch 1, which is live. Verdict: differs. Without an answer by " in notice["message"]
    json.dumps(notice)
