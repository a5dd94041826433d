"""Move readers of a topology to the epoch that waits for it, also to one that was rejected.

It shows the difference and asks for approval under "Required Actions". All tasks are safe to clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import chain

from kappa_airflow.approvals import ask_each
from kappa_airflow.factory import form_dag
from kappa_airflow.forms import move_form
from kappa_airflow.moves import ChooseCandidate
from kappa_airflow.replays.replay import CutOver
from kappa_airflow.replays.reports import Verify
from kappa_airflow.tasks import for_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology, or the joint one of several."""
    form = move_form(topologies, "the one that waits, or was rejected last")
    with form_dag("cutover", topologies, doc=__doc__, wait_hours=hours, params=form):
        of = {"members": ChooseCandidate(task_id="choose", topologies=topologies).output}
        verify = for_each(topologies, Verify, task_id="verified", over=of)
        approve = ask_each(topologies, hours=hours, **of)
        chain(verify, *approve, CutOver(task_id="cut_over", answer=approve[-1].output, **of))
