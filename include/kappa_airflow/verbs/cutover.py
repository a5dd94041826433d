"""Move readers of a topology to the epoch that waits for it, also to one that was rejected.

It shows the difference and asks for approval under "Required Actions". All tasks are safe to clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa_airflow.approvals import verify_and_move
from kappa_airflow.factory import form_dag
from kappa_airflow.forms import move_form
from kappa_airflow.moves import ChooseCandidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology, or the joint one of several."""
    form = move_form(topologies, "the one that waits, or was rejected last")
    with form_dag("cutover", topologies, doc=__doc__, params=form):
        choose = ChooseCandidate(task_id="choose", topologies=topologies)
        verify_and_move(topologies, choose.output, hours=hours)
