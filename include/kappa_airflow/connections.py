"""Spark's master and settings, and the login to Kafka, from Airflow connections."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kappa import properties
from kappa.config import Config
from kappa.kafka import client_file

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_SPARK_CONNECTION = "spark_default"
#: Where it exists, tasks log in to Kafka by it.
KAFKA_CONNECTION = "kappa_kafka"

#: What the Spark provider resolves from the connection, as the Spark setting that says the same.
_SETTINGS = {
    "queue": "spark.yarn.queue",
    "namespace": "spark.kubernetes.namespace",
    "principal": "spark.kerberos.principal",
    "keytab": "spark.kerberos.keytab",
    "deploy_mode": "spark.submit.deployMode",
}


def config_with_spark(conn_id: str = DEFAULT_SPARK_CONNECTION, config: Config | None = None) -> Config:
    """The configuration of this process, with what Airflow's connections say of Spark and of Kafka.

    The Spark provider reads the master, so a connection means here what it means to ``SparkSubmitOperator``. Further
    settings are keys of the connection's extra that begin with ``spark.``. Where the connection does not exist the
    configuration is returned as it is: the provider would fall back to YARN, which was not asked for.

    Call it inside a task: it asks Airflow for the connections.

    Args:
        conn_id: the id of Spark's connection; that of Kafka is :data:`KAFKA_CONNECTION`.
        config: what to begin with; from the environment if absent.

    Raises:
        ConfigError: the environment does not make a configuration, or Kafka's connection no login.
    """
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    config = _config_with_kafka(config or Config.from_env())
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


def _config_with_kafka(config: Config) -> Config:
    """The configuration with a client file written from Kafka's connection, for this host's owner of Kappa's home.

    A driver on this host reads the file; one elsewhere reads the file of its own host, and nothing of this one is sent
    there. Idempotent; the file is replaced in one step where the connection changed. Drivers that run read it again at
    each new connection, so that one that makes no login leaves the file that is there.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        connection = BaseHook.get_connection(KAFKA_CONNECTION)
    except AirflowNotFoundException:
        return config
    settings = {key: str(value) for key, value in connection.extra_dejson.items()}
    if connection.login:
        settings["sasl.jaas.config"] = _jaas(settings.get("sasl.mechanism", ""), connection.login, connection.password)
    client_file.check(settings, f"Airflow's connection {KAFKA_CONNECTION}")
    path = config.home / "kafka-client.properties"
    _write(path, properties.written(settings))
    servers = f"{connection.host}:{connection.port}" if connection.host and connection.port else connection.host
    return dataclasses.replace(
        config, kafka_client_file=str(path), bootstrap_servers=servers or str(config.bootstrap_servers)
    )


def _jaas(mechanism: str, login: str, password: str | None) -> str:
    if mechanism == "OAUTHBEARER":
        return client_file.login("OAuthBearerLoginModule", {"clientId": login, "clientSecret": password or ""})
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    return client_file.login(module, {"username": login, "password": password or ""})


def _write(path: Path, text: str) -> None:
    """Replace a file by one that its owner alone may read, where it says something else; also beside another task."""
    if path.is_file() and path.read_text(encoding="utf-8") == text and not path.stat().st_mode & 0o077:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(partial).replace(path)
    except BaseException:  # it holds a password, and nobody would remove it
        Path(partial).unlink(missing_ok=True)
        raise
