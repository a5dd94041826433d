"""Fold a topology's changelog into its tables again, without running its code.

With a live epoch the result is a candidate like that of a replay: verified, and readers are moved when it is approved.
Where the lake was lost it goes live by itself, after a question: the epoch that sent last is then ended for good,
wherever it runs. Append outputs do not come back this way; a replay computes them. All tasks are safe to clear.
"""

from __future__ import annotations

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.approvals import ask_each
from kappa_airflow.factory import APPROVAL_HOURS, STAGES, topology_dag
from kappa_airflow.forms import rebuild_form
from kappa_airflow.replays.rebuild import ConfirmTakeover, PlanRebuild, StartRebuild
from kappa_airflow.replays.replay import AwaitStage, CutOver
from kappa_airflow.replays.reports import Verify

config = Config.from_env()
for topology in declared(config.topologies):
    with topology_dag(
        "rebuild",
        topology,
        doc=__doc__,
        wait_hours=2 * APPROVAL_HOURS,
        schedule=None,
        is_paused_upon_creation=False,
        max_active_runs=1,
        params=rebuild_form(),
    ):
        name, hours = topology.name, APPROVAL_HOURS
        plan = PlanRebuild(task_id="plan", topology=name)
        confirm = ConfirmTakeover(task_id="confirm", topology=name, plan=plan.output, hours=hours)
        start = StartRebuild(task_id="start", topology=name, plan=plan.output, answer=confirm.output)
        epoch = start.output
        waits = [AwaitStage(task_id=stage.lower(), topology=name, epoch=epoch, stage=stage) for stage in STAGES]
        verify = Verify(task_id="verified", topology=name, epoch=epoch)
        approve = ask_each(topology, epoch=epoch, hours=hours)
        cut_over = CutOver(task_id="cut_over", topology=name, epoch=epoch, answer=approve[-1].output)
        chain(plan, confirm, start, *waits, verify, *approve, cut_over)
