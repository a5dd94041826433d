"""Replay several topologies with the code that is deployed now, and move readers of all of them in one commit.

Trigger it with the form, which names the topologies. Nothing starts before all plans are made. `approve` asks once,
with the difference of each; one rejection keeps all where they are. All tasks are safe to clear.
"""

from __future__ import annotations

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.factory import APPROVAL_HOURS, STAGES, joint_dag
from kappa_airflow.joint.joint_approval import approve_together
from kappa_airflow.joint.joint_forms import joint_replay_form
from kappa_airflow.joint.together import CutOverTogether, NameTopologies, PlanMember, StartMember, for_each
from kappa_airflow.replays.replay import AwaitStage
from kappa_airflow.replays.reports import Verify

config = Config.from_env()
topologies = declared(config.topologies)
names, hours = [topology.name for topology in topologies], APPROVAL_HOURS
if len(names) > 1:
    with joint_dag("joint_replay", doc=__doc__, wait_hours=hours, params=joint_replay_form(names)):
        name = NameTopologies(task_id="name")
        plan = for_each(PlanMember, task_id="plan").expand(topology=name.output)
        start = for_each(StartMember, task_id="start").expand(plan=plan.output)
        waits = [
            for_each(AwaitStage, task_id=stage.lower(), stage=stage).expand_kwargs(start.output) for stage in STAGES
        ]
        verify = for_each(Verify, task_id="verified").expand_kwargs(start.output)
        approve = approve_together(topologies, members=start.output, hours=hours)
        cut_over = CutOverTogether(task_id="cut_over", members=start.output, answer=approve[-1].output)
        chain(start, *waits, verify, *approve, cut_over)
