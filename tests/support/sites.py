"""A deployed topology on a real broker with epochs on record as drivers leave them, without a driver or Spark."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from kappa import clock, control
from kappa.archive.reader import Archive
from kappa.cli import app
from kappa.config import Config
from kappa.errors import RefusedError
from kappa.kafka.broker import Broker
from kappa.kafka.producer import Sender
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs
from kappa.record.events import EventKind
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.estimates import Measured
from kappa.replay.plan import ReplayPlan
from kappa.replay.proof.certificate import Sends
from kappa.slices.places import create_tables
from kappa.slices.run import MASK
from kappa.slices.topics import changelog, versioned_topics
from kappa.topology import registry
from kappa.topology.masking import fingerprint
from kappa.topology.shapes import shapes_as_dict, shapes_of, tables_only
from kappa.wire.encoding import Record
from support.brokers import started_with, watched

DEADLINE_SECONDS = 60.0
#: Records of these sites begin here unless a test says otherwise: Kafka's default retention has long passed.
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)

#: What a site deploys; a test changes a part of it.
PARTS = {
    "sources": 'Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")',
    "tables": 'Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT")',
    "outputs": 'Append(name="moves", schema="id STRING NOT NULL, amount BIGINT")',
    "top": "",
}
TOPOLOGY = '''
"""Balances of accounts."""
{top}
from kappa.topology import Append, Source, Table, Topic, Topology

balances = Topology(
    name="{name}",
    version="1",
    sources=[{sources}],
    tables=[{tables}],
    outputs=[{outputs}],
    step=lambda slice: {{}},
)
'''


@dataclass(kw_only=True)
class Site:
    """One topology, its topic of two partitions, its lake.

    Attributes:
        config: where everything is.
        kafka: the broker.
        topic: the source's topic; tests make and fill it.
        name: the topology.
        bound: source -> the versioned topic of another topology's epoch that is read as it.
        seeded: what commit 0 says besides.
        stack: what is closed after the test.
    """

    config: Config
    kafka: Broker
    topic: str
    name: str
    bound: dict[str, str] = field(default_factory=dict)
    seeded: dict[str, Any] = field(default_factory=dict)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    # What a user does

    def deploy(self, **parts: str) -> None:
        """Write the topology's file, with other parts."""
        texts = {name: text.format(topic=self.topic) for name, text in {**PARTS, **parts}.items()}
        (self.config.topologies / f"{self.name.replace('.', '_')}.py").write_text(
            TOPOLOGY.format(name=self.name, **texts)
        )

    def run(self, command: str) -> tuple[int, str]:
        """A command line, in which ``NAME`` and ``TOPIC`` stand for those of the site: exit code and output."""
        words = shlex.split(command.replace("NAME", self.name).replace("TOPIC", self.topic))
        result = typer.testing.CliRunner().invoke(app, words, env=self.config.to_env())
        if isinstance(result.exception, RefusedError) and result.stdout:  # a plan, and that it is refused
            return result.exception.exit_code, result.stdout
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout

    # What is in Kafka

    def create(self, topic: str | None = None, partitions: int = 2, **settings: str) -> None:
        """Make a topic; settings in Kafka's spelling with ``_`` for ``.``."""
        topic_settings = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in settings.items()}
        self.kafka.create_topic(topic or self.topic, partitions, topic_settings, exists_ok=False)

    def produce(
        self,
        count: int = 10,
        *,
        partition: int = 0,
        at: datetime = LONG_AGO,
        topic: str | None = None,
        key: bytes = b"a",
        size: int = 0,
        account: str = "a",
        amount: int = 1,
        value: bytes | None = None,
    ) -> None:
        """Records a millisecond apart."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        first = round(at.timestamp() * 1000)
        value = value or json.dumps({"id": account, "amount": amount, "more": "x" * size}).encode()
        for number in range(count):
            producer.produce(topic or self.topic, value, key, partition=partition, timestamp=first + number)
        assert producer.flush(30) == 0

    def settings(self, topic: str | None = None, **settings: str) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic or self.topic, incremental_configs=entries)
        for answer in self.admin.incremental_alter_configs([resource]).values():
            answer.result(30)

    def add_partition(self) -> None:
        """One partition more, as `kafka-topics --alter` makes it."""
        count = self.kafka.partitions(self.topic)
        for answer in self.admin.create_partitions([NewPartitions(self.topic, count + 1)]).values():
            answer.result(30)
        self.wait(lambda: self.kafka.partitions(self.topic) == count + 1)

    def recreate(self) -> None:
        """The topic is deleted, and made again under its name."""
        self.delete()
        self.create()

    def delete(self) -> None:
        """The topic is deleted; Kafka forgets what groups had of it a moment later."""
        self.kafka.delete_topics([self.topic])
        groups = self.kafka.groups(f"kappa.{self.name}.")
        self.wait(lambda: not any(self.topic in self.kafka.group_offsets(group).topics for group in groups))

    def hang(self) -> None:
        """A transaction is begun, writes two records to partition 0 or 1, and does not end before the test does."""
        before = sum(offset for _, offset in self.kafka.high_watermarks([self.topic]).items())
        sender = self.stack.enter_context(Sender(self.kafka.bootstrap_servers, f"{self.topic}.hangs", self.topic))
        sender.init()
        sender.begin()
        sender.extend([Record(self.topic, b"a", b"{}"), Record(self.topic, b"a", b"{}")])
        self.wait(lambda: sum(o for _, o in self.kafka.high_watermarks([self.topic]).items()) == before + 2)

    def expire(self, lost: int) -> None:
        """Retention removes the records of partition 0 so far, for real: later ones are young, in another segment."""
        self.produce(1, at=datetime.now(UTC))
        self.settings(retention_ms=str(24 * 3600 * 1000))
        self.wait(lambda: self.kafka.low_watermarks([self.topic])[self.topic, 0] == lost)

    def wait(self, is_true: Callable[[], Any]) -> None:
        """Until a condition holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_true():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.02)

    @cached_property
    def admin(self) -> AdminClient:
        """Kafka's own administration."""
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})

    @property
    def end(self) -> Offsets:
        """Where the topic ends now."""
        return self.kafka.stable_offsets([self.topic])

    # What drivers leave

    def live(self, *, sends: Sends = "live", position: Offsets | None = None, **detail: Any) -> int:
        """An epoch that went live, has read all that is in the log (or up to a position), and whose driver ended."""
        if self._live is None:
            epoch = control.start(self.config, self.name, actor="test")
            self._tell(epoch, "rewound", "seeded")
            self._ledger(epoch, position or self.end, sends, detail)
        else:
            epoch = self.verified(sends=sends, position=position, **detail)
        self.epochs.add(self.name, epoch, "moved", actor="test")
        return epoch

    def adopted(self, plan: ReplayPlan) -> int:
        """A first epoch that began with tables of another job, and went live."""
        epoch = control.replay(self.config, plan, actor="test", reason="test")
        self._tell(epoch, "rewound", "seeded")
        self._ledger(epoch, self.end, "live", {})
        self.epochs.add(self.name, epoch, "moved", actor="test")
        return epoch

    def verified(self, *, sends: Sends = "live", position: Offsets | None = None, **detail: Any) -> int:
        """A candidate that is ready to go live; ``detail`` is what its last commit says besides."""
        epoch = self._candidate()
        self._tell(epoch, "rewound", "seeded", "replayed", "caught_up", "verified")
        self._ledger(epoch, position or self.end, sends, detail)
        return epoch

    def _tell(self, epoch: int, *events: EventKind) -> None:
        topology = registry.load(self.config.topologies, self.name)
        versioned_topics.put_names_on_record(self.epochs, self.kafka, topology, self.paths(epoch))
        versioned_topics.create_topics(self.kafka, topology, self.paths(epoch), 2)
        for event in events:
            self.epochs.add(self.name, epoch, event, actor="driver", verdict="same")

    def measured(self, measurement: Measured) -> None:
        """A replay of this topology was measured, and given up."""
        epoch = self._candidate()
        for event in ("rewound", "seeded"):
            self.epochs.add(self.name, epoch, event, actor="driver")
        self.epochs.add(self.name, epoch, "replayed", actor="driver", measured=measurement.as_dict())
        self.epochs.add(self.name, epoch, "aborted", actor="test")

    def marker(self, epoch: int, position: Offsets | None = None, sends: Sends = "live", **settings: str) -> None:
        """A changelog with ten records and the marker that closes them, as a driver sends them."""
        paths = self.paths(epoch)
        topology = registry.load(self.config.topologies, self.name)
        changelog.create_topics(self.kafka, topology, paths, 2)
        self.settings(paths.changelog("balances"), **settings or {"retention.ms": "-1"})
        content = {
            "seq": 1,
            "end": (position or self.end).as_dict(),
            "max_timestamps": {},
            "topic_ids": self.ids,
            "code": "c",
            "shapes": shapes_as_dict(tables_only(shapes_of(topology))),
            "topology_version": "1",
            "sends": sends,
        }
        rows = [Record(paths.changelog("balances"), b"%d" % n, b"{}") for n in range(10)]
        with Sender(self.kafka.bootstrap_servers, paths.name, paths.name) as sender:
            sender.init()
            sender.send([*rows, Record(paths.markers, b"marker", json.dumps(content).encode())], None)
            sender.init()

    def beat(self, epoch: int) -> None:
        """A driver of the epoch runs: this process."""
        path = Path(self.paths(epoch).heartbeat)
        path.parent.mkdir(parents=True, exist_ok=True)
        heartbeat.write(str(path), heartbeat.this_process("somebody", "c"))

    def archived(self, upto: int) -> None:
        """The first records of partition 0 are archived, as far as an archive's ledger says it."""
        ledger = Archive(self.config.lake, self.topic).ledger
        ledger.create()
        ledger.claim("archiver", "", ledger.state())
        spans = Offsets({self.topic: {0: 0}}).span_to(Offsets({self.topic: {0: upto}}))
        detail = {"topic_id": self.ids[self.topic], "parts": {"0": {"rows": upto}}}
        ledger.append(LedgerRow(kind="commit", seq=0, writer="archiver", at=clock.now(), ranges=spans, detail=detail))

    def paths(self, epoch: int) -> EpochPaths:
        """Where an epoch is."""
        return EpochPaths(lake=self.config.lake, topology=self.name, epoch=epoch)

    @property
    def ids(self) -> dict[str, str]:
        """Kafka's ids of the sources' topics."""
        topics = registry.load(self.config.topologies, self.name).source_topics
        return self.kafka.topic_ids([self.bound.get(topic, topic) for topic in topics])

    @property
    def epochs(self) -> Epochs:
        """The record of all epochs."""
        return Epochs(self.config.lake)

    @property
    def _live(self) -> int | None:
        return self.epochs.record(self.name).live

    def _candidate(self) -> int:
        return control.replay(self.config, control.plan(self.config, self.request()), actor="test", reason="test")

    def request(self, **changes: Any) -> Any:
        """A replay from the beginning that allows whatever can be, or another one."""
        from kappa.replay.catalogue import ALLOWABLE
        from kappa.replay.request import ReplayRequest
        from kappa.replay.starts import ToEarliest

        fields = {"start": ToEarliest(), "reason": "test", "actor": "test", "allow": ALLOWABLE, **changes}
        return ReplayRequest(topology=self.name, **fields)

    def _ledger(self, epoch: int, end: Offsets, sends: Sends, detail: Mapping[str, Any]) -> None:
        topology, paths = registry.load(self.config.topologies, self.name), self.paths(epoch)
        create_tables(topology, paths)
        ledger = Ledger(paths.ledger)
        ledger.create()
        ledger.claim("driver", "c", ledger.state())
        begin = Offsets.of((at, 0) for at in end)
        places = [*(f"tables/{t.name}" for t in topology.tables), *(f"outputs/{a.name}" for a in topology.appends)]
        roots = {topic: dict.fromkeys(parts, 0) for topic, parts in detail.get("roots", {}).items()}
        row = LedgerRow(
            kind="commit",
            seq=0,
            writer="driver",
            at=clock.now(),
            code="c",
            ranges=begin.span_to(begin),
            delta_versions=dict.fromkeys(places, 0),
            detail={
                "topic_ids": self.ids,
                "shapes": shapes_as_dict(shapes_of(topology)),
                **({"roots": roots} if roots else {}),
                **self.seeded,
                **({MASK: fingerprint(self.config.mask_key)} if topology.is_sensitive else {}),
            },
        )
        ledger.append(row)
        read = begin.span_to(end)
        count = sum(item.count for item in read)
        ledger.append(
            replace(
                row, seq=1, ranges=read, sends=sends, logged=True, rows_read=count, rows_parsed=count, detail=detail
            )
        )
        self.kafka.set_group_offsets(paths.name, end)

    # What must stay as it is

    def listing(self) -> dict[str, str]:
        """Every file of the lake by its content, every topic by its id and end, every group by its offsets."""
        lake = Path(self.config.lake)
        files = {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in lake.rglob("*") if p.is_file()}
        names = self.kafka.topics()
        ends = {name: self.kafka.high_watermarks([name]).to_json() for name in names}
        topics = {f"topic {name}": f"{topic_id} {ends[name]}" for name, topic_id in self.kafka.topic_ids(names).items()}
        groups = {f"group {name}": self.kafka.group_offsets(name).to_json() for name in self.kafka.groups()}
        return files | topics | groups


@contextlib.contextmanager
def site(base: Path, kafka: Broker, number: int) -> Iterator[Site]:
    """A site with its topology deployed and its topic not made yet; what it leaves on the broker is removed."""
    topologies = base / "topologies"
    topologies.mkdir(parents=True)
    config = Config(
        lake=str(base / "lake"),
        bootstrap_servers=kafka.bootstrap_servers,
        topologies=topologies,
        home=base / "home",
        cache=Path.home() / ".cache" / "kappa",
        launcher="elsewhere",
        stale_seconds=600.0,
    )
    new_site = Site(config=config, kafka=kafka, topic=f"site{number}", name=f"site.balances{number}")
    new_site.deploy()
    try:
        with new_site.stack:
            yield new_site
    finally:
        kafka.delete_topics([name for name in kafka.topics() if name.startswith(("kappa.", new_site.topic))])
        for group in kafka.groups():
            kafka.delete_group(group)


@pytest.fixture(scope="module")
def eager_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An embedded broker that looks after retention and compaction all the time, instead of every few minutes."""
    eager = {
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
        "log.cleaner.backoff.ms": "50",
    }
    with watched(started_with(tmp_path_factory.mktemp("eager-kafka"), lambda _: eager)) as process:
        yield process.bootstrap_servers
