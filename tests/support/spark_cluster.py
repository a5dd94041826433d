"""A standalone cluster of Spark: a master, and workers that share no disk with the driver or with each other.

Each worker runs in a mount namespace of its own. There checkout, home and temporary folder are empty, Python is at
another path than the driver's, and ``/mnt/disk`` is the worker's alone. It takes root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from kappa.spark.jars import java_home
from kappa_local.kafka import HOST, free_port
from support.airflow_stack import wait_for
from support.programs import program

REPOSITORY = Path(__file__).resolve().parents[2]
#: Where Python is on a worker's host: the packages of this environment, without its path or Kappa.
ENVIRONMENT = Path("/mnt/env")
_PACKAGES = ENVIRONMENT / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
_DISK, _STAGING = Path("/mnt/disk"), Path("/mnt/staging")
_START_SECONDS, _STOP_SECONDS = 60.0, 20.0


@dataclass(frozen=True, kw_only=True)
class SparkCluster:
    """A cluster that runs.

    Attributes:
        url: what ``KAPPA_SPARK_MASTER`` is.
        page: address of the master's page.
        disks: per worker, the folder of this host that is its disk.
    """

    url: str
    page: str
    disks: tuple[Path, ...]

    @property
    def settings(self) -> dict[str, str]:
        """Settings of Spark for a driver: two of them have room, each with an executor on each worker."""
        return {
            "spark.pyspark.python": str(ENVIRONMENT / "bin" / "python"),
            "spark.cores.max": str(len(self.disks)),
            "spark.executor.cores": "1",
            "spark.executor.memory": "640m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def state(self) -> dict[str, Any]:
        """What the master says of its workers and applications."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
        return state


@contextlib.contextmanager
def spark_cluster(folder: Path, *, workers: int = 2, files: Sequence[Path] = ()) -> Iterator[SparkCluster]:
    """Within, a cluster runs.

    Args:
        folder: logs, and the disks of the workers.
        workers: how many.
        files: files of this host that each worker's host has too, at the same path.
    """
    port, page = free_port(), free_port()
    cluster = SparkCluster(
        url=f"spark://{HOST}:{port}",
        page=f"http://{HOST}:{page}",
        disks=tuple(folder / f"disk-{number}" for number in range(1, workers + 1)),
    )
    with contextlib.ExitStack() as processes:
        master = _spark_class("master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(page))
        processes.enter_context(_running(master, folder / "master.log", Path(pyspark.__path__[0]), HOST))
        for number, disk in enumerate(cluster.disks, start=1):
            disk.mkdir(parents=True)
            # Spark assumes that executors at one address share a disk.
            address = f"127.0.0.{number + 1}"
            words = ("--cores", "2", "--memory", "4g", "--host", address, "--webui-port", "0")
            worker = _spark_class("worker.Worker", *words, "--work-dir", str(_DISK / "work"), cluster.url)
            command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _host(disk, files, worker)]
            processes.enter_context(_running(command, folder / f"worker-{number}.log", _PACKAGES / "pyspark", address))

        def is_complete() -> bool:
            with contextlib.suppress(OSError):
                return bool(cluster.state()["aliveworkers"] == workers)
            return False

        wait_for(is_complete, _START_SECONDS, f"{workers} workers", lambda: _logs(folder))
        yield cluster


def _spark_class(name: str, *words: str) -> list[str]:
    """A command of Spark; where it is run SPARK_HOME says which one."""
    return ["sh", "-c", 'exec "$SPARK_HOME/bin/spark-class" "$@"', "spark", f"org.apache.spark.deploy.{name}", *words]


def _host(disk: Path, files: Sequence[Path], command: Sequence[str]) -> str:
    """A script that makes another host of a mount namespace, and then runs a command there.

    What that host has is moved aside first, since it is below what is hidden.
    """
    packages = Path(pyspark.__path__[0]).parent
    python = Path(sys.base_prefix)
    present = {packages: _PACKAGES, disk: _DISK, **{path: path for path in (python, java_home(), *files)}}
    hidden = {REPOSITORY, Path(sys.prefix).resolve().parent, Path.home(), Path(tempfile.gettempdir())}
    lines = ["mount -t tmpfs kappa /mnt"]
    for number, path in enumerate(present):
        aside = _STAGING / str(number)
        lines += [_place(path, aside), f"mount --bind {_quoted(path)} {aside}"]
    lines += [f"mount -t tmpfs kappa {_quoted(path)}" for path in sorted(hidden)]
    for number, (path, target) in enumerate(present.items()):
        lines += [_place(path, target), f"mount --move {_STAGING / str(number)} {_quoted(target)}"]
    executable = python / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return "\n".join(
        [
            *lines,
            f"mkdir -p {ENVIRONMENT}/bin {_DISK}/local",
            f"ln -s {_quoted(executable)} {ENVIRONMENT}/bin/python",
            f"echo {_quoted(f'home = {executable.parent}')} > {ENVIRONMENT}/pyvenv.cfg",
            f"cd {_DISK}",
            f"exec {shlex.join(command)}",
        ]
    )


def _place(path: Path, target: Path) -> str:
    """A line that makes what something can be mounted on."""
    if path.is_dir():
        return f"mkdir -p {_quoted(target)}"
    return f"mkdir -p {_quoted(target.parent)} && touch {_quoted(target)}"


def _quoted(text: object) -> str:
    return shlex.quote(str(text))


def _running(
    command: Sequence[str], log: Path, spark_home: Path, address: str
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Within, a process of the cluster runs; it ends its executors at its own end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    passed = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environ = {
        **passed,
        "LC_ALL": "C",  # as a service without a locale has it
        "JAVA_HOME": str(java_home()),
        "KAPPA_HOME": str(log.parent),  # a run that is ended finds what it left by it
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_DIRS": str(_DISK / "local"),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": address,
    }
    return program(command, log, environ, stop_seconds=_STOP_SECONDS)


def _logs(folder: Path) -> str:
    return "\n".join(f"{log}:\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("*.log")))
