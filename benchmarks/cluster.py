"""(p) Processor time of a replay on a Spark cluster that is neither its executors' nor the broker's, over all of it.

What the driver does is done once, however many workers there are: with a quarter of the time two workers give 1.6 times
what one gives. Version 1 goes live without the cluster and reads the topic; then its driver is stopped. A standalone
master and one worker follow, and a replay by a driver process. Every half second until stage ``REPLAYED`` the user and
system time of each process is read: the driver's Python, its JVM, the worker's executors with their Python workers, the
broker, and the daemons of the cluster, which count for nobody. Starting Python and JVMs and the first slice, for which
all of them compile, is one part of it; the slices after that are the other one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import psutil
import pyspark
from tests.support.programs import program

from benchmarks.result import Figure
from benchmarks.site import ACTOR, LOOK_SECONDS, TOPOLOGY, Site, now, say
from kappa import control
from kappa.presence import heartbeat
from kappa.spark.jars import java_home
from kappa_local.kafka import HOST, free_port

#: At least so many slices, each of more records than the driver would parse itself.
SLICES, LEAST = 8, 60_000
PAUSE_SECONDS = 0.5
PYTHON, JVM, EXECUTORS, BROKER, DAEMONS = "driver's Python", "driver's JVM", "executors", "broker", "daemons"


def measure(site: Site) -> list[Figure]:
    """Run it."""
    site.generate(site.scale.records)
    site.deploy(1)
    first = site.start()
    site.settle(first)
    site.stop(first)
    site.deploy(2)
    size = min(site.config.slice_records, max(LEAST, -(-site.scale.records // SLICES)))
    with cluster(site.config.home.parent) as (url, pids):
        settings = {"spark.executor.memory": "2g", **site.config.spark_conf}
        place = replace(site, config=replace(site.config, spark_master=url, spark_conf=settings)).with_slices(size)
        times = _replayed(place, {**pids, BROKER: _broker()})
    start, steady, late = times.between("launch", "first"), times.between("first", "end"), times.between("half", "end")
    whole = times.between("launch", "end")
    detail = {
        "records": site.scale.records,
        "slice_records": size,
        **{name: dict(part) for name, part in (("start", start), ("steady", steady), ("second half", late))},
    }
    for name, part in (("whole", whole), ("start", start), ("steady", steady), ("second half", late)):
        shown = ", ".join(f"{who} {part[who]:.1f} s" for who in (PYTHON, JVM, EXECUTORS, BROKER, DAEMONS))
        say(f"{name}: {share(part):.3f} ({shown})")
    what = "replay on a cluster, processor time outside executors and broker"
    return [
        Figure(
            part="p",
            name=f"{what}, after the first slice",
            value=share(steady),
            unit="of all",
            wanted="<= 0.25",
            detail=detail,
        ),
        Figure(part="p", name=f"{what}, start included", value=share(whole), unit="of all"),
    ]


def share(part: Mapping[str, float]) -> float:
    """What a driver takes of a replay's processor time."""
    driver = part[PYTHON] + part[JVM]
    return driver / (driver + part[EXECUTORS] + part[BROKER])


@dataclass(kw_only=True)
class Times:
    """Processor time of a replay, in seconds by class of process, at each look; and when what happened.

    Attributes:
        looks: time of each look, and what all processes had used by then.
        at: the moments between which one asks for it.
    """

    looks: list[tuple[datetime, Counter[str]]] = field(default_factory=list)
    at: dict[str, datetime] = field(default_factory=dict)

    def between(self, begin: str, end: str) -> Counter[str]:
        """What was used between two moments."""
        used = self._by(self.at[end])
        used.subtract(self._by(self.at[begin]))
        return used

    def _by(self, moment: datetime) -> Counter[str]:
        """What was used by a moment, as if it had been used evenly between two looks."""
        after = next((n for n, (at, _) in enumerate(self.looks) if at >= moment), len(self.looks) - 1)
        (before_at, before), (after_at, later) = self.looks[max(after - 1, 0)], self.looks[after]
        span = (after_at - before_at).total_seconds()
        part = (moment - before_at).total_seconds() / span if span else 1.0
        return Counter({who: before[who] + (later[who] - before[who]) * part for who in later})


