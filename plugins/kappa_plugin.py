"""Registers Kappa with Airflow: where live tables are, for templates; pages of epochs and reports; and a timetable."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from kappa_airflow.macros import live_epoch, live_path
from kappa_airflow.pages import VIEW, Pages
from kappa_airflow.replays.reports import ReportLink
from kappa_airflow.timetables import BackfillTimetable


class KappaPlugin(AirflowPlugin):
    """``macros.kappa.live_epoch`` and ``live_path``, pages at ``/kappa`` and in the navigation, links, a timetable."""

    name = "kappa"
    macros = [live_epoch, live_path]
    operator_extra_links = [ReportLink()]
    timetables = [BackfillTimetable]
    external_views = [VIEW]
    fastapi_apps = [{"app": Pages(), "url_prefix": "/kappa", "name": "Kappa"}]
