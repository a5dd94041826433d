"""A small topology on a real broker, real Spark and real Delta, driven from within the test's own process."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, overload

import orjson
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from kappa import control
from kappa.archive.overview import status as archive_status
from kappa.archive.writer import Archiver
from kappa.archive.writer import run as run_archivers
from kappa.cli import app
from kappa.config import Config
from kappa.delta import queries
from kappa.driver.driver import Driver
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import for_librdkafka
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets, joins
from kappa.record.code import extract
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import BegunState
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import STAGES, Stage
from kappa.replay.starts import Start, ToEarliest
from support.declared import declared_details

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_SECONDS = 300.0

#: Partition and offset of a record.
Place = tuple[int, int]
#: Account, amount as the code counts it, running total.
Move = tuple[str, int, int]

AnyLab = TypeVar("AnyLab", bound="Lab")
Reader = TypeVar("Reader", Epochs, Ledger)

TOPOLOGY = '''
"""Running balances, version {version}: each amount counts {factor} times."""

from kappa.operators import running_total
from kappa.topology import Append, Check, Source, Topic, Topology

MOVES = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")
totals = running_total(
    MOVES, rows="id STRING, counted BIGINT", key="id", amount="counted", total="total", table="balances"
)

def step(slice):
    """Moves with their running totals, and the balance of each account."""
    counted = slice["{topic}"].selectExpr("*", "CAST(amount * {factor} AS BIGINT) AS counted")
    return {{"moves": totals(slice, counted).rows}}


balances = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[totals],
    outputs=[
        Append(name="moves", schema="id STRING NOT NULL, counted BIGINT, total BIGINT"),
        Topic(name="{topic}.moves", of="moves", key="id"),
    ],
    checks=[Check(name="no balance is lost", sql="SELECT id FROM moves EXCEPT SELECT id FROM balances")],
    step=step,
)
'''


@dataclass(kw_only=True)
class Lab:
    """One topology, its topic and its lake."""

    config: Config
    kafka: Broker
    topic: str
    name: str
    session: SparkSession
    driver_type: type[Driver] = Driver
    meant: tuple[type[BaseException], ...] = ()
    running: dict[int, tuple[Driver, threading.Thread, list[BaseException]]] = field(default_factory=dict)
    _looking: threading.local = field(default_factory=threading.local)
    template: ClassVar[str] = TOPOLOGY

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        """Change the file in the topologies folder, as a user does; the factor may be an SQL expression."""
        text = self.template.format(version=version, factor=factor or version, topic=self.topic, name=self.name)
        (self.config.topologies / "balances.py").write_text(text)

    def produce(
        self,
        rows: Sequence[tuple[str, int] | bytes],
        *,
        partition: int | None = None,
        start_ms: int = 1_700_000_000_000,
        step_ms: int = 1,
    ) -> None:
        """Records with growing times; bytes are sent as they are."""
        # Sent by the flush, those of a partition in one batch: a stream then sees all of them or none.
        settings = {"partitioner": "murmur2_random", "linger.ms": 60_000}
        producer = Producer({**plain_settings(self.config.bootstrap_servers), **settings})
        for index, row in enumerate(rows):
            value = row if isinstance(row, bytes) else orjson.dumps({"id": row[0], "amount": row[1]})
            key = b"bad" if isinstance(row, bytes) else row[0].encode()
            at = -1 if partition is None else partition  # then the key decides
            producer.produce(self.topic, key=key, value=value, timestamp=start_ms + step_ms * index, partition=at)
        assert producer.flush(30) == 0

    def start(self) -> int:
        """Plan the first epoch and run its driver until it is live."""
        epoch = control.start(self.config, self.name, actor="test", reason="start")
        self.run(epoch)
        return epoch

    def start_live(self, *crash: str) -> int:
        """Start the first epoch and wait until it is live and has read everything; its driver runs on.

        Args:
            crash: where the driver is to die or freeze, for labs whose drivers are processes.
        """
        epoch = self.start(*crash)
        self.await_live(epoch)
        self.settle(epoch)
        return epoch

    def plan_replay(self, start: Start | None = None, **request: Any) -> int:
        """Plan and record a replay; its driver is not run yet."""
        replay = ReplayRequest(topology=self.name, start=start or ToEarliest(), reason="test", actor="test", **request)
        return self.record_replay(control.plan(self.config, replay))

    def record_replay(self, plan: ReplayPlan) -> int:
        """Put a plan on record."""
        return control.replay(self.config, plan, actor="test", reason="test")

    def plan(self, epoch: int) -> ReplayPlan:
        """The plan of an epoch, as it is on record."""
        plan: ReplayPlan = self.record().epoch(epoch).plan
        return plan

    def run(self, epoch: int) -> Driver:
        """Run an epoch's driver in a thread, with the code that the epoch recorded, as the launcher does."""
        root = extract(self.config.lake, self.record().epoch(epoch).code, self.config.home)
        config = replace(self.config, topologies=root / "topologies")
        driver = self.driver_type(config, self.name, epoch, session=self.session)
        errors: list[BaseException] = []

        def life() -> None:
            try:
                driver.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=life, name=f"driver-{self.name}-{epoch}", daemon=True)
        thread.start()
        self.running[epoch] = (driver, thread, errors)
        return driver

    def stop(self, epoch: int) -> list[BaseException]:
        """Stop a driver at its slice boundary; what it raised."""
        driver, thread, errors = self.running.pop(epoch)
        driver.stop("test")
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
        return errors

    def delete_before(self, offsets: Mapping[int, int], topic: str = "") -> None:
        """Let Kafka forget the first records of partitions, as its retention does; -1 for all of them."""
        admin, name = AdminClient(plain_settings(self.config.bootstrap_servers)), topic or self.topic
        bounds = [TopicPartition(name, partition, offset) for partition, offset in offsets.items()]
        low = {at.partition: answer.result(30).low_watermark for at, answer in admin.delete_records(bounds).items()}
        self.wait(
            lambda: all(self.kafka.low_watermarks([name])[name, p] == offset for p, offset in low.items()),
            "records are removed",
        )

    def archive(self, **settings: Any) -> int:
        """Archive the topic up to its stable end; how many records the archive holds then."""
        config = replace(self.config, **settings)
        with Archiver(config, self.topic, session=self.session) as archiver:
            run_archivers([archiver])
        return archive_status(config, self.topic).records

    def close(self) -> None:
        """Stop all drivers: all are asked before one is waited for, and one that lives on does not keep the others."""
        stopping = [self.running.pop(epoch) for epoch in list(self.running)]
        for driver, _, _ in stopping:
            driver.stop("test")
        deadline = time.monotonic() + DEADLINE_SECONDS
        for _, thread, _ in stopping:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not [thread.name for _, thread, _ in stopping if thread.is_alive()]

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition holds; a driver that raised fails the test."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        # Each look at the record and the ledgers reads what is new in them: a driver of this process is not held up.
        self._looking.at = {}
        try:
            while time.monotonic() < deadline:
                value = condition()
                if value:
                    return value
                for epoch, (_, _, errors) in self.running.items():
                    unmeant = [error for error in errors if not isinstance(error, self.meant)]
                    assert not unmeant, f"driver of epoch {epoch} raised {unmeant[0]!r}"
                time.sleep(0.05)
        finally:
            self._looking.at = None
        raise AssertionError(f"{what} did not happen within {DEADLINE_SECONDS} s")

    def _reader(self, kind: Callable[[str], Reader], path: str) -> Reader:
        """What reads a log: within a wait the same one at every look."""
        readers: dict[Any, Any] | None = getattr(self._looking, "at", None)
        if readers is None:
            return kind(path)
        if (kind, path) not in readers:
            readers[kind, path] = kind(path)
        return cast(Reader, readers[kind, path])

    def settle(self, epoch: int, topics: Sequence[str] = ()) -> None:
        """Wait until an epoch has committed everything that is in its topic, or in these; of a chain, in its roots."""

        def is_done() -> bool:
            state, ends = self.ledger(epoch).state(), self.kafka.stable_offsets(topics or [self.topic])
            return isinstance(state, BegunState) and state.standing == state.standing.merge(ends)

        self.wait(is_done, f"epoch {epoch} reads everything")

    def await_stage(self, epoch: int, stage: Stage) -> None:
        """Wait until an epoch reached a stage; it may be past it."""
        reached = STAGES[STAGES.index(stage) :]
        self.wait(lambda: self.record().epoch(epoch).stage in reached, f"epoch {epoch} is {stage}")

    def await_live(self, epoch: int) -> None:
        """Wait until an epoch is live and sends."""
        self.wait(
            lambda: self.record().live == epoch and not self.ledger(epoch).state().is_yielded, f"epoch {epoch} is live"
        )

    def go_back_to(self, epoch: int) -> Offsets:
        """Give readers an earlier epoch again; where it went live."""
        control.rollback(self.config, self.name, to=epoch, actor="test", reason="back")
        self.run(epoch)
        self.wait(lambda: control.progress(self.config, self.name, epoch).is_caught_up, "it may take over")
        control.cut_over(self.config, self.name, epoch, actor="test", reason="back")
        self.await_live(epoch)
        return Offsets.from_json(self.record().moves[-1].detail["at"])

    def output_of(self, *words: str) -> str:
        """What a command prints. An error is raised, and so is an exit code other than 0."""
        result = CliRunner().invoke(app, list(words), env=self.config.to_env())
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    def record(self) -> Any:
        """What is on record of the topology."""
        return self._reader(Epochs, self.config.lake).record(self.name)

    def ledger(self, epoch: int) -> Ledger:
        """An epoch's ledger."""
        return self._reader(Ledger, self.paths(epoch).ledger)

    def paths(self, epoch: int) -> EpochPaths:
        """Where an epoch is."""
        return EpochPaths(lake=self.config.lake, topology=self.name, epoch=epoch)

    def sent(self) -> list[tuple[str, int]]:
        """What an independent consumer reads of the output topic, committed records only."""
        return [(row["id"], row["counted"]) for row in map(orjson.loads, self.sent_values())]

    def sent_values(self) -> Iterator[bytes]:
        """Values of the output topic, as an independent consumer reads them."""
        return self.values_of(f"{self.topic}.moves")

    def values_of(self, topic: str) -> Iterator[bytes]:
        """Values of any topic, as an independent consumer reads them."""
        return read_all(self.config.bootstrap_servers, topic)

    def messages_by_turns(self, output: str) -> Iterator[Message]:
        """What a consumer reads of a versioned topic that changes over as readers of tables do."""
        from kappa import serving

        for turn in serving.turns(self.config, self.name, output):
            assert turn.topic is not None
            assert turn.start is not None
            for message in read_messages(self.config.bootstrap_servers, turn.topic):
                partition, offset = place(message)
                start = turn.start.get(turn.topic, partition) or 0
                end = None if turn.end is None else turn.end.get(turn.topic, partition)
                if offset >= start and (end is None or offset < end):
                    yield message

    def balances(self, epoch: int | None = None) -> dict[str, int]:
        """The served table."""
        from kappa import serving

        return {
            row["id"]: row["total"]
            for row in serving.snapshot(self.config, self.name, epoch=epoch).rows("balances").to_pylist()
        }

    def hold(self, *, totals: Mapping[str, int], moves: Mapping[Place, Move] | None, sent: Iterable[Move]) -> None:
        """Hold what the live epoch serves, sent and has on record against what somebody else computed.

        Args:
            totals: account -> balance, of the served table and of the changelog.
            moves: rows of the append output, by place; None where nobody can tell, since it was seeded.
            sent: records of the output topic, each once.
        """
        live = self.record().live
        paths, state = self.paths(live), self.ledger(live).begun()
        assert self.balances() == totals
        if moves is not None:
            rows = queries.query(paths.output("moves"), None).to_pylist()
            by_place = {(row["_partition"], row["_offset"]): (row["id"], row["counted"], row["total"]) for row in rows}
            assert len(by_place) == len(rows)
            assert by_place == moves
        seen = [(row["id"], row["counted"], row["total"]) for row in map(orjson.loads, self.sent_values())]
        assert sorted(seen) == sorted(sent)
        assert self.folded(live) == totals
        commits = state.recent  # the certificate tells of those that are rolled up
        assert all(joins(a.ranges, b.ranges) for a, b in itertools.pairwise(commits))
        assert self.kafka.group_offsets(paths.name) == state.position
        certificate = control.certify(self.config, self.name)
        assert certificate.complete, certificate.problems

    def dead_letters(self, epoch: int) -> list[Place]:
        """Where the dead letters of an epoch come from, sorted."""
        rows = queries.query(self.paths(epoch).dead_letters, None).to_pylist()
        return sorted((row["partition"], row["offset"]) for row in rows)

    def folded(self, epoch: int) -> dict[str, int]:
        """The changelog, folded by a plain consumer."""
        totals: dict[str, int] = {}
        for message in read_messages(self.config.bootstrap_servers, self.paths(epoch).changelog("balances")):
            account, value = orjson.loads(key(message))["id"], message.value()
            if value is None:
                totals.pop(account, None)
            else:
                totals[account] = orjson.loads(value)["total"]
        return totals


