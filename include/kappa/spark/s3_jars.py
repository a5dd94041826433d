"""Jars of a lake on S3: Hadoop's client, the modules of the AWS SDK that it uses, and two classes of Kappa's.

Hadoop's client itself depends on all of the SDK, a jar of 686 MB. Delta has no log store yet that is safe beside other
writers (delta-io/delta, pull requests 7367 to 7371), and Hadoop has no keys from a file that changes, so Kappa brings
its own. They are compiled on this machine, by Eclipse's compiler: that runs on the Java of Spark, where a JDK would be
needed for Java's own.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from kappa.errors import ConfigError
from kappa.spark.jars import SPARK, Jar, ensure, ensure_spark, filled, find_java, spark_home
from kappa.topology.code_zip import zipped

_SDK = "software.amazon.awssdk"
#: What s3, s3-transfer-manager and sts pull in, and these themselves. They also name httpclient, httpcore, netty,
#: slf4j-api, commons-codec and commons-logging: of those pyspark's own folder has newer ones, and two would clash.
_MODULES = (
    "annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi crt-core "
    "endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi "
    "json-utils metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3 s3-transfer-manager "
    "sdk-core sts third-party-jackson-core utils utils-lite"
)

S3 = (
    Jar(org="org.apache.hadoop", name="hadoop-aws", revision="3.5.0"),
    Jar(org="software.amazon.s3.analyticsaccelerator", name="analyticsaccelerator-s3", revision="1.3.1"),
    *(Jar(org=_SDK, name=name, revision="2.35.4") for name in _MODULES.split()),
    Jar(org="software.amazon.eventstream", name="eventstream", revision="1.0.1"),
    Jar(org="org.reactivestreams", name="reactive-streams", revision="1.0.4"),
)

_COMPILER = Jar(org="org.eclipse.jdt", name="ecj", revision="3.46.100")
_SOURCES = tuple(Path(__file__).with_name(f"{name}.java") for name in ("S3FileCredentials", "S3ConditionalLogStore"))
#: The oldest Java that Spark runs on, whichever compiles.
_OPTIONS = ("-source", "17", "-target", "17", "-proc:none", "-nowarn")
_OWN_JAR = "kappa-s3.jar"


def ensure_s3(cache: Path) -> list[Path]:
    """The jars that a lake on S3 adds to those of :func:`kappa.spark.jars.ensure_spark`, sorted.

    They are fetched, and Kappa's own classes are compiled, when the cache lacks them.

    Raises:
        ConfigError: no Java, no pyspark, the jars cannot be fetched, or the classes do not compile.
    """
    libraries = sorted(ensure(cache, "spark-s3", S3).glob("*.jar"))
    return sorted([*libraries, _ensure_own(cache, libraries)])


def _ensure_own(cache: Path, clients: list[Path]) -> Path:
    sources = "\n".join(source.read_text() for source in _SOURCES)
    content = f"{_COMPILER} {_OPTIONS} {SPARK} {S3}\n{sources}"
    folder = cache / f"spark-s3-own-{hashlib.sha256(content.encode()).hexdigest()[:8]}"

    def fill(into: Path) -> None:
        libraries = [*ensure_spark(cache), *clients, *(spark_home() / "jars").glob("hadoop-client-api-*.jar")]
        compiler = ensure(cache, "java-compiler", (_COMPILER,)) / f"{_COMPILER.name}-{_COMPILER.revision}.jar"
        (into / _OWN_JAR).write_bytes(zipped(_compiled(libraries, compiler)))

    return filled(folder, fill) / _OWN_JAR


def _compiled(libraries: list[Path], compiler: Path) -> dict[str, bytes]:
    """Classes by their names in a jar."""
    with tempfile.TemporaryDirectory(prefix="kappa-java-") as classes:
        command: list[str | Path] = [
            find_java(),
            "-jar",
            compiler,
            *_OPTIONS,
            "-cp",
            os.pathsep.join(map(str, libraries)),
        ]
        run = subprocess.run([*command, "-d", classes, *_SOURCES], capture_output=True, text=True, check=False)
        if run.returncode:
            raise ConfigError(
                f"{' and '.join(source.name for source in _SOURCES)}, by which Spark reaches a lake on S3, do not "
                f"compile against {spark_home()}: they need Hadoop 3.5 there. Unset SPARK_HOME, or "
                "install Spark 4.2 again: pip install --force-reinstall 'kappa-replay[driver]'. The compiler said:\n"
                f"{run.stdout}{run.stderr}"
            )
        files = Path(classes).rglob("*.class")
        return {file.relative_to(classes).as_posix(): file.read_bytes() for file in files}
