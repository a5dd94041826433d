"""Settings of a driver's Spark session, without starting one."""

from __future__ import annotations

import re

import pytest

from kappa.config import Config
from kappa.errors import ConfigError
from kappa.spark.session import FEW_CORES, ONE_COMPILER, check_settings, merge_bytes, serial_collector, settings

JAVA = "spark.driver.extraJavaOptions"
COLLECTOR = "-XX:+UseSerialGC -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -XX:MetaspaceSize=256m"


def session_settings(**env: str) -> dict[str, str]:
    return settings(Config.from_env(env), [])


@pytest.mark.parametrize(
    ("memory", "options"),
    [
        ("3g", " -Xmn512m -Xms768m -XX:InitialHeapSize=1536m"),
        ("768m", " -Xmn128m -Xms192m -XX:InitialHeapSize=384m"),
        ("6GB", " -Xmn1024m -Xms1536m -XX:InitialHeapSize=3072m"),
        ("1073741824", ""),
    ],
)
def test_a_heap_begins_with_half_of_the_memory_given_in_a_unit(memory: str, options: str) -> None:
    assert serial_collector(memory) == f"{COLLECTOR}{options}"


def test_few_cores_collect_in_one_thread_and_many_by_the_jvms_default() -> None:
    few = session_settings(KAPPA_SPARK_MASTER=f"local[{FEW_CORES}]")[JAVA]
    assert few == f"{COLLECTOR} -Xmn512m -Xms768m -XX:InitialHeapSize=1536m"
    assert JAVA not in session_settings(KAPPA_SPARK_MASTER=f"local[{FEW_CORES + 1}]")


def test_a_driver_whose_tasks_run_on_a_cluster_has_one_compiler_and_its_executors_have_both() -> None:
    options = session_settings(KAPPA_SPARK_MASTER="spark://somewhere:7077")
    assert options[JAVA] == ONE_COMPILER
    assert "spark.executor.extraJavaOptions" not in options
    assert options["spark.executorEnv.LC_ALL"] == "C.UTF-8"
    own = session_settings(KAPPA_SPARK_MASTER="yarn", KAPPA_SPARK_CONF=f'{{"{JAVA}": "-Dx=y"}}')
    assert own[JAVA] == "-Dx=y"


def test_a_cluster_merges_smaller_tables_than_the_spark_of_one_host() -> None:
    here, cluster = (
        Config.from_env({"KAPPA_SPARK_MASTER": master}) for master in ("local[2]", "spark://elsewhere:7077")
    )
    assert (merge_bytes(cluster), merge_bytes(here)) == (256 << 20, 1 << 30)


def test_settings_of_the_user_win() -> None:
    few = {"KAPPA_SPARK_MASTER": "local[2]"}
    options = session_settings(**few, KAPPA_SPARK_CONF='{"spark.driver.memory": "6g"}')[JAVA]
    assert options == f"{COLLECTOR} -Xmn1024m -Xms1536m -XX:InitialHeapSize=3072m"
    assert session_settings(**few, KAPPA_SPARK_CONF=f'{{"{JAVA}": "-XX:+UseZGC"}}')[JAVA] == "-XX:+UseZGC"
    assert session_settings(**few)["spark.buffer.pageSize"] == "4m"


@pytest.mark.parametrize("name", ["outputTimestampType", "datetimeRebaseModeInWrite", "datetimeRebaseModeInRead"])
def test_another_form_of_times_in_files_is_refused(name: str) -> None:
    setting = f"spark.sql.parquet.{name}"
    value = session_settings()[setting]
    assert session_settings(KAPPA_SPARK_CONF=f'{{"{setting}": "{value.lower()}"}}')
    other = "INT96" if name == "outputTimestampType" else "LEGACY"
    config = Config.from_env({"KAPPA_SPARK_CONF": f'{{"{setting}": "{other}"}}'})
    with pytest.raises(ConfigError, match=f"KAPPA_SPARK_CONF sets {setting} to {other}"):
        check_settings(config)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("kafka.sasl.jaas.config", True),
        ("kafka.ssl.keystore.key", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("KAPPA_MASK_KEY", True),
        ("ssl.truststore.password", True),
        ("spark.driver.memory", False),
        ("kafka.bootstrap.servers", False),
    ],
)
def test_values_of_names_that_look_like_a_secret_are_replaced_by_spark(name: str, is_secret: bool) -> None:
    for setting in ("spark.redaction.regex", "spark.sql.redaction.options.regex"):
        assert bool(re.search(session_settings()[setting], name)) == is_secret
