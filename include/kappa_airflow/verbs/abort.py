"""Remove the candidate of a topology, with its tables, topics and group. Live and retired epochs are not touched.

It says what would go and asks under "Required Actions". All tasks are safe to clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa_airflow.factory import form_dag
from kappa_airflow.forms import move_form
from kappa_airflow.moves import Abort, ChooseCandidateToAbort
from kappa_airflow.questions import confirm_choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology."""
    (topology,) = topologies
    form = move_form(topologies, "the one that is being built, or was rejected last", keeps=False)
    with form_dag("abort", topologies, doc=__doc__, params=form):
        choose = ChooseCandidateToAbort(task_id="choose", topologies=topologies)
        confirm = confirm_choice(choose.output, what=f"Remove an epoch of {topology.name}?", hours=hours)
        Abort(task_id="abort", members=choose.output, answer=confirm.output)
