"""One continuous DAG for each topology: its live stream is running, or why not.

Unpausing it starts the stream if it has never run. Pausing it, or clearing or failing its task, never stops the stream.
"""

from __future__ import annotations

from airflow.sdk import DAG

from kappa.config import Config
from kappa.registry import declared
from kappa_airflow.stream import WatchStream

for topology in declared(Config.from_env().topologies):
    with DAG(
        dag_id=f"stream__{topology.name}",
        schedule="@continuous",
        max_active_runs=1,
        catchup=False,
        description=f"Keeps the live epoch of {topology.name} running.",
        doc_md=__doc__,
        tags=["kappa", "stream", topology.name],
    ):
        WatchStream(task_id="watch", topology=topology.name)
