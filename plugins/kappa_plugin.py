"""Registers Kappa with Airflow: templates may ask where the live tables of a topology are."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from kappa_airflow.macros import live_epoch, live_path


class KappaPlugin(AirflowPlugin):
    """Macros ``macros.kappa.live_epoch`` and ``macros.kappa.live_path``."""

    name = "kappa"
    macros = (live_epoch, live_path)
