"""Move readers of a topology to the epoch that waits for it, also to one that was rejected.

It shows the difference and asks for approval under "Required Actions". All tasks are safe to clear.
"""

from __future__ import annotations

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.approvals import ask_each
from kappa_airflow.factory import APPROVAL_HOURS, form_dag, groups
from kappa_airflow.forms import move_form
from kappa_airflow.moves import ChooseCandidate
from kappa_airflow.replays.replay import CutOver
from kappa_airflow.replays.reports import Verify
from kappa_airflow.tasks import for_each

hours = APPROVAL_HOURS
for group in groups(declared(Config.from_env().topologies)):
    form = move_form(group, "the one that waits, or was rejected last")
    with form_dag("cutover", group, doc=__doc__, wait_hours=hours, params=form):
        of = {"members": ChooseCandidate(task_id="choose", topologies=group).output}
        verify = for_each(group, Verify, task_id="verified", over=of)
        approve = ask_each(group, hours=hours, **of)
        chain(verify, *approve, CutOver(task_id="cut_over", answer=approve[-1].output, **of))
