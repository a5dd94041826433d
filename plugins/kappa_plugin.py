"""Registers Kappa with Airflow: where the live tables of a topology are, for templates, and pages of its epochs and reports."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from kappa_airflow.macros import live_epoch, live_path
from kappa_airflow.pages import Pages
from kappa_airflow.reports import ReportLink


class KappaPlugin(AirflowPlugin):
    """Macros ``macros.kappa.live_epoch`` and ``macros.kappa.live_path``; pages below ``/kappa``; the link to a report."""

    name = "kappa"
    macros = (live_epoch, live_path)
    operator_extra_links = (ReportLink(),)
    fastapi_apps = ({"app": Pages(), "url_prefix": "/kappa", "name": "Kappa"},)
