"""Makes the archive of loaded classes from which a driver's JVM starts; ``scripts/bootstrap`` does it once.

A stream of its own runs for two slices, on a broker of its own in a temporary folder. Its driver's JVM writes the
classes that it loaded when it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from kappa import control
from kappa.config import Config
from kappa.driver.processes.host import end_local
from kappa.driver.processes.launcher import log_file
from kappa.errors import KappaError
from kappa.names import EpochPaths
from kappa.record.ledger import Ledger
from kappa.spark import class_data
from kappa.spark.jars import ensure_spark
from kappa.spark.session import JAVA_OPTIONS, settings
from kappa.starters import StarterShape, starter
from kappa_local.generators import generator
from kappa_local.kafka import KafkaProcess

_TOPOLOGY = "retail.training"
_RECORDS = 1_000
#: How long the stream may take for a slice, and its JVM for the archive.
_SECONDS = 300.0
_WHY: dict[str, Any] = {"actor": "bootstrap", "reason": "class data"}


def ensure_class_data(cache: Path) -> Path:
    """The archive for this Java and these jars; it is made if the cache does not have it, which takes half a minute.

    Idempotent; a crash in the middle leaves nothing that is used. Archives of other jars stay: the folder
    ``class-data`` of the cache may be removed at any time.

    Raises:
        KappaError: the stream did not run, or its JVM wrote nothing.
    """
    file = class_data.archive(cache, ensure_spark(cache))
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    with (file.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.is_file():  # else another process made it while this one waited
            with tempfile.TemporaryDirectory(prefix="kappa-class-data-", ignore_cleanup_errors=True) as folder:
                _make(Path(folder), cache, file)
    return file


def _make(folder: Path, cache: Path, file: Path) -> None:
    topologies = folder / "topologies"
    topologies.mkdir()
    partial = file.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    draft = starter(_TOPOLOGY, StarterShape.WINDOW, folder=str(topologies))
    (topologies / "retail_training.py").write_text(draft.topology)
    with KafkaProcess.start(folder / "kafka", cache=cache) as broker:
        config = Config.from_env(
            {
                "KAPPA_HOME": str(folder / "home"),
                "KAPPA_CACHE": str(cache),
                "KAPPA_TOPOLOGIES": str(topologies),
                "KAPPA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            }
        )
        options = settings(config, ensure_spark(cache)).get(JAVA_OPTIONS, "")
        config = replace(config, spark_conf={JAVA_OPTIONS: class_data.writing(options, partial)})
        _run(config)
    if not partial.is_file():
        raise KappaError(f"The JVM wrote no class data to {file.parent}. Drivers start more slowly without it.")
    partial.rename(file)


def _run(config: Config) -> None:
    """Two slices, and the end of the driver and of its JVM, whatever happens."""
    generator.produce(config, "retail", records=_RECORDS)
    epoch = control.start(config, _TOPOLOGY, **_WHY)
    jvm: list[psutil.Process] = []
    try:
        _await_slice(config, epoch, 1)
        generator.produce(config, "retail", records=_RECORDS)
        _await_slice(config, epoch, 2)
        jvm = psutil.Process(_pid(config, epoch)).children(recursive=True)
        control.stop(config, _TOPOLOGY, epoch=epoch, **_WHY)
        control.await_end(config, _TOPOLOGY, epoch)
        psutil.wait_procs(jvm, timeout=_SECONDS)
    finally:
        end_local(config)
        for process in jvm:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, as it should
                process.kill()


def _pid(config: Config, epoch: int) -> int:
    """The driver's process id; never that of this process, which psutil would use if there is none."""
    pid = control.driver_status(config, _TOPOLOGY, epoch).pid
    if pid is None:
        raise KappaError("The driver of the training stream has no heartbeat.")
    return pid


def _await_slice(config: Config, epoch: int, commits: int) -> None:
    ledger = Ledger(EpochPaths(lake=config.lake, topology=_TOPOLOGY, epoch=epoch).ledger)
    deadline = time.monotonic() + _SECONDS
    while len(ledger.state().commits) < commits + 1:  # the first one is the seed
        status = control.driver_status(config, _TOPOLOGY, epoch)
        if status.state in ("dead", "stopped", "stuck") or time.monotonic() > deadline:
            log = log_file(config, _TOPOLOGY, epoch)
            tail = log.read_text(errors="replace")[-2000:] if log.is_file() else ""
            raise KappaError(f"The training stream did not run: its driver is {status.state}. Its last output:\n{tail}")
        time.sleep(0.1)
