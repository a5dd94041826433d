"""Kappa's plugin of Airflow, which an installed package registers by its entry point.

Its macros are for templates of other DAGs: ``{{ macros.kappa.live_path('retail.loyalty', 'rewards') }}``.
"""
# ruff: noqa: RUF012  # AirflowPlugin declares its parts as lists of the class

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from kappa_airflow.pages import Pages, view
from kappa_airflow.replays.reports import ReportLink
from kappa_airflow.timetables import BackfillTimetable


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


class KappaPlugin(AirflowPlugin):
    """``macros.kappa.live_epoch`` and ``live_path``, pages at ``/kappa`` and in the navigation, links, a timetable."""

    name = "kappa"
    macros = [live_epoch, live_path]
    operator_extra_links = [ReportLink()]
    timetables = [BackfillTimetable]
    external_views = [view()]
    fastapi_apps = [{"app": Pages(), "url_prefix": "/kappa", "name": "Kappa"}]
