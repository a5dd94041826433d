import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.epoch_record import CODE, empty_lake, empty_plan, tell

from kappa import clock
from kappa.config import Config
from kappa.control import overview
from kappa.delta.append_log import AppendLog
from kappa.errors import BrokerUnreachableError, LedgerError
from kappa.offsets.vector import Offsets
from kappa_airflow import triggers
from kappa_airflow.patience import Patience
from kappa_airflow.triggers import StageTrigger, StreamTrigger

TOPOLOGY = "demo.watched"
LATER = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


def first_event(trigger: Any, seconds: float = 5) -> dict[str, Any]:
    async def events() -> dict[str, Any]:
        async for event in trigger.run():
            return dict(event.payload)
        raise AssertionError("The trigger ended without an event.")

    return asyncio.run(asyncio.wait_for(events(), seconds))


def stream(**arguments: Any) -> StreamTrigger:
    return StreamTrigger(**{"topology": TOPOLOGY, "epoch": 1, "until": LATER, "poll_seconds": 0.01, **arguments})


def stage(name: str, epoch: int = 2) -> StageTrigger:
    return StageTrigger(topology=TOPOLOGY, epoch=epoch, stage=name, poll_seconds=0.01)


@pytest.fixture
def world(control: Any, config: Config) -> Callable[..., None]:
    """Sets values of epochs: ``world(e2={"stage": "SEEDED"}, live=2)``."""
    control.start(config, TOPOLOGY, actor="ann", reason="test")

    def change(live: int = 1, **epochs: dict[str, Any]) -> None:
        with control.changed(config) as now:
            now["live"][TOPOLOGY] = live
            for name, values in epochs.items():
                key = f"{TOPOLOGY}/{name[1:]}"
                now["epochs"].setdefault(key, {"stage": "PLANNED", "pid": None, "plan": None}).update(values)

    return change


