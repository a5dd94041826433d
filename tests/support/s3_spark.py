"""Spark in a process of its own whose lake is on S3: statements go in, rows come out.

It has a driver's session. Beside that, addresses of the scheme ``s3n`` are the same objects by Delta's own log store.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from kappa.config import Config
from kappa.spark import object_store
from kappa.spark.session import build_session
from support.programs import python_path

_STATEMENT, _CHECK = "statement", "check"
#: Delta knows the scheme by itself, and takes the log store that it has for S3.
_DELTAS_OWN = {"spark.hadoop.fs.s3n.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}


class StatementError(Exception):
    """Spark did not run a statement; the text is its error's."""


@dataclass(frozen=True, kw_only=True)
class SparkProcess:
    """A process that runs one statement after the other."""

    commands: IO[str]
    answers: IO[str]
    log: Path

    def begin(self, statement: str) -> None:
        """Hand in a statement of SQL without waiting for it."""
        self._send({_STATEMENT: statement})

    def rows(self) -> list[Any]:
        """Wait for the oldest statement; its rows, as lists.

        Raises:
            StatementError: Spark did not run it.
        """
        line = self.answers.readline()
        assert line, f"Spark's process ended: {self.log.read_text()[-3000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise StatementError(answer["error"])
        return list(answer["rows"])

    def sql(self, statement: str) -> list[Any]:
        """Run a statement; as :meth:`rows`."""
        self.begin(statement)
        return self.rows()

    def check(self, **hadoop: str) -> None:
        """Check the session as a driver does, with these settings of Hadoop.

        Raises:
            StatementError: it is refused.
        """
        self._send({_CHECK: hadoop})
        self.rows()

    def _send(self, command: Mapping[str, Any]) -> None:
        print(json.dumps(command), file=self.commands, flush=True)


@contextlib.contextmanager
def spark_on(
    lake: str,
    options: Mapping[str, str],
    folder: Path,
    conf: Mapping[str, str],
    *,
    file: Path | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SparkProcess]:
    """Within, Spark runs.

    Args:
        lake: URL of the lake.
        options: how to reach it, unless a file says so; they are in no command line.
        folder: home of the process, and its log.
        conf: further settings of Spark.
        file: the client file that has the options; None for none.
        variables: others of the environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SSL_"))}
    if file is None:
        environ |= {name.upper(): value for name, value in options.items()}
    else:
        environ["KAPPA_LAKE_CLIENT_FILE"] = str(file)
    environ |= {"KAPPA_HOME": str(folder), "KAPPA_LAKE": lake, "KAPPA_SPARK_MASTER": "local[1]", **variables}
    with (folder / "spark.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.s3_spark"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environ | {"KAPPA_SPARK_CONF": json.dumps({**_DELTAS_OWN, **conf}), "PYTHONPATH": python_path()},
        )
    assert process.stdin and process.stdout
    try:
        spark = SparkProcess(commands=process.stdin, answers=process.stdout, log=folder / "spark.log")
        spark.sql("SELECT 1")  # from here on it is quick
        yield spark
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def _serve(commands: IO[str], answers: IO[str]) -> None:
    config = Config.from_env()
    session = build_session(config, "s3")
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for line in commands:
        command = json.loads(line)
        try:
            rows = []
            if _STATEMENT in command:
                rows = [list(row) for row in session.sql(command[_STATEMENT]).collect()]
            else:
                for name, value in command[_CHECK].items():
                    hadoop.set(name, value)
                object_store.check_session(session, config.lake)
            answer: dict[str, Any] = {"rows": rows}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer, default=str), file=answers, flush=True)
    gateway = session.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    session.stop()
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
