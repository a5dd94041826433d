"""Every place where a driver may die or freeze, in every role; a few of these run in CI (tests/e2e)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.processes import REPLAY_POINTS, SLICE_POINTS, Rig, crashing, rig, rows

from kappa import control
from kappa.kafka.broker import Broker
from kappa.presence import heartbeat
from kappa.replay.stages import Stage
from kappa_local.kafka import KafkaProcess

pytestmark = pytest.mark.soak

Machines = Callable[..., AbstractContextManager[Rig]]
Case = Callable[[str], None]

CUTOVER_POINTS = ("moved", "claim", "resume", "plan", "send.open", "commit")
START_MS = 1_700_000_000_000


def live(machine: Rig, crash: str = "") -> int:
    """A first epoch that went live and read fifty records."""
    machine.produce(rows(50))
    return machine.start_live(crash)


@pytest.mark.parametrize("point", SLICE_POINTS)
def test_a_driver_and_its_repairing_successor_are_killed_at_every_point(
    machines: Machines, case: Case, point: str
) -> None:
    with machines() as machine:
        machine.produce(rows(12))
        epoch = machine.start(f"{point}@1")
        machine.await_death(epoch)
        case(f"live:{point}")
        seq = 1
        for again in SLICE_POINTS:
            # The successor repairs the slice and dies there too, or passes (it never comes by) and dies in the next
            # slice.
            machine.produce(rows(12, first=12 * seq), start_ms=START_MS + 60_000 * seq)
            machine.run(epoch, again)
            machine.await_death(epoch)
            seq = machine.ledger(epoch).state().seq + 1
            case(f"live:{point}+{again}")
        machine.run(epoch)
        machine.settle(epoch)
        machine.prove({epoch: 1})


def test_a_first_epoch_is_killed_at_every_point_until_it_is_live(machines: Machines, case: Case) -> None:
    points = [
        p
        for p in REPLAY_POINTS
        if p in ("claim", "rewind.group", "rewind.topics", "rewound", "seed.tables", "seed", "seeded")
    ]
    with machines() as machine:
        machine.produce(rows(12))
        epoch = machine.start(points[0])
        for point in [*points[1:], "moved", "baseline.marker", "resume"]:  # it has no rows, so no chunk of a baseline
            machine.await_death(epoch)
            machine.run(epoch, point)
            case(f"first:{point}")
        machine.await_death(epoch)
        machine.run(epoch)
        machine.settle(epoch)
        machine.prove({epoch: 1})


def test_a_candidate_is_killed_at_every_point_of_its_replay_and_cutover(machines: Machines, case: Case) -> None:
    with machines() as machine:
        first = live(machine, "yield")
        machine.deploy(2)
        second = machine.plan_replay(REPLAY_POINTS[0], slice_records=20)
        for index, point in enumerate(REPLAY_POINTS[1:], start=1):
            machine.await_death(second)
            machine.produce(rows(3, first=100 * index), start_ms=START_MS + 60_000 * index)
            machine.run(second, point)
            case(f"candidate:{point}")
        machine.await_death(second)
        machine.run(second, "moved")
        machine.await_stage(second, Stage.VERIFIED)
        control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
        machine.await_death(first)
        case("live:yield")
        for index, point in enumerate(CUTOVER_POINTS[1:]):
            machine.await_death(second)
            machine.produce(rows(3, first=9_000 + 100 * index), start_ms=START_MS + 9_000_000 + 60_000 * index)
            machine.run(second, point)
            case(f"successor:{point}")
        machine.await_death(second)
        machine.run(second)
        machine.settle(second)
        machine.prove({first: 1, second: 2})


def test_a_live_driver_that_died_before_it_could_yield_is_started_by_its_successor(
    machines: Machines, case: Case
) -> None:
    with machines() as machine:
        first = live(machine)
        machine.deploy(2)
        second = machine.plan_replay()
        machine.await_stage(second, Stage.VERIFIED)
        beat = machine.beat(first)
        os.kill(beat.pid, signal.SIGSTOP)
        control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
        os.kill(beat.pid, signal.SIGKILL)
        machine.await_live(second)
        machine.produce(rows(12, first=100), start_ms=START_MS + 900_000)
        machine.settle(second)
        machine.prove({first: 1, second: 2})
        case("live:dead before yield")


def test_a_candidate_that_dies_after_the_yield_can_be_resumed(machines: Machines, case: Case) -> None:
    with machines(handover_seconds=20.0) as machine:
        first = live(machine)
        machine.deploy(2)
        second = machine.plan_replay()
        machine.wait(lambda: machine.ledger(second).state().baseline_seq is not None, "the candidate waits")
        machine.await_stage(second, Stage.VERIFIED)
        os.kill(machine.beat(second).pid, signal.SIGSTOP)
        control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
        machine.kill(second)
        machine.wait(lambda: machine.record().events[-1].event == "withdrawn", "the live epoch goes on")
        machine.produce(rows(12, first=100), start_ms=START_MS + 900_000)
        machine.settle(first)
        assert machine.record().live == first
        machine.prove({first: 1, second: 2})
        case("candidate:dead after yield")
        machine.run(second)
        # A driver's start takes longer than such a short handover, on a busy machine.
        machine.wait(
            lambda: machine.ledger(second).state().position == machine.ledger(first).state().position,
            "the candidate stands where the live epoch does",
        )
        control.cut_over(machine.config, machine.name, second, actor="test", reason="again")
        machine.await_live(second)
        machine.settle(second)
        machine.prove({first: 1, second: 2})


def test_drivers_are_killed_at_every_point_of_a_rollback(machines: Machines, case: Case) -> None:
    with machines() as machine:
        first = live(machine)
        machine.deploy(2)
        second = machine.plan_replay()
        machine.await_stage(second, Stage.VERIFIED)
        control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
        machine.await_live(second)
        machine.produce(rows(12, first=100), start_ms=START_MS + 900_000)
        machine.settle(second)
        control.rollback(machine.config, machine.name, actor="test", reason="test")
        for index, point in enumerate(["claim", *SLICE_POINTS, "caught_up", "moved", "resume"]):
            if point == "moved":
                machine.wait(lambda: control.progress(machine.config, machine.name, first).is_caught_up, "caught up")
            beat = machine.beat(first)
            if heartbeat.is_process(beat.pid, beat.started):
                machine.kill(first)
            machine.produce(rows(3, first=1_000 + 100 * index), start_ms=START_MS + 1_800_000 + 60_000 * index)
            if machine.record().live == second:
                machine.settle(second)
            if point == "moved":  # asked for last: whoever has yielded reads nothing more
                with crashing(point):
                    control.cut_over(machine.config, machine.name, first, actor="test", reason="back")
            else:
                machine.run(first, point)
            case(f"rollback:{point}")
            if point != "caught_up":
                machine.await_death(first, point)
        machine.run(first)
        machine.await_live(first)
        machine.settle(first)
        machine.prove({first: 1, second: 2})


@pytest.mark.parametrize("point", SLICE_POINTS)
def test_a_frozen_driver_wakes_up_after_another_took_over(machines: Machines, case: Case, point: str) -> None:
    with machines(stale_seconds=4.0) as machine:
        machine.produce(rows(12))
        epoch = machine.start_live(f"{point}@2:stop")
        frozen = machine.beat(epoch)
        machine.produce(rows(12, first=12), start_ms=START_MS + 60_000)
        machine.await_death(epoch)
        machine.wait(lambda: not machine.status(epoch).is_running, "the heartbeat grows stale")
        machine.run(epoch)
        machine.settle(epoch)
        os.kill(frozen.pid, signal.SIGCONT)
        machine.produce(rows(12, first=24), start_ms=START_MS + 120_000)
        machine.wait(lambda: not heartbeat.is_process(frozen.pid, frozen.started), "the woken driver stops")
        machine.settle(epoch)
        assert "StaleWriterError" in machine.driver_log(epoch)
        machine.prove({epoch: 1})
        case(f"frozen:{point}")


def test_the_broker_is_killed_repeatedly_in_stream_replay_and_cutover(tmp_path: Path, case: Case) -> None:
    with KafkaProcess.start(tmp_path / "kafka") as broker, Broker(broker.bootstrap_servers) as kafka:
        kafka.create_topic("pos", 2, {"retention.ms": "-1"})
        with rig(tmp_path / "rig", kafka, "pos", slice_records=100, handover_seconds=600.0) as machine:
            first = live(machine)
            with machine.feeding():

                def outage(name: str) -> None:
                    broker.kill()
                    time.sleep(2)  # the outage itself
                    broker.restart()
                    case(f"broker:{name}")

                for number in range(3):
                    seq = machine.ledger(first).state().seq
                    machine.wait(lambda seq=seq: machine.ledger(first).state().seq > seq, "the stream flows")  # type: ignore[misc]
                    outage(f"stream {number + 1}")
                machine.deploy(2)
                second = machine.plan_replay()
                for number in range(2):
                    machine.wait(
                        lambda: machine.ledger(second).exists() and machine.ledger(second).state().seq > 0,
                        "the replay runs",
                    )
                    outage(f"replay {number + 1}")
                machine.await_stage(second, Stage.VERIFIED)
                control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
                outage("cutover")
                machine.await_live(second)
            machine.settle(second)
            machine.prove({first: 1, second: 2})
