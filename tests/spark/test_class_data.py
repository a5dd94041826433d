"""The archive of loaded classes that a driver's JVM starts from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kappa.config import Config
from kappa.spark import class_data
from kappa.spark.jars import ensure_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java of its own, and a Spark with one jar."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setattr(class_data, "java_home", lambda: home)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core.jar").write_text("1")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return home


def test_an_archive_fits_one_java_and_one_class_path(tmp_path: Path, java: Path) -> None:
    jar = tmp_path / "delta.jar"
    jar.write_text("1")
    names = [class_data.archive(tmp_path, [])]
    names.append(class_data.archive(tmp_path, [jar]))
    jar.write_text("two")
    names.append(class_data.archive(tmp_path, [jar]))
    (tmp_path / "spark" / "jars" / "spark-core.jar").write_text("two")
    names.append(class_data.archive(tmp_path, [jar]))
    (java / "release").write_text('JAVA_VERSION="17.0.2"\n')
    names.append(class_data.archive(tmp_path, [jar]))
    assert len(set(names)) == 5
    assert class_data.archive(tmp_path, [jar]) == names[-1]


@pytest.mark.usefixtures("java")
def test_a_jvm_gets_an_existing_archive_unless_its_settings_name_one(tmp_path: Path) -> None:
    assert class_data.reading("-Xmn8m", tmp_path, []) == "-Xmn8m"
    file = class_data.archive(tmp_path, [])
    file.parent.mkdir()
    file.touch()
    assert class_data.reading("-Xmn8m", tmp_path, []).startswith(f"-Xmn8m -XX:SharedArchiveFile={file} ")
    for option in ("-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", class_data.writing("", tmp_path / "x.jsa")):
        assert class_data.reading(option, tmp_path, []) == option


@pytest.mark.usefixtures("java")
def test_an_archive_whose_path_an_option_cannot_hold_is_not_offered(tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    file = class_data.archive(cache, [])
    file.parent.mkdir(parents=True)
    file.touch()
    assert class_data.reading("", cache, []) == ""


@pytest.mark.spark
def test_the_jvm_of_a_session_maps_the_archive_of_bootstrap(spark: SparkSession) -> None:
    cache = Config.from_env().cache
    file = class_data.archive(cache, ensure_spark(cache))
    assert file.is_file(), "Run scripts/bootstrap."
    process = spark.sparkContext._gateway.proc
    assert str(file) in Path(f"/proc/{process.pid}/maps").read_text()
