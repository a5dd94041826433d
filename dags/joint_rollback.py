"""Bring readers of several topologies back, in one commit, to the epochs that were live before, or forward again.

It says what would change and asks. All epochs catch up with their own code before readers are moved. All tasks are
safe to clear.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.approvals import Confirm
from kappa_airflow.factory import APPROVAL_HOURS, joint_dag
from kappa_airflow.joint.joint_forms import joint_move_form
from kappa_airflow.joint.together import BringBackTogether, ChooseMembers, CutOverTogether, for_each
from kappa_airflow.replays.replay import AwaitStage

config = Config.from_env()
names, hours = [topology.name for topology in declared(config.topologies)], APPROVAL_HOURS
if len(names) > 1:
    with joint_dag("joint_rollback", doc=__doc__, wait_hours=hours, params=joint_move_form(names)):
        choose = ChooseMembers(task_id="choose", is_back=True)
        chosen: Any = choose.output
        confirm = Confirm(
            task_id="confirm",
            topology="several topologies",
            epoch=None,
            what="Go back in all of them?",
            lines=chosen["lines"],
            members=chosen,
            shown=chosen["shown"],
            hours=hours,
        )
        back = BringBackTogether(task_id="bring_back", members=chosen, answer=confirm.output)
        caught_up = for_each(AwaitStage, task_id="caught_up", stage="CAUGHT_UP").expand_kwargs(back.output)
        cut_over = CutOverTogether(task_id="cut_over", members=back.output, answer=confirm.output)
        chain(choose, confirm, back, caught_up, cut_over)