@pytest.fixture
def hours_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is half a minute after the one before."""
    start = datetime.now(UTC)
    looks = iter(range(1_000_000))
    monkeypatch.setattr(clock, "now", lambda: start + timedelta(seconds=30) * next(looks))


@pytest.mark.parametrize("trigger", [stream(restarts=3), stage("VERIFIED")])
def test_a_trigger_is_made_again_from_what_it_serialises(trigger: Any) -> None:
    path, arguments = trigger.serialize()
    assert path == f"kappa_airflow.triggers.{type(trigger).__name__}"
    assert type(trigger)(**arguments).serialize() == (path, arguments)
    assert all(isinstance(value, str | int | float | None) for value in arguments.values())


@pytest.mark.usefixtures("hours_pass")
@pytest.mark.parametrize("state", ["dead", "never", "stopped"])
def test_a_stream_whose_driver_is_dead_is_reported_with_the_restarts_so_far(
    world: Callable[..., None], state: str
) -> None:
    world(e1={"state": state})
    event = first_event(stream(restarts=2))
    assert (event["event"], event["epoch"], event["restarts"]) == ("dead", 1, 2)


@pytest.mark.usefixtures("hours_pass")
def test_a_driver_that_another_host_has_not_started_yet_is_waited_for(
    world: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA_LAUNCHER", "elsewhere")
    world(e1={"state": "dead"}, e2={"stage": "PLANNED", "state": "never"})
    assert first_event(stream())["event"] == "dead"
    waiting = StageTrigger(topology=TOPOLOGY, epoch=2, stage="SEEDED", poll_seconds=0.01, late_seconds=900)
    assert first_event(waiting)["event"] == "late"
    world(e1={"state": "never"})
    assert first_event(stream())["event"] == "ended"


def test_a_driver_that_just_died_is_left_alone_for_the_pause(world: Callable[..., None]) -> None:
    world(e1={"state": "dead"})
    with pytest.raises(TimeoutError):
        first_event(stream(restarts=5), seconds=0.3)


@pytest.mark.usefixtures("hours_pass")
@pytest.mark.parametrize("seen", [{"state": "running"}, {"state": "stopped", "wanted": False}])
def test_a_stream_that_runs_or_was_stopped_is_watched_until_the_watch_is_over(
    world: Callable[..., None], seen: dict[str, Any]
) -> None:
    world(e1=seen)
    assert first_event(stream())["event"] == "ended"


@pytest.mark.usefixtures("hours_pass")
def test_an_epoch_that_is_not_live_any_more_is_not_reported_dead(world: Callable[..., None]) -> None:
    world(live=2, e1={"state": "dead"}, e2={})
    event = first_event(stream())
    assert (event["event"], event["live"]) == ("moved", 2)


@pytest.mark.usefixtures("hours_pass")
def test_a_slow_driver_is_warned_of_once(world: Callable[..., None]) -> None:
    world(e1={"state": "slow"})
    with capture_logs() as logs:
        assert first_event(stream())["event"] == "ended"
    warnings = [entry["event"] % entry.get("positional_args", ()) for entry in logs if entry["log_level"] == "warning"]
    assert [line for line in warnings if "is slow" in line] == [f"Driver of {TOPOLOGY} epoch 1 is slow: "]


def test_a_stuck_driver_is_reported_at_once(world: Callable[..., None]) -> None:
    world(e1={"state": "stuck"})
    assert first_event(stream())["event"] == "stuck"


@pytest.mark.parametrize(
    ("now", "waited", "event"),
    [
        ("REWOUND", "REWOUND", "arrived"),
        ("VERIFIED", "SEEDED", "arrived"),
        ("RETIRED", "CUT_OVER", "arrived"),
        ("ABORTED", "REWOUND", "failed"),
    ],
)
def test_a_stage_is_reached_when_the_epoch_is_there_or_past_it(
    world: Callable[..., None], now: str, waited: str, event: str
) -> None:
    world(e2={"stage": now})
    assert first_event(stage(waited))["event"] == event


def test_an_epoch_whose_way_back_was_ended_does_not_count_as_moved_to(world: Callable[..., None]) -> None:
    world(e2={"stage": "RETIRED", "released": True})
    event = first_event(stage("CUT_OVER"))
    assert event["event"] == "failed" and "Readers stay." in event["message"]
    assert first_event(stage("SEEDED"))["event"] == "arrived", "a task of the replay that built it, cleared"


def test_a_stage_that_is_not_reached_is_waited_for(world: Callable[..., None]) -> None:
    world(e2={"stage": "REWOUND", "state": "running"})
    with pytest.raises(TimeoutError):
        first_event(stage("SEEDED"), seconds=0.3)


def test_a_failed_verdict_ends_the_wait_for_the_verification_and_no_earlier_wait(world: Callable[..., None]) -> None:
    world(e2={"stage": "VERIFIED", "verdict": "failed"})
    assert first_event(stage("CAUGHT_UP"))["event"] == "arrived"
    assert first_event(stage("VERIFIED"))["event"] == "failed"
    assert first_event(stage("CUT_OVER"))["event"] == "failed"


@pytest.mark.usefixtures("hours_pass")
def test_a_wait_may_ask_to_be_told_when_it_takes_long(world: Callable[..., None]) -> None:
    world(e2={"stage": "VERIFIED", "state": "running"})
    late = StageTrigger(topology=TOPOLOGY, epoch=2, stage="CUT_OVER", poll_seconds=0.01, late_seconds=60)
    assert first_event(late)["event"] == "late"


@pytest.mark.usefixtures("hours_pass")
def test_a_candidate_whose_driver_is_dead_is_reported(world: Callable[..., None]) -> None:
    world(e2={"stage": "REWOUND", "state": "dead"})
    assert first_event(stage("SEEDED"))["event"] == "dead"


def test_a_broker_that_does_not_answer_is_asked_again(
    world: Callable[..., None], control: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world(e2={"stage": "SEEDED"})
    answers = iter([BrokerUnreachableError("gone"), BrokerUnreachableError("gone"), control.progress])

    def progress(*arguments: Any) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer(*arguments)

    monkeypatch.setattr(control, "progress", progress)
    assert first_event(stage("SEEDED"))["event"] == "arrived"


def test_an_error_that_does_not_pass_ends_the_trigger(
    world: Callable[..., None], control: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def progress(*_: Any) -> Any:
        raise LedgerError("gone")

    monkeypatch.setattr(control, "progress", progress)
    with pytest.raises(LedgerError):
        first_event(stage("SEEDED"))


def test_the_event_loop_is_free_while_a_trigger_looks(
    world: Callable[..., None], control: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    threads = []
    real = control.progress
    monkeypatch.setattr(control, "progress", lambda *a: (threads.append(threading.current_thread()), real(*a))[1])
    world(e2={"stage": "SEEDED"})
    first_event(stage("SEEDED"))
    assert threads and threading.main_thread() not in threads


def test_triggers_share_a_look_at_the_record_and_work_progress_out_after_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = empty_lake(tmp_path, monkeypatch)
    names = [f"demo.number{number}" for number in range(20)]
    for name in names:
        plan = empty_plan(name, 1, Offsets())
        tell(
            config, name, 1, "planned", by_event={"planned": {"plan": plan.to_json(), "plan_id": plan.id, "code": CODE}}
        )
    calls: list[str] = []
    for place, name in ((AppendLog, "new_rows"), (overview, "progress")):
        monkeypatch.setattr(place, name, noted(calls, name, getattr(place, name)))
    monkeypatch.setattr("kappa.control.progress", overview.progress, raising=False)
    monkeypatch.setattr(triggers, "AGE_SECONDS", 60.0)
    waiting = [StageTrigger(topology=name, epoch=1, stage="SEEDED") for name in names]

    def round_of_looks() -> list[str]:
        calls.clear()
        events = [trigger.look(config, Patience())[0] for trigger in waiting]
        return [event["event"] for event in events if event]

    assert round_of_looks() == [] and calls.count("progress") == len(names)
    assert round_of_looks() == [] and calls == []
    tell(config, names[7], 1, "rewound", "seeded", by_event={})
    monkeypatch.setattr(triggers, "AGE_SECONDS", 0.0)
    assert round_of_looks() == ["arrived"] and calls.count("progress") == 1


def noted(calls: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that notes that it was called."""

    def note(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        return function(*arguments, **named)

    return note
