"""Bring readers of a topology back to a retired epoch, or forward again.

It says what would change and asks under "Required Actions". The epoch catches up with its own code, then takes over.
All tasks are safe to clear.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import chain

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.approvals import Confirm
from kappa_airflow.factory import APPROVAL_HOURS, move_dag
from kappa_airflow.moves import BringBack, ChoosePrevious
from kappa_airflow.replays.replay import CutOver

config = Config.from_env()
for topology in declared(config.topologies):
    with move_dag("rollback", topology, epoch="the one that was live before", doc=__doc__, wait_hours=APPROVAL_HOURS):
        name = topology.name
        choose = ChoosePrevious(task_id="choose", topology=name)
        chosen: Any = choose.output
        of: dict[str, Any] = {"topology": name, "epoch": chosen}
        confirm = Confirm(
            task_id="confirm",
            what=f"Go back in {name}?",
            lines=chosen["lines"],
            shown=chosen["shown"],
            hours=APPROVAL_HOURS,
            **of,
        )
        caught_up = BringBack(task_id="caught_up", answer=confirm.output, **of)
        chain(choose, confirm, caught_up, CutOver(task_id="cut_over", answer=confirm.output, **of))
