"""Move readers of several topologies, in one commit, to the epochs that wait for it, also to rejected ones.

`approve` asks once, with the difference of each; one rejection keeps all where they are. All tasks are safe to clear.
"""

from __future__ import annotations

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.factory import APPROVAL_HOURS, joint_dag
from kappa_airflow.joint.joint_approval import approve_together
from kappa_airflow.joint.joint_forms import joint_move_form
from kappa_airflow.joint.together import ChooseMembers, CutOverTogether, for_each
from kappa_airflow.replays.reports import Verify

config = Config.from_env()
topologies = declared(config.topologies)
names, hours = [topology.name for topology in topologies], APPROVAL_HOURS
if len(names) > 1:
    with joint_dag("joint_cutover", doc=__doc__, wait_hours=hours, params=joint_move_form(names)):
        choose = ChooseMembers(task_id="choose", is_back=False)
        verify = for_each(Verify, task_id="verified").expand_kwargs(choose.output)
        approve = approve_together(topologies, members=choose.output, hours=hours)
        cut_over = CutOverTogether(task_id="cut_over", members=choose.output, answer=approve[-1].output)
        chain(verify, *approve, cut_over)
