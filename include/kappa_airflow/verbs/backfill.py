"""Compute days of a topology's append outputs again and replace them in the live epoch, beside the live stream.

`airflow backfill create` makes one run a day, in UTC; the scheduler makes none. With a zone, `--dag-run-conf '{"zone":
"Europe/Berlin"}'`, a run computes the local day of its date. Each run reads again what the rows of its day are made
from, from the log or an archive, and computes them with the code of the live epoch: rows of one record each, of windows
whose step divides a day, and of joins by event time. The rows are replaced in one commit, between two slices of the
stream. Topics get nothing, and tables stay as they are. Windows of other steps, of seven hours or a week: `kappa
backfill`, whose edges may be any. The task is safe to clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa_airflow.backfill import BackfillInterval
from kappa_airflow.factory import topology_dag
from kappa_airflow.forms import backfill_form
from kappa_airflow.timetables import BackfillTimetable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology. It asks nothing."""
    (topology,) = topologies
    with topology_dag(
        "backfill",
        topology,
        doc=__doc__,
        schedule=BackfillTimetable("@daily", timezone="UTC"),
        catchup=False,  # which is how the timetable tells the scheduler from a backfill
        is_paused_upon_creation=False,  # the runs of a paused DAG stay queued
        description=f"Computes days of {topology.name} again and replaces them in the live epoch.",
        params=backfill_form(),
    ):
        BackfillInterval(task_id="backfill", topology=topology.name)
