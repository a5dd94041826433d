"""Pools of Airflow, so that replays and backfills do not take the slots of live streams; and their creation.

``python -m kappa_airflow.pools`` creates those that are missing. `kappa up` and compose's `airflow-init` run it: a task
whose pool does not exist is never scheduled.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool in which tasks that wait in the triggerer count too.

    Attributes:
        name: its name in Airflow.
        slots: tasks at a time; a change in Airflow is kept.
        what: description of its tasks.
    """

    name: str
    slots: int
    what: str


STREAMS = Pool(name="kappa_streams", slots=256, what="Kappa: watches of live streams, one task per topology.")
REPLAYS = Pool(name="kappa_replays", slots=32, what="Kappa: replays, rebuilds and housekeeping, one task per run.")
BACKFILLS = Pool(name="kappa_backfills", slots=3, what="Kappa: backfills. Each task is a Spark application of its own.")
#: Airflow's own pool, where a rollback waits behind no replay.
MOVES = "default_pool"
POOLS = (STREAMS, REPLAYS, BACKFILLS)


def create_missing() -> list[str]:
    """Create the pools that Airflow does not have, and return their names. Needs Airflow's database. Idempotent."""
    from airflow.models.pool import Pool as Stored

    names = {pool.pool for pool in Stored.get_pools()}
    missing = [pool for pool in POOLS if pool.name not in names]
    for pool in missing:
        Stored.create_or_update_pool(pool.name, pool.slots, pool.what, include_deferred=True)
    return [pool.name for pool in missing]


if __name__ == "__main__":
    for name in create_missing():
        sys.stdout.write(f"Created pool {name}.\n")
