"""The demonstration as a team would run it: drivers on a host of theirs, Spark on a standalone cluster, the lake on S3.

Workers share no disk with the driver host or with each other. A driver dies in each stage that the demonstration
passes, and its five proofs hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.deaths import DEATHS
from support.processes import QUICK_JVM
from support.s3_options import write_options
from support.s3_server import S3Server
from support.spark_cluster import REPOSITORY, spark_cluster

from kappa import faults

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

#: Epoch and point of each death. The first epoch goes live, a second one replays and goes live, readers go back to the
#: first and forward again. A driver that starts after a death is to die at the next point, whichever its epoch is.
ROUTE = (
    (1, "seeded"),
    (1, "send@2"),
    (2, "rewound"),
    (2, "seeded"),
    (2, "effects@2"),
    (2, "replayed"),
    (2, "caught_up"),
    (2, "verify"),
    (2, "verified"),
    (2, "going_live"),
    (1, "caught_up"),
    (1, "going_live"),
    (2, "caught_up"),
    (2, "resume"),
)
PROOFS = 5


@pytest.fixture
def environ(tmp_path: Path, s3: S3Server) -> Iterator[dict[str, str]]:
    """The environment of commands, with a cluster that runs."""
    file = write_options(s3, tmp_path / "lake.properties")
    home = tmp_path / "home"
    with spark_cluster(tmp_path / "cluster", files=[file]) as cluster:
        yield os.environ | {
            "KAPPA_HOME": str(home),
            "KAPPA_TOPOLOGIES": str(home / "topologies"),
            "KAPPA_LAKE": f"{s3.url}/lake",
            "KAPPA_LAKE_CLIENT_FILE": str(file),
            "KAPPA_LAUNCHER": "elsewhere",
            "KAPPA_SPARK_MASTER": cluster.url,
            "KAPPA_SPARK_CONF": json.dumps({**QUICK_JVM, **cluster.settings}),
            "KAPPA_SLICE_RECORDS": "5000",
        }


@dataclass(frozen=True, kw_only=True)
class Running:
    """The demonstration in a process of its own.

    Attributes:
        process: the process.
        log: what it prints.
    """

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self.process.poll() is not None


@contextlib.contextmanager
def demonstration(environ: dict[str, str], log: Path) -> Iterator[Running]:
    """Within, the demonstration runs, from the moment on at which its broker answers."""
    command = [sys.executable, "scripts/demo.py", "--exit", "--records", "30000", "--rate", "50"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environ, stdout=output, stderr=subprocess.STDOUT)
    running = Running(process=process, log=log)
    try:
        while not Path(environ["KAPPA_HOME"], "stack.json").exists():
            assert not running.has_ended, log.read_text()
            time.sleep(0.5)
        yield running
    finally:
        if not running.has_ended:
            process.send_signal(signal.SIGINT)  # it stops what it started
        process.wait()


@contextlib.contextmanager
def driver_host(environ: dict[str, str], log: Path, point: str) -> Iterator[None]:
    """Within, ``kappa drivers`` runs, whose drivers die at a point; its own end is sudden, and they go on.

    Without a point it ends with its drivers.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kappa", "drivers"],
            env=environ | ({faults.VARIABLE: point} if point else {}),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        if point:
            process.kill()
        else:
            process.terminate()
        process.wait()


def has_died(home: Path, epoch: int, point: str, count: int) -> bool:
    """Whether so many drivers of an epoch died at a point."""
    name = point.partition("@")[0]
    marks = [mark for mark in faults.marks(home) if mark["point"] == name and mark["how"] == "kill"]
    return sum(mark["argv"][mark["argv"].index("--epoch") + 1] == str(epoch) for mark in marks) >= count


def test_the_proofs_hold_where_a_driver_dies_in_each_stage(environ: dict[str, str], tmp_path: Path) -> None:
    home, log = Path(environ["KAPPA_HOME"]), tmp_path / "drivers.log"
    with demonstration(environ, tmp_path / "demo.log") as demo:
        for index, (epoch, point) in enumerate(ROUTE):
            with driver_host(environ, log, point):
                count = ROUTE[: index + 1].count((epoch, point))
                while not has_died(home, epoch, point, count):
                    assert not demo.has_ended, f"no driver of epoch {epoch} died at {point}\n{demo.log.read_text()}"
                    time.sleep(0.2)
            DEATHS.append(point.partition("@")[0])
        with driver_host(environ, log, ""):
            demo.process.wait()
    text = demo.log.read_text()
    assert demo.process.returncode == 0, text
    assert text.count("\nPROVED ") == PROOFS, text
