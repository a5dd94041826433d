"""Fold a topology's changelog into its tables again, without running its code.

With a live epoch the result is a candidate like that of a replay: verified, and readers are moved when it is approved.
Where the lake was lost it goes live by itself, after a question: the epoch that sent last is then ended for good,
wherever it runs. Append outputs do not come back this way; a replay computes them. All tasks are safe to clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa_airflow.approvals import verify_and_move
from kappa_airflow.factory import STAGES, form_dag
from kappa_airflow.forms import rebuild_form
from kappa_airflow.replays.rebuild import ConfirmTakeover, PlanRebuild, StartRebuild

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology."""
    (topology,) = topologies
    with form_dag("rebuild", topologies, doc=__doc__, params=rebuild_form()):
        plan = PlanRebuild(task_id="plan", topology=topology.name)
        confirm = ConfirmTakeover(task_id="confirm", plan=plan.output, hours=hours)
        start = StartRebuild(task_id="start", plan=plan.output, answer=confirm.output)
        verify_and_move(topologies, start.output, hours=hours, stages=STAGES)
