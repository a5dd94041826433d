"""Recompute a topology's history with the code that is deployed now, beside the live epoch.

Trigger it with the form. Each stage is a task; all of them are safe to clear. `verified` logs and returns the verdict
and the difference. Nothing that readers see changes before `cut_over`, which waits for `approve` unless the form says
otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa_airflow.approvals import verify_and_move
from kappa_airflow.factory import STAGES, form_dag
from kappa_airflow.forms import replay_form
from kappa_airflow.replays.replay import PlanReplay, StartReplay
from kappa_airflow.tasks import for_each, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology, or the joint one of several."""
    with form_dag("replay", topologies, doc=__doc__, params=replay_form(topologies)):
        plan = for_each(topologies, PlanReplay, task_id="plan", over={"topology": names(topologies)})
        start = for_each(topologies, StartReplay, task_id="start", over={"plan": plan.output})
        verify_and_move(topologies, start.output, hours=hours, stages=STAGES)
