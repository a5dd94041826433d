"""The watchdog: a heartbeat that beats on while a line does not end says so."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kappa import control
from kappa.config import Config
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.presence.watchdog import JVM_LINE, JvmProbe, Line, Watchdog, stacks


class Monotonic:
    """A monotonic clock that is advanced."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def mono() -> Monotonic:
    return Monotonic()


def test_a_line_is_slow_then_stuck_until_the_next_one_begins(mono: Monotonic) -> None:
    dog = Watchdog(60, 120, clock=mono)
    levels = []
    dog.begin("effects of slice 7")
    for now in (59.9, 60, 119.9, 120):
        mono.now = now
        levels.append(dog.worst().level)
    assert levels == ["", "slow", "slow", "stuck"]
    assert dog.worst().message == "stuck: 'effects of slice 7' has not ended for 2.0 min"
    dog.begin("send of slice 7")
    assert dog.worst() == Line(name="send of slice 7")
    dog.end()
    assert dog.worst() == Line()


def test_a_line_without_a_limit_is_slow_and_never_stuck(mono: Monotonic) -> None:
    dog = Watchdog(60, 120, clock=mono)
    dog.begin("verifying", is_long=True)
    mono.now = 10_000
    assert dog.worst().level == "slow"


def test_a_hanging_thread_is_reported_while_another_goes_on(mono: Monotonic) -> None:
    """A micro-batch that waits for an answer for ever, beside a main thread that looks at the record."""
    dog = Watchdog(60, 120, clock=mono)
    batch = threading.Thread(target=lambda: dog.begin("effects of slice 3"))
    batch.start()
    batch.join()
    for _ in range(20):
        mono.now += 10
        dog.begin("watching micro-batches")
    assert (dog.worst().name, dog.worst().level) == ("effects of slice 3", "stuck")


def test_a_heartbeat_says_slow_then_stuck_then_running_and_alarms_once_at_each(tmp_path: Path, mono: Monotonic) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path)})
    path = Path(EpochPaths(lake=config.lake, topology="a.b", epoch=1).heartbeat)
    path.parent.mkdir(parents=True)
    dog, alarms = Watchdog(60, 120, clock=mono), []
    first = heartbeat.this_process("w", "c")
    beat = heartbeat.Beating(str(path), first, 3600, lambda: True, watchdog=dog, alarm=alarms.append)
    states = []
    dog.begin("effects of slice 7")
    for now in (0, 60, 90, 120, 150):
        mono.now = now
        beat.say(seq=6)
        status = control.driver_status(config, "a.b", 1)
        states.append((status.state, status.is_running))
    assert states == [("running", True), ("slow", True), ("slow", True), ("stuck", True), ("stuck", True)]
    assert (
        "'effects of slice 7' has not ended" in status.message and f"kill {first.pid} on {first.host}" in status.message
    )
    assert [line.level for line in alarms] == ["slow", "stuck"]
    dog.begin("commit of slice 7")
    beat.say(message="live")
    status = control.driver_status(config, "a.b", 1)
    assert (status.state, status.message) == ("running", "live")
    beat.close()


def test_a_jvm_that_does_not_answer_is_a_line_that_does_not_end(mono: Monotonic) -> None:
    request, answer = threading.Event(), threading.Event()

    class Jvm:
        class System:
            @staticmethod
            def nanoTime() -> None:
                request.set()
                answer.wait(30)

    session: Any = type("Session", (), {"_jvm": Jvm})
    dog = Watchdog(60, 120, clock=mono)
    probe = JvmProbe(dog, lambda: session, 0.01)
    assert request.wait(30)
    mono.now = 61
    assert (dog.worst().name, dog.worst().level) == (JVM_LINE, "slow")
    probe.close()
    answer.set()


def test_the_stacks_name_every_thread_and_where_it_is() -> None:
    go, there = threading.Event(), threading.Event()

    def hangs_here() -> None:
        there.set()
        go.wait(30)

    thread = threading.Thread(target=hangs_here, name="the one that hangs")
    thread.start()
    there.wait(30)
    text = stacks()
    go.set()
    thread.join()
    assert "Thread the one that hangs:" in text and "in hangs_here" in text and "Thread MainThread:" in text
