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
from kappa_airflow.factory import APPROVAL_HOURS, STAGES, form_dag, groups
from kappa_airflow.forms import replay_form
from kappa_airflow.replays.replay import AwaitStage, CutOver, PlanReplay, StartReplay
from kappa_airflow.replays.reports import Verify
from kappa_airflow.tasks import for_each, names

hours = APPROVAL_HOURS
for group in groups(declared(Config.from_env().topologies)):
    with form_dag("replay", group, doc=__doc__, wait_hours=hours, params=replay_form(group)):
        plan = for_each(group, PlanReplay, task_id="plan", over={"topology": names(group)})
        start = for_each(group, StartReplay, task_id="start", over={"plan": plan.output})
        of = {"members": start.output}
        waits = [for_each(group, AwaitStage, task_id=stage.lower(), stage=stage, over=of) for stage in STAGES]
        verify = for_each(group, Verify, task_id="verified", over=of)
        approve = ask_each(group, hours=hours, **of)
        cut_over = CutOver(task_id="cut_over", answer=approve[-1].output, **of)
        chain(start, *waits, verify, *approve, cut_over)
