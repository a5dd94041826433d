"""One continuous DAG for each topology: its live stream is running, or why not.

Unpausing it starts the stream if it has never run. Pausing it, or clearing or failing its task, never stops the stream.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.utils.types import DagRunType

from kappa_airflow.factory import topology_dag
from kappa_airflow.stream import WatchStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.topology.registry import Declared

# Without a start date the first run covers no time, the second gets the first one's logical date, and Airflow (3.3.2)
# takes it for a run that exists already: there would never be a second one.
START = datetime(2026, 1, 1, tzinfo=UTC)


def build(topologies: Sequence[Declared], hours: float) -> None:
    """The DAG of one topology. It asks nothing."""
    (topology,) = topologies
    with topology_dag(
        "stream",
        topology,
        doc=__doc__,
        is_paused_upon_creation=True,  # unpausing it is how a stream is started
        allowed_run_types=[DagRunType.SCHEDULED],  # a second run would only queue behind the first
        schedule="@continuous",
        start_date=START,
        catchup=False,
        max_active_runs=1,
        description=f"Keeps the live epoch of {topology.name} running.",
    ):
        WatchStream(task_id="watch", topology=topology.name)
