"""Operators of Kafka Streams at work: a program compiled once, run on a broker until it has read its topics."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.kafka_streams import compiled

from kappa.kafka.broker import Broker
from kappa.kafka.client_file import written
from kappa.spark.jars import find_java

PROGRAM = Path(__file__).parent / "Operators.java"
_SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": 100,
    "replication.factor": 1,
    "consumer.auto.offset.reset": "earliest",
    # Records of both topics are taken in the order of their times.
    "max.task.idle.ms": 5_000,
}
_LOOK_SECONDS, _SAME_LOOKS, _DEADLINE_SECONDS = 1.0, 6, 300.0


def program(folder: Path, cache: Path) -> str:
    """Compile it; its class path.

    Args:
        folder: for its classes.
        cache: where jars are, or are put.
    """
    return compiled(PROGRAM, folder, cache)


class Peer:
    """The program.

    Args:
        path: its class path, as :func:`program` gives it.
        folder: for its settings, state and log.
        broker: the broker that it reads from and sends to.
    """

    def __init__(self, path: str, folder: Path, broker: Broker) -> None:
        self._path, self._folder, self._broker = path, folder, broker

    def run(self, operator: str, topics: Sequence[str], output: str, *, reads: Sequence[str]) -> None:
        """Run an operator until it has read its topics and sends nothing more.

        Args:
            operator: as the program names it.
            topics: the left side, and the right one.
            output: the topic of its results.
            reads: those of the topics that it reads.

        Raises:
            AssertionError: it ended, or did not get on.
        """
        here = self._folder / output
        here.mkdir(parents=True)
        own = {
            "application.id": f"peer-{output}",
            "bootstrap.servers": self._broker.bootstrap_servers,
            "state.dir": str(here / "state"),
        }
        (here / "settings").write_text(written({name: str(value) for name, value in {**_SETTINGS, **own}.items()}))
        program = [find_java(), "-Xmx512m", "-cp", self._path, PROGRAM.stem]
        command = [*program, here / "settings", operator, *topics, output]
        with (here / "log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._await_end(process, own["application.id"], reads, output, here / "log")
        finally:
            process.terminate()
            process.wait()

    def _await_end(
        self, process: subprocess.Popen[bytes], group: str, topics: Sequence[str], output: str, log: Path
    ) -> None:
        """Its group has read the topics, and for some looks its results are the same."""
        deadline, same, seen = time.monotonic() + _DEADLINE_SECONDS, 0, None
        while same < _SAME_LOOKS:
            if process.poll() is not None or time.monotonic() > deadline:
                lines = log.read_text().splitlines()[-20:]
                raise AssertionError("Kafka Streams ended or did not get on:\n" + "\n".join(lines))
            time.sleep(_LOOK_SECONDS)
            ends = dict(self._broker.stable_offsets(topics).items())
            read = dict(self._broker.group_offsets(group).items())
            results = self._broker.stable_offsets([output])
            is_read = all(read.get(at, 0) >= end for at, end in ends.items() if end)
            same = same + 1 if is_read and results == seen else 0
            seen = results
