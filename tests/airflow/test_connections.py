import json
from typing import Any

import pytest

from kappa.config import Config
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
    connect(monkeypatch, host="yarn", extra={"queue": "streams", "spark.executor.memory": "4g", "other": "x"})
    settings = config_with_spark("cluster", config).spark_conf
    assert settings == {"spark.yarn.queue": "streams", "spark.executor.memory": "4g"}


def test_without_the_connection_the_configuration_stays_as_it_is(config: Config) -> None:
    assert config_with_spark("nowhere", config) == config
