"""Bring readers of a topology back to a retired epoch, or forward again.

It says what would change and asks under "Required Actions". The epoch catches up with its own code, then takes over.
All tasks are safe to clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import chain

from kappa_airflow.factory import form_dag
from kappa_airflow.forms import move_form
from kappa_airflow.moves import BringBack, ChoosePrevious
from kappa_airflow.questions import confirm_choice
from kappa_airflow.replays.replay import AwaitReady, CutOver
from kappa_airflow.tasks import for_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology, or the joint one of several."""
    form = move_form(topologies, "the one that was live before")
    with form_dag("rollback", topologies, doc=__doc__, params=form):
        where = topologies[0].name if len(topologies) == 1 else "all of them"
        choose = ChoosePrevious(task_id="choose", topologies=topologies)
        confirm = confirm_choice(choose.output, what=f"Go back in {where}?", hours=hours)
        back = BringBack(task_id="bring_back", members=choose.output, answer=confirm.output)
        of = {"members": back.output}
        caught_up = for_each(topologies, AwaitReady, task_id="caught_up", over=of)
        chain(caught_up, CutOver(task_id="cut_over", answer=confirm.output, is_approval_required=False, **of))
