"""What a release leaves behind: a lake with live epochs, a candidate, a retired epoch and a savepoint, and its broker.

``python -m support.release_lakes`` makes them with the Kappa that it imports and writes
``tests/releases/<version>.tar.xz``. That is done once for a release, and the file stays as it is.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
from confluent_kafka import Producer

import kappa
from kappa import control
from kappa.config import Config
from kappa.kafka.broker import Broker
from kappa.replay.stages import Stage
from kappa_local.kafka import KafkaProcess, free_port
from support.epochs import plain_settings
from support.processes import QUICK_JVM, Rig, rows

FOLDER = Path(__file__).resolve().parents[1] / "releases"
#: What is kept of the folder in which a lake was made.
PARTS = ("lake", "topologies", "broker")
#: Files of the broker that it writes anew.
_LOGS = ("broker.log", "broker.out", "log4j2.xml", "server.properties")
BEGIN_MS = 1_700_000_000_000
SAVEPOINT = "before-version-3"

#: State of each kind that operators keep, and what they emit.
OPERATORS = """
\"\"\"An operator of each kind of state.\"\"\"

from kappa import Append, Source, Topology
from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    at_most_every,
    deduplicate,
    interval_join,
    newest_by,
    session_window,
    sliding_window,
    table_join,
    tumbling_window,
    versions_by,
)

ROW = "id STRING, ref STRING, n BIGINT"
SUMS = {"rows": agg.count(), "total": agg.sum("n"), "spread": agg.variance("n")}
left = Source(topic="{name}.left", schema=ROW, grace="2 seconds")
right = Source(topic="{name}.right", schema=ROW, grace="2 seconds")
prices = Source(topic="{name}.prices", schema="n BIGINT", key_schema="id STRING", tombstones=True, grace="2 seconds")

tallies = aggregate(left, key="ref", aggregates=SUMS, table="tallies")
newest = newest_by(left, key="id", table="newest")
groups = aggregate_table(newest, key="ref", aggregates={"rows": agg.count(), "total": agg.sum("n")}, table="groups")
windows = tumbling_window(left, key="id", size="10 seconds", aggregates=SUMS, table="windows")
visits = session_window(left, key="id", gap="3 seconds", aggregates=SUMS, table="visits")
slides = sliding_window(left, key="id", size="4 seconds", aggregates=SUMS, table="slides")
once = deduplicate(left, key="id", within="5 seconds", emit="final", table="runs")
due = at_most_every(left, key="id", every="10 seconds", table="due")
pairs = interval_join(left, right, key="id", within="4 seconds", how="outer", tables=("lefts", "rights"))
versions = versions_by(prices, key="id", table="versions")
priced = table_join(left, versions, key="id", how="left", tables="waiting")

