import dataclasses
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from support.s3_server import S3Server

from kappa.config import Config
from kappa.errors import ConfigError
from kappa.kafka.client_file import for_librdkafka, for_spark
from kappa.store import options
from kappa.store.stores import store_of
from kappa_airflow.connections import config_with_spark


def connect(monkeypatch: pytest.MonkeyPatch, **connection: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "spark", **connection}))


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ({"host": "local[2]"}, "local[2]"),
        ({"host": "spark://spark-master", "port": 7077}, "spark://spark-master:7077"),
        ({"host": "yarn"}, "yarn"),
    ],
)
def test_the_master_is_what_the_spark_provider_reads_from_the_connection(
    monkeypatch: pytest.MonkeyPatch, config: Config, connection: dict[str, Any], master: str
) -> None:
    connect(monkeypatch, **connection)
    assert config_with_spark("cluster", config).spark_master == master


def test_settings_of_the_connection_go_over_those_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    own = {"spark.executor.memory": "4g", "spark.ui.enabled": False, "spark.executor.cores": 2, "spark.jars": None}
    connect(monkeypatch, host="yarn", extra={"queue": "streams", "other": "x", **own})
    settings = config_with_spark("cluster", config).spark_conf
    own = {"spark.executor.memory": "4g", "spark.ui.enabled": "false", "spark.executor.cores": "2"}
    assert settings == {"spark.yarn.queue": "streams", **own}


@pytest.mark.parametrize("extra", ['{"spark.executor.memory": "s3cret"', '["s3cret"]', '"s3cret"', "null"])
@pytest.mark.parametrize("conn_id", ["cluster", "kappa_kafka", "kappa_lake"])
def test_extra_fields_that_are_not_an_object_are_refused_without_their_text(
    monkeypatch: pytest.MonkeyPatch, config: Config, conn_id: str, extra: str
) -> None:
    value = json.dumps({"conn_type": "generic", "login": "kappa", "password": "x", "extra": extra})
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value)
    with pytest.raises(ConfigError, match=f"connection {conn_id} are not an object of JSON") as refused:
        config_with_spark("cluster", dataclasses.replace(config, lake="s3://lakes/orders"))
    assert "s3cret" not in str(refused.value)
    assert not list(config.home.glob("*-client.properties"))


def test_without_the_connection_the_configuration_stays_as_it_is(config: Config) -> None:
    assert config_with_spark("nowhere", config) == config