def place(message: Message) -> Place:
    """Partition and offset of a record."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset


def key(message: Message) -> bytes:
    """A record's key, which it has."""
    content = message.key()
    assert content is not None
    return content


def content(message: Message) -> bytes:
    """A record's value, which it has."""
    value = message.value()
    assert value is not None
    return value


def plain_settings(bootstrap_servers: str) -> dict[str, Any]:
    """Settings of a client that is none of Kappa's; where the broker asks for a login, by the same file."""
    return {"bootstrap.servers": bootstrap_servers, **for_librdkafka(bootstrap_servers)}


def read_all(bootstrap_servers: str, topic: str) -> Iterator[bytes]:
    """Values of all committed records of a topic, by a plain consumer."""
    for message in read_messages(bootstrap_servers, topic):
        if message.value() is not None:
            yield content(message)


def read_messages(bootstrap_servers: str, topic: str) -> Iterator[Message]:
    """All committed records of a topic, by a plain consumer."""
    consumer = Consumer(
        {
            **plain_settings(bootstrap_servers),
            "group.id": "witness",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    metadata = consumer.list_topics(topic, timeout=10).topics[topic]
    if metadata.error is not None:
        consumer.close()
        return
    consumer.assign([TopicPartition(topic, partition, 0) for partition in metadata.partitions])
    left = set(metadata.partitions)
    while left:
        message = consumer.poll(10)
        assert message is not None, f"{topic} did not end"
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:  # others, as of a group without rights, end no partition
            left.discard(message.partition())
    consumer.close()


@overload
def lab(
    base: Path, kafka: Broker, session: SparkSession, topic: str, *, kind: type[AnyLab], **settings: Any
) -> AbstractContextManager[AnyLab]: ...


@overload
def lab(
    base: Path, kafka: Broker, session: SparkSession, topic: str, **settings: Any
) -> AbstractContextManager[Lab]: ...


@contextmanager
def lab(
    base: Path, kafka: Broker, session: SparkSession, topic: str, *, kind: type[Any] = Lab, **settings: Any
) -> Iterator[Any]:
    """A lab, or one of a kind that can do more, that is closed at the end."""
    topologies = base / "topologies"
    topologies.mkdir(parents=True)
    config = Config(
        bootstrap_servers=kafka.bootstrap_servers,
        topologies=topologies,
        home=base / "home",
        cache=Path.home() / ".cache" / "kappa",
        launcher="elsewhere",
        trigger_seconds=0.2,
        **{"lake": str(base / "lake"), "delete_after_hours": 0.0, **settings},
    )
    new_lab = kind(config=config, kafka=kafka, topic=topic, name=f"lab.{topic.replace('.', '_')}", session=session)
    try:
        with declared_details():
            yield new_lab
    finally:
        new_lab.close()
        shutil.rmtree(base, ignore_errors=True)
