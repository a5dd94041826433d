"""Asset events of served tables: one for each cutover, rollback and backfill of a table, by whomever it was made.

A watcher reads the record of epochs. DAGs that are scheduled by
`kappa_airflow.announcing.announcements.served(topology, table)` run after each of these events, which says epoch,
offsets and difference in its `extra`. Safe to clear.
"""

from __future__ import annotations

from datetime import timedelta

from kappa_airflow.announcing.announce import Announce, moves
from kappa_airflow.factory import platform_dag

MOVES = moves()

with platform_dag(
    "announcements",
    tags=["announcements"],
    doc=__doc__ or "",
    lasts=timedelta(hours=6),
    schedule=[MOVES],
    is_paused_upon_creation=False,
    max_active_runs=1,
):
    Announce(task_id="announce", wakes=MOVES)
