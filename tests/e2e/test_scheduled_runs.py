"""Scheduled reprocessing on a whole Airflow over real drivers: two runs after a planted difference, two without one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.airflow_stack import AirflowStack, running, wait_for
from support.processes import Rig, rig, rows

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]

PATIENCE = 300
NEVER = "0 0 1 1 *"


def deploy(machine: Rig, version: int) -> None:
    """As a user does who declares a schedule; the runs of the test are triggered."""
    machine.deploy(version)
    file = machine.config.topologies / "balances.py"
    text = file.read_text().replace("    step=step,\n", f'    step=step,\n    reprocess=Schedule(cron="{NEVER}"),\n')
    file.write_text(text.replace("import Append,", "import Schedule, Append,"))


def test_a_scheduled_run_reports_a_difference_and_drops_an_equal_epoch(
    tmp_path: Path, kafka: Broker, topic: TopicFactory
) -> None:
    with rig(tmp_path, kafka, topic(partitions=2), slice_records=20) as machine:
        machine.produce(rows(50))
        deploy(machine, 1)
        first = machine.start_live()
        deploy(machine, 2)
        with running(AirflowStack(machine.config)) as stack:
            dag = f"reprocess__{machine.name}"
            stack.await_dag(dag)

            def runs(epoch: int, *, is_killed: bool = False) -> tuple[str, str]:
                run = f"by-command-line-{epoch}"
                stack.command("dags", "trigger", dag, "--run-id", run)
                wait_for(lambda: epoch in machine.record().epochs, PATIENCE, f"epoch {epoch} is on record")
                machine.started.add(epoch)
                if is_killed:
                    for component in ("triggerer", "scheduler"):
                        stack.kill(component)
                    for component in ("scheduler", "triggerer"):
                        stack.start_component(component)
                return run, stack.finish(dag, run, 2 * PATIENCE)

            for epoch in (2, 3):
                run, state = runs(epoch)
                assert state == "failed"
                assert stack.tasks(dag, run)["conclude"]["state"] == "failed"
                log = stack.task_log(dag, run, "conclude")
                assert f"differs from live epoch {first}" in log and "7 changed" in log
                assert f"Epoch {epoch} stays until the next run replaces it" in log
                assert machine.record().epoch(epoch).stage is Stage.VERIFIED
            assert machine.record().epoch(2).stage is Stage.ABORTED

            deploy(machine, 1)
            for epoch in (4, 5):
                run, state = runs(epoch, is_killed=epoch == 5)
                assert state == "success"
                assert f"Epoch {epoch} is the same as live epoch {first} and was dropped" in stack.task_log(
                    dag, run, "conclude"
                )
                assert machine.record().epoch(epoch).stage is Stage.ABORTED
                assert not Path(machine.paths(epoch).root).exists()
                assert control.diff(machine.config, machine.name, epoch).verdict == "same"

            candidate = machine.plan_replay()
            run = stack.trigger(dag, {})
            assert stack.finish(dag, run, PATIENCE) == "success"
            assert stack.task_state(dag, run, "plan") == "skipped"
            assert f"Epoch {candidate} of {machine.name} is being built already" in stack.task_log(dag, run, "plan")
            assert not machine.record().epoch(candidate).stage.is_ended
        assert machine.record().live == first
