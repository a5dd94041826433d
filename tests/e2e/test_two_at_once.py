"""Two processes that each believe to be an epoch's driver: started at once, or woken after a cutover without one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from support.processes import Rig, is_running, rows

from kappa import control
from kappa.driver.processes.launcher import launch
from kappa.presence import heartbeat
from kappa.replay.stages import Stage

pytestmark = pytest.mark.e2e

LATER_MS = 1_700_000_060_000


def test_only_one_of_two_drivers_started_at_once_works(machine: Rig) -> None:
    machine.produce(rows(12))
    epoch = machine.start_live()
    machine.kill(epoch)
    claims = [row for row in machine.ledger(epoch).rows() if row.kind == "claim"]
    code, last = machine.record().epoch(epoch).code, claims[-1].n
    pids = [launch(machine.config, machine.name, epoch, code, last) for _ in range(2)]
    machine.produce(rows(12, first=12), start_ms=LATER_MS)
    machine.wait(lambda: any(not is_running(pid) for pid in pids), "one of the two ends")
    machine.settle(epoch)
    (survivor,) = [pid for pid in pids if is_running(pid)]
    assert machine.beat(epoch).pid == survivor
    assert "DriverAlreadyRunningError" in machine.driver_log(epoch)
    assert len([row for row in machine.ledger(epoch).rows() if row.kind == "claim"]) == len(claims) + 1
    assert machine.prove({epoch: 1}) == 24


def test_a_driver_that_was_launched_long_ago_takes_no_later_claim(machine: Rig) -> None:
    """Its submission was given up and made again; then the driver of the second one is silent for a while."""
    machine.config = replace(machine.config, stale_seconds=4.0)
    machine.produce(rows(12))
    epoch = machine.start_live()
    beat, (first,) = machine.beat(epoch), [row for row in machine.ledger(epoch).rows() if row.kind == "claim"]
    os.kill(beat.pid, signal.SIGSTOP)
    machine.wait(lambda: not machine.status(epoch).is_running, "the heartbeat grows stale")
    late = launch(machine.config, machine.name, epoch, machine.record().epoch(epoch).code, 0)
    machine.wait(lambda: not is_running(late), "the late driver ends")
    assert f"{first.writer} has claimed the epoch since" in machine.driver_log(epoch)
    os.kill(beat.pid, signal.SIGCONT)
    machine.produce(rows(12, first=12), start_ms=LATER_MS)
    machine.settle(epoch)
    assert machine.beat(epoch).pid == beat.pid
    assert [row.n for row in machine.ledger(epoch).rows() if row.kind == "claim"] == [first.n]
    assert machine.prove({epoch: 1}) == 24


@pytest.mark.parametrize(
    ("role", "point"),
    [
        ("old", "yield"),
        pytest.param("new", "moved", marks=pytest.mark.soak),
        pytest.param("new", "resume", marks=pytest.mark.soak),
        ("new", "going_live"),
    ],
)
def test_a_driver_frozen_in_a_cutover_that_went_on_harms_nothing_when_it_wakes(
    machine: Rig, role: str, point: str
) -> None:
    machine.config = replace(machine.config, stale_seconds=4.0)
    machine.produce(rows(50))
    first = machine.start_live(f"{point}:stop" if role == "old" else "")
    machine.deploy(2)
    second = machine.plan_replay(f"{point}:stop" if role == "new" else "")
    machine.await_stage(second, Stage.VERIFIED)
    machine.produce(rows(12, first=100), start_ms=LATER_MS)
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    sleeper = first if role == "old" else second
    frozen = machine.await_death(sleeper)
    machine.wait(
        lambda: not machine.status(sleeper).is_running or machine.beat(sleeper).pid != frozen, "it is given up"
    )
    machine.run(sleeper)
    machine.await_live(second)
    machine.produce(rows(12, first=200), start_ms=2 * LATER_MS - 1_700_000_000_000)
    machine.settle(second)
    before = {epoch: len(machine.ledger(epoch).rows()) for epoch in (first, second)}
    os.kill(frozen, signal.SIGCONT)
    machine.wait(lambda: not is_running(frozen), "the woken driver stops")
    assert {epoch: len(machine.ledger(epoch).rows()) for epoch in (first, second)} == before
    assert machine.record().live == second
    machine.produce(rows(12, first=300), start_ms=3 * LATER_MS - 2 * 1_700_000_000_000)
    machine.settle(second)
    assert machine.prove({first: 1, second: 2}) == 86


def test_a_driver_whose_jvm_froze_with_it_is_fenced_when_both_wake(machine: Rig) -> None:
    machine.config = replace(machine.config, stale_seconds=4.0)
    machine.produce(rows(12))
    epoch = machine.start_live()
    frozen = machine.beat(epoch)
    both = [*psutil.Process(frozen.pid).children(recursive=True), psutil.Process(frozen.pid)]
    assert any(process.name() == "java" for process in both)
    for process in both:
        process.suspend()
    machine.produce(rows(12, first=12), start_ms=LATER_MS)
    machine.wait(lambda: not machine.status(epoch).is_running, "the heartbeat grows stale")
    machine.run(epoch)
    machine.settle(epoch)
    for process in both:
        process.resume()
    machine.produce(rows(12, first=24), start_ms=2 * LATER_MS - 1_700_000_000_000)
    machine.wait(lambda: not heartbeat.is_process(frozen.pid, frozen.started), "the woken driver stops")
    machine.settle(epoch)
    assert "StaleWriterError" in machine.driver_log(epoch)
    assert machine.prove({epoch: 1}) == 36


def test_a_host_starts_missing_drivers_and_ends_them_between_slices(machine: Rig) -> None:
    here, machine.config = machine.config, replace(machine.config, launcher="elsewhere")
    machine.produce(rows(12))
    epoch = machine.start()
    assert machine.status(epoch).state == "never", "it is started by the host alone"
    here.home.mkdir(parents=True, exist_ok=True)
    log = (here.home / "drivers.log").open("ab")
    host = subprocess.Popen(
        [sys.executable, "-m", "kappa", "drivers"],
        env={**os.environ, **machine.config.to_env()},
        stdout=log,
        stderr=log,
    )
    try:
        machine.await_live(epoch)
        machine.settle(epoch)
        first = machine.beat(epoch)
        os.kill(first.pid, signal.SIGKILL)
        machine.produce(rows(12, first=12), start_ms=LATER_MS)
        machine.settle(epoch)
        second = machine.beat(epoch)
        assert second.pid != first.pid and is_running(second.pid)
        host.send_signal(signal.SIGTERM)
        assert host.wait(120) == 0
        assert not is_running(second.pid) and machine.status(epoch).state == "stopped"
        state = machine.ledger(epoch).state()
        assert state.open_plan is None
        assert machine.prove({epoch: 1}) == 24
    finally:
        host.kill()
        host.wait(60)
        log.close()
