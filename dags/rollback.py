"""Bring readers of a topology back to a retired epoch, or forward again.

It says what would change and asks under "Required Actions". The epoch catches up with its own code, then takes over.
All tasks are safe to clear.
"""

from __future__ import annotations

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.factory import APPROVAL_HOURS, form_dag, groups
from kappa_airflow.forms import move_form
from kappa_airflow.moves import BringBack, ChoosePrevious
from kappa_airflow.questions import confirm_choice
from kappa_airflow.replays.replay import AwaitStage, CutOver
from kappa_airflow.tasks import for_each

hours = APPROVAL_HOURS
for group in groups(declared(Config.from_env().topologies)):
    form = move_form(group, "the one that was live before")
    with form_dag("rollback", group, doc=__doc__, wait_hours=hours, params=form):
        where = group[0].name if len(group) == 1 else "all of them"
        choose = ChoosePrevious(task_id="choose", topologies=group)
        confirm = confirm_choice(choose.output, what=f"Go back in {where}?", hours=hours)
        back = BringBack(task_id="bring_back", members=choose.output, answer=confirm.output)
        of = {"members": back.output}
        caught_up = for_each(group, AwaitStage, task_id="caught_up", stage="CAUGHT_UP", over=of)
        chain(caught_up, CutOver(task_id="cut_over", answer=confirm.output, **of))
