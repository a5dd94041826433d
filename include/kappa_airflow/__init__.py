"""Kappa inside Airflow. ``from kappa_airflow import dags`` is what a DAG file needs; all else is inside and may change.

Importing it needs neither Airflow, Spark, Kafka nor a lake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kappa_airflow.verbs import dags

__all__ = ["dags"]


def __getattr__(name: str) -> Any:
    """The maker of DAGs, imported when it is asked for: triggers and tasks do without it."""
    if name != "dags":
        raise AttributeError(f"module 'kappa_airflow' has no attribute {name!r}")
    from kappa_airflow.verbs import dags

    return dags
