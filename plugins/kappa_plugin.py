"""Kappa's plugin, for an Airflow that has Kappa on its path but not installed: an installed one has an entry point.

Of a plugin that is there twice Airflow (3.3.2) shows an error, and its tasks load no plugin after the second one.
"""

from importlib.metadata import entry_points

if "kappa_airflow.plugin:KappaPlugin" not in {point.value for point in entry_points(group="airflow.plugins")}:
    from kappa_airflow.plugin import KappaPlugin

    __all__ = ["KappaPlugin"]