topology = Topology(
    name="{name}",
    version="1",
    sources=[left, right, prices],
    operators=[tallies, newest, groups, windows, visits, slides, once, due, pairs, versions, priced],
    outputs=[
        Append(name="closed_windows", of=windows.final),
        Append(name="closed_visits", of=visits.final),
        Append(name="closed_slides", of=slides.final),
        Append(name="first_of_runs", of=once.rows),
        Append(name="newest_of_windows", of=due.final),
        Append(name="pairs_of_rows", of=pairs.rows),
        Append(name="priced_rows", of=priced.rows),
    ],
)
"""


@dataclass(kw_only=True)
class Site:
    """Two topologies in one lake: running totals with a history of versions, and one operator of each kind.

    Attributes:
        broker: the process.
        totals: the running totals; version N counts each amount N times.
        operators: the other one.
    """

    broker: KafkaProcess
    totals: Rig
    operators: Operators

    def produce(self, number: int) -> None:
        """The next records of both; each number once, in order."""
        self.produce_totals(number)
        self.operators.feed(number)

    def produce_totals(self, number: int) -> None:
        """The next records of the running totals; each number once, in order."""
        self.totals.produce(rows(22, first=22 * number), start_ms=BEGIN_MS + 60_000 * number)


class Released(Rig):
    """A topology that has one name in all copies of its lake: only drivers of this copy are ended with it."""

    def close(self) -> None:
        for running in psutil.process_iter(["cmdline", "environ"]):
            words, environ = running.info["cmdline"] or [], running.info["environ"] or {}
            if self.name in words and "--epoch" in words and environ.get("KAPPA_HOME") == str(self.config.home):
                with contextlib.suppress(psutil.NoSuchProcess):
                    running.kill()


class Operators(Released):
    """The topology with an operator of each kind."""

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        """Its one version."""
        (self.config.topologies / "operators.py").write_text(OPERATORS.replace("{name}", self.name))

    @property
    def topics(self) -> tuple[str, ...]:
        """What it reads."""
        return tuple(f"{self.name}.{side}" for side in ("left", "right", "prices"))

    def feed(self, number: int) -> None:
        """Records of half a minute for each topic, one of them late, and a price that is withdrawn."""
        left, right, prices = self.topics
        begin = BEGIN_MS + 30_000 * number
        settings = {"partitioner": "murmur2_random", "linger.ms": 60_000}
        producer = Producer({**plain_settings(self.config.bootstrap_servers), **settings})

        def send(topic: str, at: int, key: str, value: Mapping[str, Any] | None) -> None:
            content = None if value is None else orjson.dumps(value)
            producer.produce(topic, key=orjson.dumps({"id": key}), value=content, timestamp=begin + at)

        for n in range(24):
            key = f"k{(n * n + number) % 5}"
            at = 1_200 * n if n != 20 else 4_000
            send(left, at, key, {"id": key, "ref": f"r{n % 3}", "n": n + number})
            send(right, at + 700, key, {"id": key, "ref": f"r{n % 2}", "n": 2 * n})
            send(prices, at - 100, key, None if n == 13 else {"n": n})
        assert producer.flush(30) == 0

    def settle_all(self, epoch: int) -> None:
        """Wait until an epoch has read all of its topics."""
        self.settle(epoch, self.topics)


def make(base: Path) -> None:
    """Make what the release leaves in a folder; all processes have ended afterwards."""
    (base / "topologies").mkdir()
    broker = KafkaProcess.start(base / "broker")
    try:
        with _site(base, broker) as site:
            _live_on(site)
    finally:
        broker.stop()


def _live_on(site: Site) -> None:
    totals, operators = site.totals, site.operators
    for name in (totals.topic, *operators.topics):
        totals.kafka.create_topic(name, 2, {"retention.ms": "-1"})
    totals.deploy(1)
    operators.deploy(1)
    site.produce(0)
    first, live = totals.start_live(), operators.start()
    operators.settle_all(live)
    site.produce(1)
    totals.settle(first)
    totals.deploy(2)
    second = totals.plan_replay()
    totals.cut_over(second)
    operators.settle_all(live)
    site.produce(2)
    totals.settle(second)
    totals.output_of("savepoint", "create", totals.name, SAVEPOINT, "--execute")
    totals.deploy(3)
    third = totals.plan_replay()
    totals.await_stage(third, Stage.VERIFIED)
    operators.settle_all(live)
    site.produce(3)
    operators.settle_all(live)
    for epoch in (second, third):
        totals.settle(epoch)
    for member in (totals, operators):
        for epoch in sorted(member.started):
            if not member.is_dead(epoch):
                control.stop(member.config, member.name, epoch=epoch, actor="test", reason="the end")
                member.await_end(epoch)


@contextmanager
def opened(release: str, base: Path) -> Iterator[Site]:
    """What a release left, unpacked into an empty folder, with a running broker; no driver runs."""
    with tarfile.open(FOLDER / f"{release}.tar.xz") as archive:
        archive.extractall(base, filter="data")
    broker = KafkaProcess.start(base / "broker", free_port())
    try:
        with _site(base, broker) as site:
            yield site
    finally:
        broker.stop()


@contextmanager
def _site(base: Path, broker: KafkaProcess) -> Iterator[Site]:
    config = Config(
        bootstrap_servers=broker.bootstrap_servers,
        topologies=base / "topologies",
        lake=str(base / "lake"),
        home=base / "home",
        cache=Path.home() / ".cache" / "kappa",
        trigger_seconds=0.1,
        heartbeat_seconds=0.5,
        slice_records=500,
        spark_master="local[2]",
        spark_conf=QUICK_JVM,
    )
    with Broker(broker.bootstrap_servers) as client:
        parts: dict[str, Any] = {"config": config, "kafka": client, "session": None}
        totals = Released(topic="release.moves", name="release.totals", **parts)
        operators = Operators(topic="release.operators.left", name="release.operators", **parts)
        try:
            yield Site(broker=broker, totals=totals, operators=operators)
        finally:
            totals.close()
            operators.close()


def pack(base: Path, file: Path) -> None:
    """Write the parts of a folder that are kept, without the names of who made it."""

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return None if info.name in {f"broker/{name}" for name in _LOGS} else info

    with tarfile.open(file, "w:xz", preset=9) as archive:
        for part in PARTS:
            archive.add(base / part, part, filter=anonymous)


def releases() -> Sequence[str]:
    """The versions of which there is a lake."""
    return sorted(file.name.removesuffix(".tar.xz") for file in FOLDER.glob("*.tar.xz"))


def main() -> None:
    """Make the lake of this release."""
    file = FOLDER / f"{kappa.__version__}.tar.xz"
    if file.exists():
        sys.exit(f"{file} exists, and stays as it is. A release makes its lake once.")
    base = Path(tempfile.mkdtemp(prefix="kappa-release-"))
    try:
        make(base)
        pack(base, file)
        print(json.dumps({"file": str(file), "bytes": file.stat().st_size}))
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
