import subprocess
from pathlib import Path

import pytest

from kappa.errors import ConfigError
from kappa.spark import jars


@pytest.fixture(autouse=True)
def _no_memory():
    jars.find_java.cache_clear()
    yield
    jars.find_java.cache_clear()


def java(folder: Path, release: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}\"' >&2\n")
    binary.chmod(0o755)
    return binary


def only(monkeypatch, tmp_path, *, java_home: Path | None = None, installed: Path | None = None) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(jars, "JVM_FOLDER", installed or tmp_path / "nothing")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if java_home:
        monkeypatch.setenv("JAVA_HOME", str(java_home))


def test_java_home_comes_first(monkeypatch, tmp_path):
    binary = java(tmp_path / "mine", "17.0.1")
    only(monkeypatch, tmp_path, java_home=tmp_path / "mine")
    assert jars.find_java() == binary


@pytest.mark.parametrize(
    ("release", "fits"), [("16.0.2", False), ("17.0.15", True), ("21", True), ("1.8.0_292", False)]
)
def test_java_17_is_the_oldest_accepted_release(monkeypatch, tmp_path, release, fits):
    java(tmp_path / "mine", release)
    only(monkeypatch, tmp_path, java_home=tmp_path / "mine")
    if fits:
        assert jars.find_java()
    else:
        with pytest.raises(ConfigError, match="apt-get install openjdk-17"):
            jars.find_java()


def test_a_java_home_that_is_too_old_does_not_hide_an_installed_java(monkeypatch, tmp_path):
    java(tmp_path / "old", "11.0.2")
    newer = java(tmp_path / "jvm" / "java-17", "17.0.1")
    only(monkeypatch, tmp_path, java_home=tmp_path / "old", installed=tmp_path / "jvm")
    assert jars.find_java() == newer


def test_without_java_the_error_says_how_to_get_it(monkeypatch, tmp_path):
    only(monkeypatch, tmp_path)
    with pytest.raises(ConfigError, match="apt-get install openjdk-17-jre-headless"):
        jars.find_java()


def test_existing_jars_need_neither_java_nor_network(monkeypatch, tmp_path):
    folder = jars._folder(tmp_path, "spark-delta", jars.SPARK)
    folder.mkdir()
    (folder / "b.jar").touch()
    (folder / "a.jar").touch()
    monkeypatch.setattr(jars, "find_java", lambda: pytest.fail("looked for Java"))
    assert [jar.name for jar in jars.ensure_spark(tmp_path)] == ["a.jar", "b.jar"]


def fetch(returncode: int, *, files: bool):
    """Ivy, as far as the file system sees it."""

    def run(command, **_):
        into = Path(command[-1]).parent
        for jar in jars.SPARK[: None if files else 1]:
            (into / f"{jar.name}-{jar.revision}.jar").touch()
        return subprocess.CompletedProcess(command, returncode, stdout="....\nUNRESOLVED", stderr="")

    return run


@pytest.mark.parametrize(("returncode", "files"), [(1, True), (0, False)])
def test_a_failed_fetch_leaves_no_usable_folder(monkeypatch, tmp_path, returncode, files):
    monkeypatch.setattr(jars, "find_java", lambda: Path("java"))
    monkeypatch.setattr(jars.subprocess, "run", fetch(returncode, files=files))
    with pytest.raises(ConfigError, match="UNRESOLVED"):
        jars.ensure_spark(tmp_path)
    assert jars.cached(tmp_path) == {"kafka-4.2.0": False, "spark-delta": False}

    monkeypatch.setattr(jars.subprocess, "run", fetch(0, files=True))
    assert len(jars.ensure_spark(tmp_path)) == len(jars.SPARK)


def test_another_list_of_jars_has_another_folder(tmp_path):
    assert jars._folder(tmp_path, "kafka", jars.KAFKA) != jars._folder(tmp_path, "kafka", jars.KAFKA[:1])
