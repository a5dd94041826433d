"""Spark's master and settings, and the logins to Kafka and to the lake's store, from Airflow connections."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kappa import properties
from kappa.config import Config
from kappa.errors import ConfigError
from kappa.kafka import client_file
from kappa.store import options
from kappa.store.address import is_remote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

DEFAULT_SPARK_CONNECTION = "spark_default"
#: If it exists, tasks log in to Kafka with it.
KAFKA_CONNECTION = "kappa_kafka"
#: If it exists, tasks log in to the store of a lake on S3 with it.
LAKE_CONNECTION = "kappa_lake"

#: Field that the Spark provider resolves from the connection -> the Spark setting of the same meaning.
_SETTINGS = {
    "queue": "spark.yarn.queue",
    "namespace": "spark.kubernetes.namespace",
    "principal": "spark.kerberos.principal",
    "keytab": "spark.kerberos.keytab",
    "deploy_mode": "spark.submit.deployMode",
}


def config_with_spark(conn_id: str = DEFAULT_SPARK_CONNECTION, config: Config | None = None) -> Config:
    """The configuration of this process, with the values of Airflow's connections for Spark, Kafka and the lake.

    The Spark provider reads the master, so a connection means here what it means to ``SparkSubmitOperator``. Further
    settings are keys of the connection's extra that begin with ``spark.``. If the connection does not exist, the
    configuration is returned as it is: the provider would fall back to YARN, which nobody requested.

    Call it inside a task: it asks Airflow for the connections.

    Args:
        conn_id: the id of Spark's connection; the others are :data:`KAFKA_CONNECTION` and :data:`LAKE_CONNECTION`.
        config: what to begin with; from the environment if absent.

    Raises:
        ConfigError: the environment is not a valid configuration, or a connection not a valid login.
    """
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    config = _config_with_lake(_config_with_kafka(config or Config.from_env()))
    if (connection := _connection(conn_id)) is None:
        return config
    extra = {key: value for key, value in _extra(connection).items() if key.startswith("spark.")}
    # The provider has no public reader of what it resolved; a test checks this against the pinned release.
    resolved: Mapping[str, Any] = SparkSubmitHook(conn_id=conn_id)._resolve_connection()
    settings = {_SETTINGS[key]: str(resolved[key]) for key in _SETTINGS if resolved.get(key)}
    return dataclasses.replace(
        config, spark_master=resolved["master"], spark_conf={**config.spark_conf, **settings, **extra}
    )


def _connection(conn_id: str) -> Connection | None:
    """A connection of Airflow; None if there is none of that id."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None


def _config_with_kafka(config: Config) -> Config:
    """The configuration with a client file written from Kafka's connection, for this host's owner of Kappa's home.

    A driver on this host reads the file; a driver elsewhere reads the file of its own host, and nothing from this one
    is sent there. Idempotent; the file is replaced in one step if the connection changed. Running drivers read it again
    for each new connection to Kafka, so an Airflow connection without a valid login leaves the file as it is.
    """
    if (connection := _connection(KAFKA_CONNECTION)) is None:
        return config
    settings = _extra(connection)
    if connection.login:
        settings["sasl.jaas.config"] = _jaas(settings.get("sasl.mechanism", ""), connection.login, connection.password)
    client_file.check(settings, f"Airflow's connection {KAFKA_CONNECTION}")
    path = config.home / "kafka-client.properties"
    _write(path, properties.written(settings))
    servers = f"{connection.host}:{connection.port}" if connection.host and connection.port else connection.host
    return dataclasses.replace(
        config, kafka_client_file=str(path), bootstrap_servers=servers or str(config.bootstrap_servers)
    )


def _config_with_lake(config: Config) -> Config:
    """The same for the store of a lake on S3: drivers read its file again when they need new keys."""
    if not is_remote(config.lake) or (connection := _connection(LAKE_CONNECTION)) is None:
        return config
    where = f"Airflow's connection {LAKE_CONNECTION}"
    if connection.host:
        raise ConfigError(
            f"{where} has the host {connection.host}, which is not an option of the store. Put the address into its "
            f'extra fields, {{"aws_endpoint_url": "https://..."}}, and remove the host: kappa airflow connections '
            f"delete {LAKE_CONNECTION}"
        )
    settings = _extra(connection)
    keys = {"aws_access_key_id": connection.login, "aws_secret_access_key": connection.password}
    settings |= {name: value for name, value in keys.items() if value}
    options.check(settings, where)
    path = config.home / "lake-client.properties"
    _write(path, properties.written(settings))
    return dataclasses.replace(config, lake_client_file=str(path))


def _extra(connection: Connection) -> dict[str, str]:
    """The extra fields of a connection as settings: switches in the words of a properties file, a null as absent.

    Raises:
        ConfigError: they are not an object of JSON, which Airflow takes for no fields, or fails on.
    """
    try:
        is_object = isinstance(json.loads(connection.extra or "{}"), dict)
    except ValueError:
        is_object = False
    if not is_object:
        raise ConfigError(
            f"The extra fields of Airflow's connection {connection.conn_id} are not an object of JSON. Write them like "
            '{"name": "value"}.'
        )
    return {
        key: json.dumps(value) if isinstance(value, bool) else str(value)
        for key, value in connection.extra_dejson.items()
        if value is not None
    }


def _jaas(mechanism: str, login: str, password: str | None) -> str:
    if mechanism == "OAUTHBEARER":
        return client_file.login("OAuthBearerLoginModule", {"clientId": login, "clientSecret": password or ""})
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    return client_file.login(module, {"username": login, "password": password or ""})


def _write(path: Path, text: str) -> None:
    """Replace a file whose content differs by one that only its owner may read; safe beside another task."""
    if path.is_file() and path.read_text(encoding="utf-8") == text and not path.stat().st_mode & 0o077:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(partial).replace(path)
    except BaseException:  # it holds a password, and nothing else would remove it
        Path(partial).unlink(missing_ok=True)
        raise
