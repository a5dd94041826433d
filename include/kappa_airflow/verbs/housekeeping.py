"""Remove what is left over, of all topologies: what ended epochs left, and rejected epochs whose time is over.

Nothing of an epoch that is kept is touched. The log says what was removed, and what looks left over and stays. With
"remove" set to no it only looks. Safe to clear.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import CronTriggerTimetable

from kappa_airflow.factory import platform_dag
from kappa_airflow.forms import housekeeping_form
from kappa_airflow.housekeeping import RemoveLeftovers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The one DAG, whatever topologies there are."""
    with platform_dag(
        "housekeeping",
        tags=["housekeeping"],
        doc=__doc__ or "",
        lasts=timedelta(hours=6),
        schedule=CronTriggerTimetable("30 4 * * *", timezone="UTC", run_immediately=timedelta(0)),
        catchup=False,
        is_paused_upon_creation=False,
        max_active_runs=1,
        params=housekeeping_form(),
    ):
        RemoveLeftovers(task_id="remove")
