"""The record of epochs as many topologies leave it after many nights of reprocessing, and what a look at it costs.

Run it by itself: ``python -m benchmarks.grown_record --topologies 200 --nights 60``. Each night every topology plans an
epoch, builds and compares it, moves its readers to it, and removes the epoch before the last. The product's own writer
makes the record, by a clock that is moved on by hand; no engine runs. After the second night, after half of the nights
and after all of them, each look is timed in a new process. At the end a trigger per topology watches its live epoch,
all in one process as Airflow has them, while another process commits a slice of each epoch every ten seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.page_lake import TopologyStory, steady

from kappa import clock
from kappa.config import Config
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs, Now, epochs_of
from kappa.record.events import Event, EventKind
from kappa.replay.estimates import Estimate
from kappa.replay.plan import BESIDE_LIVE, FIRST_EPOCH, ReplayPlan
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.starts import ToEarliest

#: Size of a report and of a certificate, without the offsets.
REPORT_BYTES, CERTIFICATE_BYTES = 24_000, 8_000
PARTITIONS, TABLES = 24, 6
#: How often a look is repeated in a process, or for how long.
TIMES, SECONDS = 50, 5.0
#: How long triggers are watched, from when each has looked a few times; and seconds between two slices of an epoch.
WATCH_SECONDS, SETTLE_SECONDS, SLICE_SECONDS = 60.0, 20.0, 10.0
#: Slices of each live epoch before that.
SLICES = 100


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one look costs, in seconds of a processor; bytes of memory of its process."""

    name: str
    first: float
    next: float
    memory: int


def names(topologies: int) -> list[str]:
    """Names of topologies."""
    return [f"sales.stream{number:03d}" for number in range(topologies)]


def grow(config: Config, topologies: Sequence[str], nights: range) -> None:
    """Let every topology have one more epoch each night."""
    epochs, real = epochs_of(config.lake), clock.now
    begin = real() - timedelta(days=61)
    for night in nights:
        at = begin + timedelta(days=night)
        clock.now = lambda at=at: at  # type: ignore[misc]
        try:
            for kinds in _night(night):
                _put(epochs, topologies, kinds)
        finally:
            clock.now = real
    for name in topologies:
        paths = EpochPaths(lake=config.lake, topology=name, epoch=nights[-1] + 1)
        Path(paths.root).mkdir(parents=True, exist_ok=True)
        _beat(paths)


def _night(night: int) -> Iterator[Mapping[EventKind, int]]:
    """The commits of a night: the events of each, with their epoch."""
    epoch = night + 1
    yield {"planned": epoch}
    yield {"rewound": epoch}
    yield {"seeded": epoch}
    if night:
        yield {"replayed": epoch}
        yield {"caught_up": epoch}
        yield {"verified": epoch}
        yield {"approved": epoch}
        yield {"handover": epoch}
    yield {"moved": epoch}
    if night > 1:
        yield {"dropped": epoch - 2}


def _put(epochs: Epochs, topologies: Sequence[str], kinds: Mapping[EventKind, int]) -> None:
    def decide(now: Now) -> list[Event]:
        return [
            now.event(kind, epoch, topology=name, actor="airflow:schedule", detail=_detail(name, epoch, kind))
            for name in topologies
            for kind, epoch in kinds.items()
        ]

    epochs.change(topologies[0], decide)


def _detail(topology: str, epoch: int, kind: EventKind) -> dict[str, Any]:
    live = epoch - 1 or None
    match kind:
        case "planned":
            plan = _plan(topology, epoch)
            own = {"code": plan.code, "version": "1", "start": plan.start.to_json(), "origin": plan.origin.to_json()}
            return {"plan": plan.to_json(), "plan_id": plan.id, "live": live, **own}
        case "seeded":
            return {"findings": []}
        case "verified":
            return {"verdict": "same", "report": _document(topology, epoch, REPORT_BYTES), "live_epoch": live}
        case "approved":
            return {"topology": topology, "epoch": epoch, "live": live, "code": _hash(topology), "verdict": "same"}
        case "handover":
            return {"from": live, "keep_old_running": False}
        case "moved":
            certificate = _document(topology, epoch, CERTIFICATE_BYTES)
            return {"from": live, "seq": 900, "handover": None, "certificate": certificate, "at": {}}
        case _:
            return {}


