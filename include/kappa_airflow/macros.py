"""Macros for templates of other DAGs: ``{{ macros.kappa.live_path('retail.loyalty', 'rewards') }}``."""

from __future__ import annotations


def live_epoch(topology: str) -> int:
    """The epoch that readers get.

    Raises:
        UnknownTopologyError: the topology has no live epoch.
    """
    from kappa.config import Config
    from kappa.serving import resolve

    return resolve(Config.from_env(), topology)


def live_path(topology: str, name: str) -> str:
    """Path of the live Delta table of a table or append output, for jobs that only know paths.

    A table there is at most ``KAPPA_MERGE_SECONDS`` behind the last commit; it has everything once the stream stands
    still.

    Raises:
        UnknownTopologyError: the topology has no live epoch, or no table or output of that name.
    """
    from kappa.config import Config
    from kappa.serving import snapshot

    path, _ = snapshot(Config.from_env(), topology).place(name)
    return path
