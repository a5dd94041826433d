"""Asset events of served tables: one for each cutover, rollback and backfill of a table, by whomever it was made.

A watcher reads the record of epochs. DAGs that are scheduled by
`kappa_airflow.announcing.announcements.served(topology, table)` run after each of these events, which says epoch,
offsets and difference in its `extra`. Safe to clear.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kappa_airflow.announcing.announce import Announce, moves
from kappa_airflow.factory import platform_dag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The one DAG, whatever topologies there are."""
    wakes = moves()
    with platform_dag(
        "announcements",
        tags=["announcements"],
        doc=__doc__ or "",
        lasts=timedelta(hours=6),
        schedule=[wakes],
        is_paused_upon_creation=False,
        max_active_runs=1,
    ):
        Announce(task_id="announce", wakes=wakes)
