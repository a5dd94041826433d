"""Registers Kappa with Airflow: where the live tables of a topology are, for templates, pages of its epochs and
reports, and a timetable.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from kappa_airflow.macros import live_epoch, live_path
from kappa_airflow.pages import Pages
from kappa_airflow.reports import ReportLink
from kappa_airflow.timetables import BackfillTimetable


class KappaPlugin(AirflowPlugin):
    """Macros ``macros.kappa.live_epoch`` and ``macros.kappa.live_path``; pages below ``/kappa``; the link to a report;
    the timetable of backfills.
    """

    name = "kappa"
    macros = (live_epoch, live_path)
    operator_extra_links = (ReportLink(),)
    timetables = (BackfillTimetable,)
    fastapi_apps = ({"app": Pages(), "url_prefix": "/kappa", "name": "Kappa"},)
