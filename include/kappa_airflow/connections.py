"""Spark's master and settings from an Airflow connection."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kappa.config import Config

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_SPARK_CONNECTION = "spark_default"

#: What the Spark provider resolves from the connection, as the Spark setting that says the same.
_SETTINGS = {
    "queue": "spark.yarn.queue",
    "namespace": "spark.kubernetes.namespace",
    "principal": "spark.kerberos.principal",
    "keytab": "spark.kerberos.keytab",
    "deploy_mode": "spark.submit.deployMode",
}


def config_with_spark(conn_id: str = DEFAULT_SPARK_CONNECTION, config: Config | None = None) -> Config:
    """The configuration of this process, with master and settings of the drivers taken from an Airflow connection.

    The Spark provider reads the master, so a connection means here what it means to ``SparkSubmitOperator``. Further
    settings are keys of the connection's extra that begin with ``spark.``. Where the connection does not exist the
    configuration is returned as it is: the provider would fall back to YARN, which was not asked for.

    Call it inside a task: it asks Airflow for the connection.

    Args:
        conn_id: the connection's id.
        config: what to begin with; from the environment if absent.

    Raises:
        ConfigError: the environment does not make a configuration.
    """
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    config = config or Config.from_env()
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return config
    # The provider offers no public reader of what it resolved; a test holds this to the pinned release.
    resolved: Mapping[str, Any] = SparkSubmitHook(conn_id=conn_id)._resolve_connection()
    settings = {_SETTINGS[key]: str(resolved[key]) for key in _SETTINGS if resolved.get(key)}
    extra = {key: str(value) for key, value in connection.extra_dejson.items() if key.startswith("spark.")}
    return dataclasses.replace(
        config, spark_master=resolved["master"], spark_conf={**config.spark_conf, **settings, **extra}
    )