def kafka(monkeypatch: pytest.MonkeyPatch, **connection: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAPPA_KAFKA", json.dumps({"conn_type": "generic", **connection}))


SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def test_a_login_to_kafka_becomes_a_file_for_its_owner_alone(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    kafka(monkeypatch, host="broker", port=9093, login="kappa", password='s"3', extra=SCRAM)
    kafka_config = config_with_spark("nowhere", config)
    assert (kafka_config.bootstrap_servers, kafka_config.kafka_client_file) == (
        "broker:9093",
        str(config.home / "kafka-client.properties"),
    )
    assert stat.S_IMODE(Path(kafka_config.kafka_client_file).stat().st_mode) == 0o600
    assert for_librdkafka(kafka_config.bootstrap_servers)["sasl.password"] == 's"3'
    for text in (repr(kafka_config), json.dumps(kafka_config.to_env()), str(for_spark(kafka_config.bootstrap_servers))):
        assert 's"3' not in text and "s\\" not in text


def test_a_login_that_changed_replaces_the_file(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    kafka(monkeypatch, login="kappa", password="old", extra=SCRAM)
    first = Path(config_with_spark("nowhere", config).kafka_client_file)
    before = first.stat()
    assert Path(config_with_spark("nowhere", config).kafka_client_file).stat() == before
    kafka(monkeypatch, login="me", password="new", extra={**SCRAM, "sasl.mechanism": "PLAIN"})
    kafka_config = config_with_spark("nowhere", config)
    assert kafka_config.bootstrap_servers == config.bootstrap_servers
    assert for_librdkafka(kafka_config.bootstrap_servers)["sasl.password"] == "new"
    assert list(config.home.glob("kafka-client*")) == [first]


def test_a_connection_that_makes_no_login_is_refused_and_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    kafka(monkeypatch, login="kappa", password="s3cret", extra={"security.protcol": "SASL_SSL"})
    with pytest.raises(ConfigError, match=r"Did you mean security\.protocol"):
        config_with_spark("nowhere", config)
    assert not list(config.home.glob("kafka-client*"))


BAD = {
    "a setting that there is not": {"security.protcol": "SASL_SSL"},
    "no mechanism": {"security.protocol": "SASL_SSL"},
    "a truststore that is not there": {**SCRAM, "ssl.truststore.type": "PEM", "ssl.truststore.location": "/no/ca.pem"},
    "a login that is none": {**SCRAM, "sasl.mechanism": "OAUTHBEARER"},
}


@pytest.mark.parametrize("extra", BAD.values(), ids=BAD)
def test_a_connection_that_makes_no_login_leaves_the_file_that_drivers_read(
    monkeypatch: pytest.MonkeyPatch, config: Config, extra: dict[str, str]
) -> None:
    kafka(monkeypatch, login="kappa", password="good", extra=SCRAM)
    file = Path(config_with_spark("nowhere", config).kafka_client_file)
    before, status = file.read_text(), file.stat()
    kafka(monkeypatch, login="kappa", password="good", extra=extra)
    with pytest.raises(ConfigError, match=r"Airflow's connection kappa_kafka"):
        config_with_spark("nowhere", config)
    assert (file.read_text(), file.stat()) == (before, status)
    assert list(config.home.iterdir()) == [file]


def lake(monkeypatch: pytest.MonkeyPatch, **connection: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAPPA_LAKE", json.dumps({"conn_type": "generic", **connection}))


@pytest.fixture
def on_s3(config: Config, s3: S3Server) -> Config:
    """The configuration of a lake on S3 without a login."""
    return dataclasses.replace(config, lake=f"{s3.url}/connected")


def extra_of(s3: S3Server) -> dict[str, Any]:
    named = {key: value for key, value in s3.options.items() if key in options.NAMES and "key" not in key}
    return {**named, "aws_allow_http": True, "aws_session_token": None}


def test_keys_of_a_connection_open_the_lake_and_become_a_file_for_its_owner_alone(
    monkeypatch: pytest.MonkeyPatch, on_s3: Config, s3: S3Server
) -> None:
    lake(monkeypatch, login=s3.access_key, password=s3.secret_key, extra=extra_of(s3))
    config = config_with_spark("nowhere", on_s3)
    assert config.lake_client_file == str(on_s3.home / "lake-client.properties")
    assert stat.S_IMODE(Path(config.lake_client_file).stat().st_mode) == 0o600
    store, path = store_of(config.lake), f"{config.lake}/marker"
    store.create(path, b"reached")
    assert store.get(path) == b"reached"
    for text in (repr(config), json.dumps(config.to_env())):
        assert s3.secret_key not in text

    lake(monkeypatch, login=s3.access_key, password="another", extra=extra_of(s3))
    config_with_spark("nowhere", on_s3)
    assert options.options_of(config.lake)["aws_secret_access_key"] == "another"


def test_a_lake_on_a_disk_asks_for_no_connection(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    lake(monkeypatch, login="kappa", password="s3cret", extra={"aws_regoin": "us-east-1"})
    assert config_with_spark("nowhere", config) == config
    assert not list(config.home.glob("lake-client*"))


BAD_OF_THE_LAKE: dict[str, dict[str, Any]] = {
    "an option that there is not": {"extra": {"aws_regoin": "us-east-1"}},
    "half a key": {"password": None},
    "a host": {"host": "store.example.org"},
    "an address with a login": {"extra": {"aws_endpoint_url": "https://me:secret@store"}},
    "a line in a key": {"password": "s3\ncret"},
}


@pytest.mark.parametrize("changed", BAD_OF_THE_LAKE.values(), ids=BAD_OF_THE_LAKE)
def test_a_connection_that_opens_no_lake_leaves_the_file_that_drivers_read(
    monkeypatch: pytest.MonkeyPatch, on_s3: Config, changed: dict[str, Any]
) -> None:
    good: dict[str, Any] = {"login": "kappa", "password": "good", "extra": {"aws_region": "us-east-1"}}
    lake(monkeypatch, **good)
    file = Path(config_with_spark("nowhere", on_s3).lake_client_file)
    before, status = file.read_text(), file.stat()
    lake(monkeypatch, **{**good, **changed})
    with pytest.raises(ConfigError) as refused:
        config_with_spark("nowhere", on_s3)
    assert "s3\ncret" not in str(refused.value) and "secret@" not in str(refused.value)
    assert (file.read_text(), file.stat()) == (before, status)
    assert list(on_s3.home.iterdir()) == [file]
