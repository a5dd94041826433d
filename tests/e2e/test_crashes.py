"""Real drivers, killed and frozen in mid-work; what they leave is checked against the raw topic by plain Python.

The processes of one test die one after the other, each in a slice of its own, and each is repaired by the next.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.processes import Rig, rig, rows

from kappa import control
from kappa.control import upgrade
from kappa.kafka.broker import Broker
from kappa.presence import heartbeat
from kappa.replay.stages import Stage
from kappa_local.kafka import KafkaProcess

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "points",
    [["send", "apply"], ["plan", "effects.outputs", "send.open", "send", "apply", "commit"]],
    ids=["two of them", "all of them"],
)
def test_a_live_driver_killed_at_every_line_of_a_slice_loses_and_repeats_nothing(
    machine: Rig, points: list[str]
) -> None:
    machine.config = replace(
        machine.config, merge_seconds=0.0
    )  # what is killed around a merge is then one that does something
    machine.produce(rows(12))
    epoch = machine.start(f"{points[0]}@1")
    for seq, point in enumerate(points, start=1):
        machine.await_death(epoch)
        assert machine.ledger(epoch).state().seq == seq, f"died at {point} of slice {seq}"
        machine.produce(rows(12, first=12 * seq), start_ms=1_700_000_000_000 + 60_000 * seq)
        machine.run(epoch, f"{points[seq]}@{seq + 1}" if seq < len(points) else "")
    machine.settle(epoch)
    assert machine.prove({epoch: 1}) == 12 * (len(points) + 1)


def test_a_driver_whose_jvm_is_killed_ends_and_the_next_runs_the_code_of_the_epoch(machine: Rig) -> None:
    machine.produce(rows(12))
    epoch = machine.start_live()
    (jvm,) = [child for child in psutil.Process(machine.beat(epoch).pid).children() if child.name() == "java"]
    jvm.kill()
    machine.await_end(epoch)
    machine.deploy(7)
    machine.produce(rows(12, first=12), start_ms=1_700_000_060_000)
    machine.run(epoch)
    machine.settle(epoch)
    assert machine.prove({epoch: 1}) == 24


def test_candidate_and_live_driver_killed_in_stages_of_a_replay_and_of_its_cutover(machine: Rig) -> None:
    machine.produce(rows(50))
    first = machine.start_live("yield")
    machine.deploy(2)
    second = machine.plan_replay("rewind.group")
    for index, point in enumerate(["seed.tables", "effects.outputs@2", "baseline.marker"]):
        machine.await_death(second)
        machine.produce(rows(5, first=100 * (index + 1)), start_ms=1_700_000_100_000 + 60_000 * index)
        machine.run(second, point)
    machine.await_death(second)
    machine.run(second, "moved")
    machine.await_stage(second, Stage.VERIFIED)
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    machine.await_death(first)
    machine.await_death(second)
    assert machine.record().live == second
    assert machine.ledger(second).state().is_yielded
    machine.run(second, "resume")
    machine.await_death(second)
    machine.produce(rows(12, first=500), start_ms=1_700_000_900_000)
    machine.run(second)
    machine.settle(second)
    assert machine.prove({first: 1, second: 2}) == 77


def test_a_driver_that_wakes_after_another_took_over_harms_nothing(machine: Rig) -> None:
    machine.config = config = machine.config.__class__(**{**vars(machine.config), "stale_seconds": 4.0})
    machine.produce(rows(12))
    epoch = machine.start_live("effects@2:stop")
    frozen = machine.beat(epoch)
    machine.produce(rows(12, first=12), start_ms=1_700_000_060_000)
    machine.await_death(epoch)
    machine.wait(
        lambda: control.driver_status(config, machine.name, epoch).state == "dead", "the heartbeat grows stale"
    )
    assert heartbeat.is_process(frozen.pid, frozen.started)
    machine.deploy(7)  # what is deployed by now does not matter: the successor runs the code that the epoch recorded
    machine.run(epoch)
    machine.settle(epoch)
    machine.produce(rows(12, first=24), start_ms=1_700_000_120_000)
    machine.settle(epoch)
    rows_before = len(machine.ledger(epoch).rows())
    os.kill(frozen.pid, signal.SIGCONT)
    machine.wait(lambda: not heartbeat.is_process(frozen.pid, frozen.started), "the woken driver stops")
    assert "StaleWriterError" in machine.driver_log(epoch)
    assert len(machine.ledger(epoch).rows()) == rows_before
    assert machine.beat(epoch).pid != frozen.pid
    assert control.driver_status(config, machine.name, epoch).is_running
    assert machine.prove({epoch: 1}) == 36


def test_a_broker_killed_in_a_stream_replay_and_cutover_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with KafkaProcess.start(tmp_path / "kafka") as broker, Broker(broker.bootstrap_servers) as kafka:
        kafka.create_topic("pos", 2, {"retention.ms": "-1"})
        # Slices that hold what a slow machine is fed meanwhile: smaller ones would never come to the end of the log.
        with rig(tmp_path / "rig", kafka, "pos", slice_records=2_000, handover_seconds=600.0) as machine:

            def outage() -> None:
                broker.kill()
                time.sleep(2)  # the outage itself: there is nothing to wait for
                broker.restart()

            machine.produce(rows(12))
            epoch = machine.start_live()
            with machine.feeding():
                machine.wait(lambda: machine.ledger(epoch).state().seq >= 4, "the stream flows")
                outage()
                seq = machine.ledger(epoch).state().seq
                machine.wait(lambda: machine.ledger(epoch).state().seq >= seq + 3, "the stream flows again")
                machine.deploy(2)
                second = machine.plan_replay()
                machine.wait(
                    lambda: machine.ledger(second).exists() and machine.ledger(second).state().seq > 0,
                    "the replay runs",
                )
                outage()
                machine.await_stage(second, Stage.VERIFIED)
                control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
                outage()
                machine.await_live(second)
            machine.settle(second)
            assert machine.prove({epoch: 1, second: 2}) > 12


@pytest.mark.soak
def test_a_candidate_killed_in_its_second_run_gives_one_result_and_leaves_nothing(machine: Rig) -> None:
    machine.produce(rows(50))
    first = machine.start_live()
    machine.deploy(2)
    points = ["recomputed.slice@2", "recomputed", "recomputed.record"]
    second = machine.plan_replay(points[0], determinism=True, slice_records=20)
    folder = Path(machine.paths(second).root, "recomputed", "replay")
    for point in [*points[1:], ""]:
        machine.await_death(second)
        assert folder.exists()
        machine.run(second, point)
    machine.await_stage(second, Stage.VERIFIED)
    assert not folder.exists()
    determinism = machine.record().epoch(second).determinism
    assert determinism.is_same
    assert [e.event for e in machine.record().events if e.epoch == second].count("replayed") == 1
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    machine.await_live(second)
    machine.produce(rows(12, first=500), start_ms=1_700_000_900_000)
    machine.settle(second)
    assert machine.prove({first: 1, second: 2}) == 62


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("upgrade.ready", marks=pytest.mark.soak),
        "upgrade",
        pytest.param("upgraded", marks=pytest.mark.soak),
    ],
)
def test_a_live_driver_killed_around_an_upgrade_goes_on_with_old_code_or_new(machine: Rig, point: str) -> None:
    machine.produce(rows(12))
    epoch = machine.start_live(point)
    first = machine.record().epoch(epoch).code
    machine.deploy(1)
    file = machine.config.topologies / "balances.py"
    file.write_text(file.read_text().replace("Running balances", "The same, said otherwise"))
    proposal = upgrade.propose(machine.config, machine.name, slices=0)
    upgrade.upgrade(machine.config, proposal, history_stands=True, actor="ada", reason="words only")
    machine.await_death(epoch)
    switch = machine.ledger(epoch).state().upgrade
    assert (switch is not None) == (point != "upgrade.ready")
    machine.produce(rows(12, first=12), start_ms=1_700_000_060_000)
    machine.run(epoch)
    upgrade.await_switch(machine.config, proposal)
    machine.settle(epoch)
    assert machine.prove({epoch: 1}) == 24
    assert machine.beat(epoch).code == proposal.to_code
    state = machine.ledger(epoch).state()
    assert [row.kind for row in machine.ledger(epoch).rows()].count("upgrade") == 1
    assert state.upgrade is not None
    by_code = {row.code for row in state.commits if row.seq <= state.upgrade.seq}
    assert by_code == {first}
    assert {row.code for row in state.commits if row.seq > state.upgrade.seq} == {proposal.to_code}


@pytest.mark.soak
def test_the_upgrade_command_shows_both_codes_and_ends_when_the_new_one_runs(machine: Rig) -> None:
    def kappa(*words: str) -> str:
        command = [sys.executable, "-m", "kappa", "upgrade", machine.name, *words]
        result = subprocess.run(
            command, env={**os.environ, **machine.config.to_env()}, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    machine.produce(rows(12))
    epoch = machine.start_live()
    first = machine.record().epoch(epoch).code
    machine.deploy(2)
    output = kappa()
    assert "output moves: " in output and "Slices 1 to" in output and "Nothing was changed" in output
    assert machine.record().epoch(epoch).upgrade is None
    assert "runs version 2" in kappa("--history-stands", "--reason", "twice from now on", "--execute")
    assert machine.beat(epoch).code != first
    assert not list(Path(machine.paths(epoch).root).glob("recomputed/*"))
    (entry,) = [e for e in control.chronicle(machine.config, machine.name) if e.event == "upgrade"]
    assert entry.verdict == "differs" and entry.report is not None
    before = machine.balances()
    machine.produce([("account-0", 100)], start_ms=1_700_000_900_000)
    machine.settle(epoch)
    assert machine.balances() == {**before, "account-0": before["account-0"] + 200}
