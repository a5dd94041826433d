"""A whole Airflow over real drivers: its processes, and theirs, are killed during a replay and during its cutover."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from support.airflow_stack import AirflowStack, live_by_its_dag, running, wait_for
from support.processes import Rig, rig, rows

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]

PATIENCE = 240


def test_a_replay_whose_tasks_triggerer_and_drivers_are_killed_needs_no_human(
    tmp_path: Path, kafka: Broker, topic: TopicFactory
) -> None:
    with rig(tmp_path, kafka, topic(partitions=2), slice_records=20, handover_seconds=600.0) as machine:
        machine.produce(rows(50))
        with running(AirflowStack(machine.config)) as stack:
            replay = f"replay__{machine.name}"
            stack.await_dag(replay)
            first = live_by_its_dag(stack, machine, PATIENCE)
            machine.deploy(2)

            run = stack.trigger(replay, {"then": "cut_over", "reason": "version 2"})
            killed = kill_a_running_task(stack, replay, run)
            wait_for(lambda: len(machine.record().epochs) == 2, PATIENCE, "the replay is on record")
            machine.started.add(2)
            wait_for(lambda: machine.status(2).is_running, PATIENCE, "the candidate's driver runs")
            stack.kill("triggerer")
            machine.kill(2)
            stack.start_component("triggerer")
            machine.produce(rows(12, first=100), start_ms=1_700_000_100_000)

            wait_for(lambda: machine.record().handover, PATIENCE, "the cutover begins", lambda: state_of(machine))
            stack.kill("triggerer")
            kill_all(stack, machine, "scheduler", first)
            stack.start_component("triggerer")
            stack.start_component("scheduler")
            assert stack.finish(replay, run, PATIENCE) == "success"
            assert stack.tasks(replay, run)[killed]["try_number"] > 1, f"{killed} was killed and not tried again"
            assert machine.record().live == 2

            machine.produce(rows(12, first=200), start_ms=1_700_000_200_000)
            machine.settle(2)
            wait_for(lambda: machine.record().epoch(first).stage is Stage.RETIRED, PATIENCE, "the old epoch is retired")
            assert machine.prove({first: 1, 2: 2}) == 74


def kill_a_running_task(stack: AirflowStack, dag_id: str, run: str) -> str:
    """SIGKILL the process of a task of a run while it works; Airflow's executor is not told. Which task it was."""

    def killed() -> str | None:
        for name, task in stack.tasks(dag_id, run).items():
            process = task_process(stack, task)
            if process is None:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()  # it cannot end by itself between the look and the kill
                if task_process(stack, stack.tasks(dag_id, run)[name]) is not None:
                    process.kill()
                    return name
                process.resume()
        return None

    return wait_for(killed, PATIENCE, f"a task of {run} runs") or ""


def task_process(stack: AirflowStack, task: dict[str, Any]) -> psutil.Process | None:
    """The process that runs a task at the moment: one below the executor's workers."""
    if task["state"] != "running" or not task["pid"]:
        return None
    below = psutil.Process(stack.processes["scheduler"].pid).children(recursive=True)
    return next((process for process in below if process.pid == task["pid"]), None)


def kill_all(stack: AirflowStack, machine: Rig, component: str, epoch: int) -> None:
    """A component with its tasks, and the epoch's driver, as when a host goes away."""
    stack.kill(component)
    status = machine.status(epoch)
    if status.is_running and status.pid is not None:
        os.kill(status.pid, signal.SIGKILL)


def state_of(machine: Rig) -> str:
    progress: Callable[[int], control.Progress] = lambda epoch: control.progress(machine.config, machine.name, epoch)  # noqa: E731
    return "; ".join(progress(epoch).message for epoch in machine.record().epochs)
