"""Kafka Streams at the work of ``retail.loyalty``: compiled once, run as a process of its own, its output read back.

Settings are those of a tuned application: exactly-once, a commit a second, both cores, large batches, compressed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from kappa.errors import ConfigError
from kappa.kafka.broker import Broker
from kappa.properties import written
from kappa.spark.jars import KAFKA_VERSION, Jar, ensure, find_java

SOURCE = Path(__file__).parent / "LoyaltyPoints.java"
_JARS = (
    Jar(org="org.apache.kafka", name="kafka-streams", revision=KAFKA_VERSION, transitive=True),
    Jar(org="com.fasterxml.jackson.core", name="jackson-databind", revision="2.19.2", transitive=True),
    Jar(org="org.slf4j", name="slf4j-nop", revision="1.7.36", transitive=True),
)
_SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": 1000,
    "num.stream.threads": 2,
    "statestore.cache.max.bytes": 64 << 20,
    "replication.factor": 1,
    "buffered.records.per.partition": 5000,
    "consumer.auto.offset.reset": "earliest",
    "consumer.max.poll.records": 5000,
    "consumer.max.partition.fetch.bytes": 4 << 20,
    "producer.linger.ms": 100,
    "producer.batch.size": 256 << 10,
    "producer.buffer.memory": 128 << 20,
    "producer.compression.type": "lz4",
}
#: The output has ended when nothing came for so long.
_SETTLED_SECONDS = 5.0
_POLL_SECONDS = 0.05
_DEADLINE_SECONDS = 1800.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run from the beginning of the source.

    Attributes:
        seconds: from the start of the process to the last output that a consumer of committed records can see.
        memory: most bytes that the process held.
    """

    seconds: float
    memory: int


@dataclass(frozen=True, kw_only=True)
class Restore:
    """A start with an empty state folder.

    Attributes:
        seconds: from the start of the process until it runs.
        records: records of the changelog that were read.
    """

    seconds: float
    records: int


def compiled(program: Path, folder: Path, cache: Path) -> str:
    """Compile a program that uses Kafka Streams; the class path to run it with.

    Args:
        program: one file of Java.
        folder: where its classes go.
        cache: where jars are, or are put.

    Raises:
        ConfigError: there is no Java compiler, or the jars cannot be fetched.
    """
    compiler = find_java().resolve().parent / "javac"
    if not compiler.is_file():
        raise ConfigError("There is no Java compiler. Install one: apt-get install openjdk-17-jdk-headless")
    jars = ensure(cache, f"kafka-streams-{KAFKA_VERSION}", _JARS)
    subprocess.run([compiler, "-cp", f"{jars}/*", "-d", folder, program], check=True)
    return f"{folder}:{jars}/*"


class KafkaStreams:
    """The application, on one broker.

    Args:
        folder: its classes, settings, log and state.
        cache: where its jars are, or are put.
        bootstrap_servers: the broker.
        source: topic that it reads.
        output: topic that it sends to.
        partitions: of the output, and of the topic by which it repartitions.

    Raises:
        ConfigError: there is no Java compiler, or the jars cannot be fetched.
    """

    def __init__(
        self, folder: Path, *, cache: Path, bootstrap_servers: str, source: str, output: str, partitions: int
    ) -> None:
        folder.mkdir(parents=True)
        path = compiled(SOURCE, folder / "classes", cache)
        self._folder, self._servers = folder, bootstrap_servers
        self._output = output
        (folder / "settings").write_text(
            written(
                {
                    **{name: str(value) for name, value in _SETTINGS.items()},
                    "application.id": f"peer-{output}",
                    "bootstrap.servers": bootstrap_servers,
                    "state.dir": str(folder / "state"),
                }
            )
        )
        self._command: list[str | Path] = [
            find_java(),
            "-Xms1g",
            "-Xmx1g",
            "-cp",
            path,
            SOURCE.stem,
            folder / "settings",
            source,
            output,
            str(partitions),
        ]

    def run(self, expected: int) -> Run:
        """Run it from the beginning until nothing more comes.

        Args:
            expected: records that it sends at least.
        """
        memory = 0
        with Broker(self._servers) as broker, self._process() as (process, start):
            moved, deadline, counted = start, start + _DEADLINE_SECONDS, 0
            last_end = read = broker.low_watermarks([self._output])
            while counted < expected or time.monotonic() < moved + _SETTLED_SECONDS:
                self._check(process, deadline)
                visible = broker.stable_offsets([self._output])
                if visible != last_end:
                    last_end, moved = visible, time.monotonic()
                elif last_end != read and time.monotonic() >= moved + _SETTLED_SECONDS:
                    # Offsets count the ends of transactions too, and one may be open still: the records tell.
                    counted += sum(map(len, broker.read(read, last_end)))
                    read = last_end
                memory = max(memory, psutil.Process(process.pid).memory_info().rss)
                time.sleep(_POLL_SECONDS)
        return Run(seconds=moved - start, memory=memory)

    def restore(self) -> Restore:
        """Take its state away, start it, and wait until it runs again."""
        shutil.rmtree(self._folder / "state")
        with self._process() as (process, start):
            while not self._values_of("RUNNING"):
                self._check(process, start + _DEADLINE_SECONDS)
                time.sleep(_POLL_SECONDS)
        return Restore(
            seconds=float(self._values_of("RUNNING")[-1]), records=sum(map(int, self._values_of("RESTORED")))
        )

    @contextmanager
    def _process(self) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
        start = time.monotonic()
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield process, start
        finally:
            process.terminate()  # it leaves its group, so that the next start is not kept waiting
            process.wait()

    def _values_of(self, word: str) -> list[str]:
        lines = (line.split() for line in (self._folder / "log").read_text().splitlines())
        return [line[1] for line in lines if len(line) == 2 and line[0] == word]

    def _check(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join((self._folder / "log").read_text().splitlines()[-20:])
            raise AssertionError(f"Kafka Streams ended or did not get on:\n{tail}")
