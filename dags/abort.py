"""Remove the candidate of a topology, with its tables, topics and group. Live and retired epochs are not touched.

It says what would go and asks under "Required Actions". All tasks are safe to clear.
"""

from __future__ import annotations

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.factory import APPROVAL_HOURS, form_dag
from kappa_airflow.forms import move_form
from kappa_airflow.moves import Abort, ChooseCandidateToAbort
from kappa_airflow.questions import confirm_choice

hours = APPROVAL_HOURS
for topology in declared(Config.from_env().topologies):
    form = move_form([topology], "the one that is being built, or was rejected last", keeps=False)
    with form_dag("abort", [topology], doc=__doc__, wait_hours=hours, params=form):
        choose = ChooseCandidateToAbort(task_id="choose", topologies=[topology])
        confirm = confirm_choice(choose.output, what=f"Remove an epoch of {topology.name}?", hours=hours)
        Abort(task_id="abort", members=choose.output, answer=confirm.output)
