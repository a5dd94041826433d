"""Operators of Kafka Streams at work: a program compiled once that runs one after the other on a broker."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.kafka_streams import compiled

from kappa.kafka.broker import Broker
from kappa.properties import written
from kappa.spark.jars import find_java

PROGRAM = Path(__file__).parent / "Operators.java"
_SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": 100,
    "replication.factor": 1,
    "statestore.cache.max.bytes": 0,
    "consumer.auto.offset.reset": "earliest",
    "deserialization.exception.handler": "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler",
    # Records of both topics are taken in the order of their times.
    "max.task.idle.ms": 5_000,
    # Rows without a partner go with the record that closes them; by default at most once a second of the clock.
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
}
_LOOK_SECONDS, _SAME_LOOKS, _DEADLINE_SECONDS = 0.2, 8, 120.0


class Peer:
    """The program: it starts with the first operator, and anew after one that it ended at.

    Args:
        command: that runs it.
        log: the file of its output.
        broker: the broker that it reads from and sends to.
    """

    def __init__(self, command: Sequence[str | Path], log: Path, broker: Broker) -> None:
        self._command, self._log, self._broker = command, log, broker
        self._process: subprocess.Popen[str] | None = None
        self._groups: list[str] = []

    def run(self, operator: str, topics: Sequence[str], output: str, *, reads: Sequence[str]) -> None:
        """Run an operator until it has read its topics and sends nothing more.

        Args:
            operator: as the program names it.
            topics: the left side, and the right one.
            output: the topic of its results.
            reads: those of the topics whose offsets it commits: those of a global table are not among them.

        Raises:
            AssertionError: it ended, or did not get on.
        """
        if self._process is None:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
                )
        self._groups.append(f"peer-{output}")
        try:
            _say(self._process, "\t".join([operator, *topics, output]))
            self._await_end(self._process, f"peer-{output}", reads, output)
            _say(self._process, "")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def tidy(self) -> None:
        """End it, and delete the topics that it made."""
        self.close()
        self._broker.delete_topics([name for group in self._groups for name in self._broker.topics(f"{group}-")])

    def _await_end(self, process: subprocess.Popen[str], group: str, topics: Sequence[str], output: str) -> None:
        """Its group has read the topics.

        What it makes of them is in the same transaction. Where it sends to a topic of its own in between, its results
        have to be the same for some looks.
        """
        deadline, same, seen = time.monotonic() + _DEADLINE_SECONDS, 0, None
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Kafka Streams ended or did not get on:\n{self._log.read_text()[-4_000:]}")
            ends = dict(self._broker.stable_offsets(topics).items())
            read = dict(self._broker.group_offsets(group).items())
            results = dict(self._broker.stable_offsets([output]).items())
            is_read = all(read.get(at, 0) >= end for at, end in ends.items() if end)
            same = same + 1 if is_read and results == seen else 0
            own = [name for name in self._broker.topics(f"{group}-") if not name.endswith("-changelog")]
            if same >= (_SAME_LOOKS if own else 1):
                return
            seen = results
            time.sleep(_LOOK_SECONDS)


@contextmanager
def peer(folder: Path, cache: Path, broker: Broker) -> Iterator[Peer]:
    """The program, compiled.

    Args:
        folder: for its classes, settings, state and log.
        cache: where jars are, or are put.
        broker: the broker that it reads from and sends to.
    """
    path = compiled(PROGRAM, folder / "classes", cache)
    own = {"bootstrap.servers": broker.bootstrap_servers, "state.dir": str(folder / "state")}
    (folder / "settings").write_text(written({name: str(value) for name, value in {**_SETTINGS, **own}.items()}))
    options = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path)
    running = Peer([find_java(), *options, PROGRAM.stem, folder / "settings"], folder / "log", broker)
    try:
        yield running
    finally:
        running.tidy()


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