def _plan(topology: str, epoch: int) -> ReplayPlan:
    first = {partition: 1_000_000 * epoch + partition for partition in range(PARTITIONS)}
    start = Offsets({f"{topology}.in": first})
    end = Offsets({f"{topology}.in": {partition: offset + 750_000 for partition, offset in first.items()}})
    return ReplayPlan(
        topology=topology,
        topology_version="1",
        code=_hash(topology),
        epoch=epoch,
        live_epoch=epoch - 1 or None,
        live_seq=900,
        start=start,
        end=end,
        origin=start,
        topic_ids={f"{topology}.in": _hash(topology)[:22]},
        seed=Seed.EMPTY,
        seed_epoch=None,
        seed_seq=None,
        tables=tuple(f"table{number}" for number in range(TABLES)),
        appends=("moves",),
        topics=(),
        stages=FIRST_EPOCH if epoch == 1 else BESIDE_LIVE,
        findings=(),
        estimate=Estimate(offsets=750_000 * PARTITIONS, records=750_000 * PARTITIONS, seconds=1200.0),
        created_at=clock.now(),
        request=ReplayRequest(topology=topology, start=ToEarliest(), reason="nightly", actor="airflow:schedule"),
    )


def _document(topology: str, epoch: int, size: int) -> str:
    """JSON text of a size that does not compress better than keys, hashes and counts do."""
    rows = [{"key": _hash(f"{topology}{epoch}{n}")[:16], "rows_live": n * epoch, "rows": n} for n in range(size // 60)]
    return json.dumps({"complete": True, "tables": rows})


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _beat(paths: EpochPaths) -> None:
    beat = heartbeat.Heartbeat(
        writer="benchmark", host="elsewhere", pid=1, boot="none", started=1, at=clock.now(), state="running"
    )
    heartbeat.write(paths.heartbeat, beat)


def looks(config: Config) -> dict[str, Callable[[], Callable[[], object]]]:
    """Each look at the record, as something that makes it in a new process: the second call is its repetition."""
    name = names(1)[0]
    return {
        "status of one topology": lambda: _status(config, name),
        "status of all": lambda: _status(config, None),
        "a driver's look": lambda: _driver(config, name),
        "a trigger's look": lambda: _trigger(config),
        "the page": lambda: _page(config),
    }


def _status(config: Config, topology: str | None) -> Callable[[], object]:
    from kappa import control

    def look() -> object:
        topologies = epochs_of(config.lake).topologies() if topology is None else [topology]
        return [control.status(config, name) for name in topologies]

    return look


def _driver(config: Config, topology: str) -> Callable[[], object]:
    epochs = epochs_of(config.lake)
    return lambda: epochs.record(topology)


def _trigger(config: Config) -> Callable[[], object]:
    from kappa_airflow.patience import Patience
    from kappa_airflow.triggers import StageTrigger

    records = list(epochs_of(config.lake).records())
    triggers = [StageTrigger(topology=one.topology, epoch=max(one.recent), stage="RETIRED") for one in records]
    again = iter(triggers * (TIMES + 1))
    return lambda: next(again).look(config, Patience())


def _page(config: Config) -> Callable[[], object]:
    from kappa_web.lake import Lake

    lake = Lake(config)
    return lake.records


def measure(name: str) -> None:
    """Time one look in this process, and print it."""
    config = Config.from_env()
    make = looks(config)[name]
    packages = ("deltalake", "pyarrow.parquet", "pyarrow.compute")
    for module in ("kappa.control", "kappa_airflow.triggers", "kappa_web.lake", *packages):
        import_module(module)  # not what a look costs
    gc.collect()
    gc.freeze()  # nor is looking through what they brought with them
    started = time.process_time()
    look = make()
    look()
    first = time.process_time() - started
    again: list[float] = []
    while len(again) < TIMES and sum(again) < SECONDS:
        started = time.process_time()
        look()
        again.append(time.process_time() - started)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"name": name, "first": first, "next": median(again), "memory": memory}))


def stories(config: Config) -> list[TopologyStory]:
    """Every topology on record, as something that writes the ledger of its live epoch."""
    return [
        TopologyStory(config=config, name=record.topology, topic=f"{record.topology}.in", partitions=PARTITIONS)
        for record in epochs_of(config.lake).records()
    ]


