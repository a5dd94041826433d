"""Java and the jars of Kafka and Spark: found, or fetched once into the cache.

The jars are resolved by the Ivy that pyspark ships, from Maven Central, which checks the checksum of every file it
downloads. A folder of jars is complete or absent: it is filled under another name and renamed at the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kappa.errors import ConfigError

KAFKA_VERSION = "4.2.0"
JAVA_OLDEST = 17
_RETRIEVED = "[artifact]-[revision](-[classifier]).[ext]"
#: Where packages of Linux put each Java.
JVM_FOLDER = Path("/usr/lib/jvm")

# A cache of its own: a pom in ~/.m2 or ~/.ivy2 whose jar is missing makes Ivy fail.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" checksums="sha1,md5"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, kw_only=True)
class Jar:
    """A module of Maven Central.

    Attributes:
        transitive: whether what it depends on is fetched too.
    """

    org: str
    name: str
    revision: str
    transitive: bool = False


# The tools depend on Kafka Connect and a web server for commands that are not run here: only their own jar is taken.
# The logging bridge is part of Kafka's release archive, but a dependency of none of its modules.
KAFKA = (
    Jar(org="org.apache.kafka", name="kafka_2.13", revision=KAFKA_VERSION, transitive=True),
    Jar(org="org.apache.kafka", name="kafka-tools", revision=KAFKA_VERSION),
    Jar(org="org.apache.logging.log4j", name="log4j-slf4j-impl", revision="2.25.3"),
)

# Jars that pyspark's own folder lacks, named one by one: it already holds everything else that these depend on.
# The token provider of 4.2.0 was never published; it only serves delegation tokens, and the one of 4.0.0 fits.
SPARK = (
    Jar(org="io.delta", name="delta-spark_4.2_2.13", revision="4.4.0"),
    Jar(org="io.delta", name="delta-storage", revision="4.4.0"),
    Jar(org="io.delta", name="delta-kernel-api", revision="4.4.0"),
    Jar(org="io.delta", name="delta-kernel-defaults", revision="4.4.0"),
    Jar(org="io.delta", name="delta-kernel-unitycatalog", revision="4.4.0"),
    Jar(org="io.unitycatalog", name="unitycatalog-client", revision="0.6.0"),
    Jar(org="io.unitycatalog", name="unitycatalog-hadoop", revision="0.6.0"),
    Jar(org="org.apache.spark", name="spark-sql-kafka-0-10_2.13", revision="4.2.0"),
    Jar(org="org.apache.spark", name="spark-token-provider-kafka-0-10_2.13", revision="4.0.0"),
    Jar(org="org.apache.kafka", name="kafka-clients", revision="3.9.2"),
    Jar(org="org.apache.commons", name="commons-pool2", revision="2.13.1"),
)


@functools.cache
def find_java() -> Path:
    """The ``java`` of the newest fitting runtime: ``JAVA_HOME`` first, then ``PATH``, then ``/usr/lib/jvm``.

    Raises:
        ConfigError: there is none, or only ones older than Java 17; the message says how to get one.
    """
    too_old = []
    for candidate in _java_candidates():
        release = java_release(candidate)
        if release is not None and release >= JAVA_OLDEST:
            return candidate
        too_old.append(f"{candidate} is {'unusable' if release is None else f'Java {release}'}")
    hint = f" Found: {'; '.join(too_old)}." if too_old else ""
    raise ConfigError(
        f"Java {JAVA_OLDEST} or newer is needed by Kafka and Spark and was not found.{hint} "
        f"Install it: `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), "
        f"`dnf install java-17-openjdk-headless` (Fedora), `brew install openjdk@17` (macOS); or set JAVA_HOME.",
        found=too_old,
    )


def java_home() -> Path:
    """The folder to hand to Spark as ``JAVA_HOME``.

    Raises:
        ConfigError: as :func:`find_java`.
    """
    return find_java().resolve().parents[1]


def java_release(java: Path) -> int | None:
    """The feature release (17, 21, …) of this ``java``, or None when it does not run.

    The file ``release`` of its folder says so at once; starting it takes a third of a second.
    """
    stated = java.resolve().parent.parent / "release"
    with contextlib.suppress(OSError):
        if line := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', stated.read_text(errors="replace"), re.MULTILINE):
            return int(line[1])
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(match.group(1)) if match else None


def _java_candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    yield from sorted(JVM_FOLDER.glob("*/bin/java"), reverse=True)


def ensure_kafka(cache: Path) -> Path:
    """The folder with the jars of the broker and its command-line tools; fetched when the cache lacks it.

    Idempotent; a crash in the middle leaves nothing that counts.

    Raises:
        ConfigError: no Java, no pyspark, or the jars cannot be fetched.
    """
    return ensure(cache, f"kafka-{KAFKA_VERSION}", KAFKA)


def ensure_spark(cache: Path) -> list[Path]:
    """The jars that Delta and Kafka sources add to pyspark's own, sorted; fetched when the cache lacks them.

    The order is stable, so that a class-data archive made with it fits the next start.

    Raises:
        ConfigError: no Java, no pyspark, or the jars cannot be fetched.
    """
    return sorted(ensure(cache, "spark-delta", SPARK).glob("*.jar"))


def cached(cache: Path) -> dict[str, bool]:
    """Which sets of jars the cache already holds, by name; looks only."""
    return {
        name: _folder(cache, name, jars).is_dir()
        for name, jars in ((f"kafka-{KAFKA_VERSION}", KAFKA), ("spark-delta", SPARK))
    }


def _folder(cache: Path, name: str, jars: tuple[Jar, ...]) -> Path:
    # The content of the list is part of the name: an upgraded checkout fetches its own set and leaves the old one.
    return cache / f"{name}-{hashlib.sha256(_module(name, jars).encode()).hexdigest()[:8]}"


def ensure(cache: Path, name: str, jars: tuple[Jar, ...]) -> Path:
    """The folder with some jars; fetched when the cache lacks it.

    Args:
        cache: folder of all such folders.
        name: what they are for.
        jars: the modules, with their versions.

    Raises:
        ConfigError: no Java, no pyspark, or the jars cannot be fetched.
    """
    folder = _folder(cache, name, jars)
    work = cache / f"{folder.name}.ivy"

    def fetch(into: Path) -> None:
        _retrieve(name, jars, into, work)
        shutil.rmtree(work, ignore_errors=True)

    return filled(folder, fetch)


def filled(folder: Path, fill: Callable[[Path], None]) -> Path:
    """A folder of the cache; filled when it is absent, by one process at a time.

    A crash in the middle leaves nothing that counts.

    Args:
        folder: its name says what is in it, so that other content has another folder.
        fill: puts that into an empty folder.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if folder.is_dir():  # another process filled it while this one waited
            return folder
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        fill(partial)
        partial.rename(folder)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _retrieve(name: str, jars: tuple[Jar, ...], into: Path, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    (work / "settings.xml").write_text(_SETTINGS)
    (work / "ivy.xml").write_text(_module(name, jars))
    command: list[str | Path] = [
        find_java(),
        "-jar",
        _ivy_jar(),
        "-warn",
        "-settings",
        work / "settings.xml",
        "-ivy",
        work / "ivy.xml",
        "-cache",
        work / "cache",
        "-confs",
        "default",
        "-retrieve",
        f"{into}/{_RETRIEVED}",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    missing = [jar.name for jar in jars if not (into / f"{jar.name}-{jar.revision}.jar").is_file()]
    if run.returncode or missing:
        tail = "\n".join(_without_progress((run.stdout + run.stderr).splitlines())[-15:])
        raise ConfigError(
            f"The jars of {name} could not be fetched from Maven Central (missing: {', '.join(missing) or 'none'}). "
            f"Check the network; a proxy goes into JAVA_TOOL_OPTIONS (-Dhttps.proxyHost=… -Dhttps.proxyPort=…). "
            f"Ivy said:\n{tail}",
            missing=missing,
        )


def _without_progress(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line.strip(". \t")]


def _module(name: str, jars: tuple[Jar, ...]) -> str:
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(jar.org)} name={quoteattr(jar.name)} rev={quoteattr(jar.revision)}"
        f' conf="default->default" transitive="{str(jar.transitive).lower()}"/>'
        for jar in jars
    )
    return (
        f'<ivy-module version="2.0">\n  <info organisation="kappa" module={quoteattr(name)}/>\n'
        f'  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n</ivy-module>\n"
    )


def spark_home() -> Path:
    """The folder of Spark itself: ``SPARK_HOME``, else that of the package pyspark.

    Raises:
        ConfigError: there is none.
    """
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder)
    raise ConfigError(
        "pyspark, which brings Spark and Ivy, is not installed. Install it: pip install 'kappa-replay[driver]'"
    )


def _ivy_jar() -> Path:
    for jar in (spark_home() / "jars").glob("ivy-*.jar"):
        return jar
    raise ConfigError(
        f"{spark_home()} has no Ivy, which fetches the jars. Install Spark again: pip install --force-reinstall "
        "'kappa-replay[driver]'"
    )
