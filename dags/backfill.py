"""Compute days of a topology's append outputs again and replace them in the live epoch, beside the live stream.

`airflow backfill create` makes one run a day; the scheduler makes none. Each run reads the records of its day again,
from the log or an archive, and computes them with the code of the live epoch. The rows are replaced in one commit,
between two slices of the stream. Topics get nothing. Only for outputs whose rows are computed record by record. The
task is safe to clear.
"""

from __future__ import annotations

from kappa.config import Config
from kappa.topology.registry import declared
from kappa_airflow.backfill import BackfillInterval
from kappa_airflow.factory import topology_dag
from kappa_airflow.forms import backfill_form
from kappa_airflow.timetables import BackfillTimetable

for topology in declared(Config.from_env().topologies):
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