def watch(config: Config) -> None:
    """Print the part of a core that a process with a trigger per topology takes; each ledger grows meanwhile."""
    from kappa_airflow.triggers import StageTrigger

    live = {record.topology: record.live_epoch() for record in epochs_of(config.lake).records()}
    triggers = [StageTrigger(topology=name, epoch=epoch, stage="RETIRED") for name, epoch in live.items()]

    async def run() -> float:
        tasks = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
        await asyncio.sleep(SETTLE_SECONDS)
        started = time.process_time()
        await asyncio.sleep(WATCH_SECONDS)
        used = time.process_time() - started
        ended = [task for task in tasks if task.done()]
        assert not ended, ended[0].result()
        for task in tasks:
            task.cancel()
        return used / WATCH_SECONDS

    print(json.dumps({"triggers": len(triggers), "share": asyncio.run(run())}), flush=True)
    os._exit(0)  # threads that look would be waited for


def commit_slices(config: Config) -> None:
    """Commit a slice of each live epoch every few seconds, until this process is ended."""
    records = {record.topology: record.live_epoch() for record in epochs_of(config.lake).records()}
    topologies = stories(config)
    while True:
        started = time.monotonic()
        for number, story in enumerate(topologies, start=1):
            story.grow(records[story.name])
            time.sleep(max(0.0, started + number * SLICE_SECONDS / len(topologies) - time.monotonic()))


def watched(config: Config) -> tuple[int, float]:
    """How many triggers there were, and the part of a core that they took together."""
    now, live = clock.now(), {record.topology: record.live_epoch() for record in epochs_of(config.lake).records()}
    for story in stories(config):
        story.ledger(live[story.name], steady(now, SLICES))
    environment = {**os.environ, "KAPPA_LAUNCHER": "elsewhere", "KAPPA_STALE_SECONDS": "1000000"}
    command = [sys.executable, "-m", "benchmarks.grown_record", "--look"]
    writer = subprocess.Popen([*command, "slices"], env=environment)
    try:
        run = subprocess.run([*command, "triggers"], env=environment, capture_output=True, text=True, check=True)
    finally:
        writer.kill()
        writer.wait()
    answer = json.loads(run.stdout.splitlines()[-1])
    return answer["triggers"], answer["share"]


def measured(lake: str) -> list[Look]:
    """Every look at the record of a lake, each in a new process."""
    environment = {**os.environ, "KAPPA_LAKE": lake, "KAPPA_LAUNCHER": "elsewhere"}
    answers = []
    for name in looks(Config.from_env(environment)):
        command = [sys.executable, "-m", "benchmarks.grown_record", "--look", name]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        answers.append(Look(**json.loads(run.stdout.splitlines()[-1])))
    return answers


def main() -> None:
    """Grow a record and print what looks at it cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topologies", type=int, default=200)
    parser.add_argument("--nights", type=int, default=60)
    parser.add_argument("--look", help="time one look at the lake KAPPA_LAKE, in this process")
    arguments = parser.parse_args()
    if arguments.look:
        apart = {"triggers": watch, "slices": commit_slices}
        if arguments.look in apart:
            apart[arguments.look](Config.from_env())
        else:
            measure(arguments.look)
        return
    topologies, done = names(arguments.topologies), 0
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(KAPPA_HOME=home, KAPPA_LAKE=f"{home}/lake")
        config = Config.from_env()
        for nights in sorted({2, arguments.nights // 2, arguments.nights}):
            grow(config, topologies, range(done, nights))
            done = nights
            log = Path(f"{home}/lake/_kappa/epochs")
            size = sum(file.stat().st_size for file in log.glob("*.parquet"))
            print(f"after {nights} nights: {len(list(log.glob('*.parquet')))} files, {size / 1e6:.1f} MB", flush=True)
            for one in measured(config.lake):
                print(
                    f"  {one.name:24} first {1000 * one.first:9.1f} ms, then {1000 * one.next:9.2f} ms, "
                    f"{one.memory / 1e6:6.0f} MB",
                    flush=True,
                )
        triggers, part = watched(config)
        print(f"{triggers} triggers, each with a ledger that grows: {part:.3f} of a core")


if __name__ == "__main__":
    main()
