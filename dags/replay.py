"""Recompute a topology's history with the code that is deployed now, beside the live epoch.

Trigger it with the form. Each stage is a task; all of them are safe to clear. `verified` logs and returns the verdict
and the difference. Nothing that readers see changes before `cut_over`, which waits for `approve` unless the form says
otherwise.
"""

from __future__ import annotations

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.approvals import ask_each
from kappa_airflow.factory import APPROVAL_HOURS, STAGES, topology_dag
from kappa_airflow.forms import replay_form
from kappa_airflow.replays.replay import AwaitStage, CutOver, PlanReplay, StartReplay
from kappa_airflow.replays.reports import Verify

config = Config.from_env()
for topology in declared(config.topologies):
    with topology_dag(
        "replay",
        topology,
        doc=__doc__,
        wait_hours=APPROVAL_HOURS,
        schedule=None,
        is_paused_upon_creation=False,
        # a second one is refused with the reason, and need not queue behind one that waits for an answer
        max_active_runs=3,
        description=f"Replays {topology.name} into a new epoch, asks for approval and cuts over.",
        params=replay_form(topology.name, topology.version, topology.file.name),
    ):
        name = topology.name
        plan = PlanReplay(task_id="plan", topology=name)
        start = StartReplay(task_id="start", topology=name, plan=plan.output)
        waits = [AwaitStage(task_id=stage.lower(), topology=name, epoch=start.output, stage=stage) for stage in STAGES]
        verify = Verify(task_id="verified", topology=name, epoch=start.output)
        approve = ask_each(topology, epoch=start.output, hours=APPROVAL_HOURS)
        cut_over = CutOver(task_id="cut_over", topology=name, epoch=start.output, answer=approve[-1].output)
        chain(plan, start, *waits, verify, *approve, cut_over)
