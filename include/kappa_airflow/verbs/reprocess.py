"""Recompute a topology's history on its schedule with the deployed code, and compare it with what is live.

The same: the candidate is dropped, its report kept. Different: the run fails with the difference, and the candidate
stays until the next run replaces it. Readers are never moved by this DAG. It leaves alone what a person builds. All
tasks are safe to clear.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import CronTriggerTimetable, chain
from airflow.utils.types import DagRunType

from kappa import zones
from kappa.topology.times.schedule import is_cron
from kappa_airflow.factory import STAGES, topology_dag
from kappa_airflow.replays.replay import AwaitStage
from kappa_airflow.replays.reports import Verify
from kappa_airflow.replays.reprocess import Conclude, PlanReprocess, StartReprocess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology, if the topology has a schedule. It asks nothing."""
    (topology,) = topologies
    schedule = topology.reprocess or {}
    zone = schedule.get("zone", "UTC")
    # None; or a wrong one, which is an error of the topology's file.
    if not is_cron(schedule.get("cron")) or zones.objection(zone):
        return
    with topology_dag(
        "reprocess",
        topology,
        doc=__doc__,
        # Without a start date and with no run for a time that has passed: what was declared now does not begin now.
        schedule=CronTriggerTimetable(schedule["cron"], timezone=zone, run_immediately=timedelta(0)),
        catchup=False,
        is_paused_upon_creation=False,
        max_active_runs=1,
        # Runs of a backfill do not count as active ones: each would remove the candidate of the one before.
        allowed_run_types=set(DagRunType) - {DagRunType.BACKFILL_JOB},
        description=f"Recomputes {topology.name} and compares it with what is live.",
    ):
        name = topology.name
        plan = PlanReprocess(task_id="plan", topology=name, savepoint=schedule.get("savepoint", ""))
        start = StartReprocess(task_id="start", plan=plan.output)
        waits = [AwaitStage(task_id=stage.lower(), stage=stage, members=start.output) for stage in STAGES]
        verify = Verify(task_id="verified", members=start.output)
        chain(start, *waits, verify, Conclude(task_id="conclude", topology=name, verification=verify.output))
