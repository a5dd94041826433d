"""Remove the candidate of a topology, with its tables, topics and group. Live and retired epochs are not touched.

It says what would go and asks under "Required Actions". All tasks are safe to clear.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.approvals import Confirm
from kappa_airflow.factory import APPROVAL_HOURS, move_dag
from kappa_airflow.moves import Abort, ChooseCandidateToAbort

config = Config.from_env()
for topology in declared(config.topologies):
    with move_dag(
        "abort",
        topology,
        epoch="the one that is being built, or was rejected last",
        doc=__doc__,
        wait_hours=APPROVAL_HOURS,
        keeps=False,
    ):
        name = topology.name
        choose = ChooseCandidateToAbort(task_id="choose", topology=name)
        chosen: Any = choose.output
        of: dict[str, Any] = {"topology": name, "epoch": chosen}
        confirm = Confirm(
            task_id="confirm",
            what=f"Remove an epoch of {name}?",
            lines=chosen["lines"],
            shown=chosen["shown"],
            hours=APPROVAL_HOURS,
            **of,
        )
        chain(choose, confirm, Abort(task_id="abort", answer=confirm.output, **of))
