"""Jars of a lake on S3: complete, none twice, and Kappa's own classes compiled."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kappa.config import Config
from kappa.errors import ConfigError
from kappa.spark import s3_jars
from kappa.spark.jars import Jar, ensure_spark, spark_home
from kappa.spark.object_store import FILE_KEYS, LOG_STORE
from kappa.spark.s3_jars import S3, ensure_s3

CLASSES = [f"{name.replace('.', '/')}.class" for name in sorted((FILE_KEYS, LOG_STORE))]
JAVA = """#!/bin/sh
echo "$@" >> {calls}
[ -e {broken} ] && echo "cannot find symbol" && exit 1
while [ "$1" != "-d" ]; do shift; done
mkdir -p "$2/dev/kappa" && for name in {names}; do echo compiled > "$2/$name"; done
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without jars, and a Java that compiles unless there is a file ``broken``."""
    java = tmp_path / "java"
    java.write_text(JAVA.format(calls=tmp_path / "calls", broken=tmp_path / "broken", names=" ".join(CLASSES)))
    java.chmod(0o755)

    def ensure(cache: Path, name: str, jars: tuple[Jar, ...]) -> Path:
        folder = cache / name
        folder.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            (folder / f"{jar.name}-{jar.revision}.jar").touch()
        return folder

    monkeypatch.setattr(s3_jars, "find_java", lambda: java)
    monkeypatch.setattr(s3_jars, "ensure", ensure)
    monkeypatch.setattr(s3_jars, "ensure_spark", lambda cache: [cache / "delta-storage.jar"])
    return tmp_path / "cache"


def test_own_classes_are_compiled_once(cache: Path, tmp_path: Path) -> None:
    jars = ensure_s3(cache)
    assert len(jars) == len(S3) + 1
    with zipfile.ZipFile(own_of(jars)) as content:
        assert content.namelist() == CLASSES
    assert ensure_s3(cache) == jars
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "delta-storage.jar" in call and "hadoop-client-api-3.5" in call and "auth-2.35.4.jar" in call


def own_of(jars: list[Path]) -> Path:
    """The jar of Kappa's own classes."""
    (own,) = (jar for jar in jars if jar.name.startswith("kappa-"))
    return own


def test_a_class_that_does_not_compile_leaves_nothing_that_counts(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    with pytest.raises(ConfigError, match=r"S3ConditionalLogStore.*do not compile(?s:.*)cannot find symbol"):
        ensure_s3(cache)
    (tmp_path / "broken").unlink()
    assert len(ensure_s3(cache)) == len(S3) + 1


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    """The jars themselves; fetched once per machine."""
    return ensure_s3(Config.from_env({}).cache)


def artifact(file: Path) -> str:
    """The name of a jar without its version."""
    return re.sub(r"-\d[^/]*$", "", file.stem)


@pytest.mark.spark
def test_all_that_the_jars_depend_on_is_there_once(jars: list[Path]) -> None:
    """Each jar's own description names what it depends on; what is for its own tests or is optional does not count."""
    here = {artifact(jar) for jar in jars}
    pyspark = {artifact(jar) for jar in (spark_home() / "jars").glob("*.jar")}
    assert here & (pyspark | {artifact(jar) for jar in ensure_spark(Config.from_env({}).cache)}) == set()
    needed = set()
    for jar in jars:
        with zipfile.ZipFile(jar) as content:
            own = [name for name in content.namelist() if name.endswith(f"/{artifact(jar)}/pom.xml")]
            needed |= {name for file in own for name in dependencies(content.read(file))}
    instead = {"commons-logging": "jcl-over-slf4j", "bundle": "s3"}
    # Another library for TLS, which Hadoop takes where it is asked to; and one of tests, as a module's parent says.
    unused = {"wildfly-openssl", "mockito-junit-jupiter"}
    assert {instead.get(name, name) for name in needed} - here - pyspark - unused == set()
    assert "jcl-over-slf4j" in pyspark and len(needed) > len(S3) / 2, "descriptions were read"


def dependencies(pom: bytes) -> set[str]:
    """What a module needs where it runs."""
    space = {"m": "http://maven.apache.org/POM/4.0.0"}

    def text(node: ElementTree.Element, name: str) -> str:
        return node.findtext(f"m:{name}", "", space)

    nodes = ElementTree.fromstring(pom).findall("m:dependencies/m:dependency", space)
    return {
        text(node, "artifactId")
        for node in nodes
        if text(node, "scope") in ("", "compile", "runtime") and text(node, "optional") != "true"
    }


@pytest.mark.spark
def test_compiled_classes_run_on_the_oldest_java_that_spark_takes(jars: list[Path]) -> None:
    with zipfile.ZipFile(own_of(jars)) as content:
        assert content.namelist() == CLASSES
        heads = [content.read(name)[:8] for name in CLASSES]
    assert {head[:4] for head in heads} == {b"\xca\xfe\xba\xbe"}
    assert {int.from_bytes(head[6:]) for head in heads} == {61}, "Java 17"
