"""Move readers of a topology to the epoch that waits for it, also to one that was rejected.

It shows the difference and asks for approval under "Required Actions". All tasks are safe to clear.
"""

from __future__ import annotations

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.approvals import ask_each
from kappa_airflow.factory import APPROVAL_HOURS, move_dag
from kappa_airflow.moves import ChooseCandidate
from kappa_airflow.replays.replay import CutOver
from kappa_airflow.replays.reports import Verify

config = Config.from_env()
for topology in declared(config.topologies):
    with move_dag(
        "cutover", topology, epoch="the one that waits, or was rejected last", doc=__doc__, wait_hours=APPROVAL_HOURS
    ):
        name = topology.name
        choose = ChooseCandidate(task_id="choose", topology=name)
        epoch = choose.output
        verify = Verify(task_id="verified", topology=name, epoch=epoch)
        approve = ask_each(topology, epoch=epoch, hours=APPROVAL_HOURS)
        cut_over = CutOver(task_id="cut_over", topology=name, epoch=epoch, answer=approve[-1].output)
        chain(choose, verify, *approve, cut_over)