def _replayed(site: Site, pids: Mapping[str, int]) -> Times:
    """The processor time of a replay; its epoch is aborted."""
    times = Times()
    sampler = _Sampler(pids)
    times.looks.append((now(), sampler.look(None)))
    times.at["launch"] = now()
    epoch = site.replay()
    with _watched(site, epoch, sampler, times):
        site.until(lambda: site.at(epoch, "replayed"), "the replay ends", epoch, pause=LOOK_SECONDS)
        time.sleep(2 * PAUSE_SECONDS)
    commits = [row for row in site.state(epoch).commits if row.seq > 0]
    end = site.at(epoch, "replayed")
    assert end is not None
    times.at |= {"first": commits[0].at, "half": commits[len(commits) // 2].at, "end": end}
    control.abort(site.config, TOPOLOGY, epoch, **ACTOR)
    rate = sum(row.rows_read for row in commits[1:]) / (commits[-1].at - commits[0].at).total_seconds()
    say(f"{len(commits)} slices, after the first {rate:,.0f} records/s")
    return times


@contextmanager
def _watched(site: Site, epoch: int, sampler: _Sampler, times: Times) -> Iterator[None]:
    """Within, processes are looked at again and again."""
    stopping = threading.Event()

    def watch() -> None:
        while not stopping.wait(PAUSE_SECONDS):
            beat = heartbeat.read(site.paths(epoch).heartbeat)
            times.looks.append((now(), sampler.look(None if beat is None else beat.pid)))

    thread = threading.Thread(target=watch, name="processor-time", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


class _Sampler:
    """Adds up the processor time of processes, also of those that ended between two looks.

    Args:
        pids: the broker, and the daemons of the cluster, of which the worker has the executors as children.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._used: dict[tuple[int, float], tuple[str, float]] = {}

    def look(self, driver: int | None) -> Counter[str]:
        """Seconds by class of process."""
        for name, pid in self._pids.items():
            self._add(pid, BROKER if name == BROKER else DAEMONS, EXECUTORS)
        if driver is not None:
            self._add(driver, PYTHON, PYTHON)
        used: Counter[str] = Counter()
        for who, seconds in self._used.values():
            used[who] += seconds  # type: ignore[assignment]  # counted in seconds
        return used

    def _add(self, pid: int, who: str, children: str) -> None:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            self._note(root, who)
            for process in root.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    is_jvm = children == PYTHON and process.name() == "java"
                    self._note(process, JVM if is_jvm else children)

    def _note(self, process: psutil.Process, who: str) -> None:
        times = process.cpu_times()
        self._used[process.pid, process.create_time()] = who, times.user + times.system


def _broker() -> int:
    return next(process.pid for process in psutil.Process().children() if "kafka.Kafka" in process.cmdline())


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Within, a standalone master and a worker with all cores run: its address, and the daemons by name."""
    port = free_port()
    url = f"spark://{HOST}:{port}"
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "JAVA_HOME": str(java_home()),
        "KAPPA_HOME": str(folder),
        "SPARK_HOME": str(Path(pyspark.__path__[0])),
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": HOST,
    }
    daemons = {
        "master": ("master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0"),
        "worker": ("worker.Worker", "--host", HOST, "--webui-port", "0", "--work-dir", str(folder / "work"), url),
    }
    pids = {}
    with ExitStack() as processes:
        for name, (kind, *words) in daemons.items():
            command = [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *words]
            running = program(command, folder / f"{name}.log", environment, stop_seconds=20.0)
            pids[name] = processes.enter_context(running).pid
        yield url, pids
