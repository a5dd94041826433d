"""What an epoch's driver works with: the record, the ledger, Kafka, Spark, and what all its parts do with them."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog

from kappa import clock
from kappa.archive.reader import Archives
from kappa.config import Config
from kappa.driver.processes import process
from kappa.driver.upstreams import Upstreams
from kappa.errors import DataLossError, KappaError, StaleWriterError, Transient, first_line
from kappa.faults import crash_point
from kappa.kafka import markers
from kappa.kafka.broker import Broker
from kappa.kafka.producer import Sender
from kappa.kafka.refusals import least_batch
from kappa.kafka.registry import Registry
from kappa.monitoring.exporter import Exporter
from kappa.monitoring.notices import Notices
from kappa.names import EpochPaths
from kappa.offsets.coverage import common, without
from kappa.offsets.cuts import TimeIndex
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.presence import heartbeat
from kappa.presence.watchdog import Line, Watchdog, stacks
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event, EventKind
from kappa.record.ledger import Ledger
from kappa.slices.input.cuts import time_index
from kappa.slices.input.reader_schemas import Schemas
from kappa.slices.merging import merge_between, unmerged_since
from kappa.slices.places import check_topics
from kappa.slices.run import Engines, EpochRun
from kappa.slices.topics import ownership, turns
from kappa.slices.topics.registered_topics import register
from kappa.spark.session import StartingSession, driver_name, is_alive
from kappa.topology import registry
from kappa.verify import attestation
from kappa.verify.second_run import SecondRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Pause between two looks at the record while there is nothing to do.
IDLE_SECONDS = 0.2

log = structlog.get_logger("kappa.driver.driver")


class Context:
    """An epoch, as its driver has it at hand. It keeps no state of the epoch: that is the record's and the ledger's.

    Args:
        code: content hash of the code that runs; None for that of the epoch's plan.
        session: Spark; None starts one when it is needed, and stops it at the end.
    """

    #: What is done at the moment, for people.
    doing = ""
    #: Why the driver is to end at the next slice boundary; None while it is not.
    stop_reason: str | None = None
    #: Spark that is starting already, for this driver alone.
    starting: StartingSession | None = None
    _followed: Ledger | None = None
    _asked_for_live = 0.0
    _owns_names = False
    _merge_looked = (-1, 0.0)

    def __init__(
        self, config: Config, topology: str, epoch: int, *, code: str | None = None, session: SparkSession | None = None
    ) -> None:
        self.config = config
        self.topology = registry.load(config.topologies, topology)
        self.paths = EpochPaths(lake=config.lake, topology=topology, epoch=epoch)
        self.writer = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.epochs = Epochs(config.lake)
        self.ledger = Ledger(self.paths.ledger)
        self.plan = self.record().epoch(epoch).plan
        self.upstreams = Upstreams(lake=config.lake, bound=self.plan.bound)
        self.code = code or self.record().epoch(epoch).code
        self.beat: heartbeat.Beating
        self.watchdog = Watchdog(config.slow_seconds, 60 * config.stuck_minutes)
        self.exporter = Exporter(config, self.paths)
        self.notices = Notices(config, self.paths)
        self._given_session = session
        self.log = log.bind(topology=topology, epoch=epoch, writer=self.writer)

    def record(self) -> TopologyRecord:
        """The topology's record, read now."""
        return self.epochs.record(self.paths.topology)

    @cached_property
    def session(self) -> Any:
        """Spark, started when it is first needed."""
        if self._given_session is not None:
            return self._given_session
        from kappa.spark.session import build_session

        before = self.doing
        self.say("starting Spark")
        name = driver_name(self.topology.name, self.paths.epoch)
        session = build_session(self.config, name) if self.starting is None else self.starting.session()
        self.say(before)
        return session

    @cached_property
    def broker(self) -> Broker:
        """Kafka's administration."""
        return Broker(self.config.bootstrap_servers, topic_settings=self.config.topic_settings)

    @cached_property
    def slice_run(self) -> EpochRun:
        """The epoch as the slice protocol needs it."""
        config, plan = self.config, self.plan
        engines = Engines(
            session=self.session,
            broker=self.broker,
            bootstrap_servers=config.bootstrap_servers,
            begin=self.begin,
            arrow_rows=config.arrow_rows,
            small_slice=config.small_slice,
            mask_key=config.mask_key,
            schemas=Schemas(config.lake, Registry(config.schema_registry)),
            archives=Archives(config.lake),
            merge_seconds=config.merge_seconds,
            savepoint_grain=timedelta(minutes=config.savepoint_minutes),
        )
        return EpochRun(
            topology=self.topology,
            paths=self.paths,
            writer=self.writer,
            code=self.code,
            ledger=self.ledger,
            engines=engines,
            topic_ids=dict(plan.topic_ids),
            bound=self.upstreams.topics,
            roots=plan.roots.get("start", Offsets()),
            archived=plan.archived,
            lake_id=self.epochs.lake_id(),
        )

    @cached_property
    def second_run(self) -> SecondRun:
        """The range of the plan, computed again."""
        return SecondRun(self.slice_run, self.plan)

    def open_sender(self, timeout: timedelta | None = None) -> None:
        """Fence earlier senders of this epoch, then read the sent records, in this order.

        Raises:
            DisagreementError: the broker and the ledger disagree about the slices.
            RefusedError: the epoch's names on the broker belong to another lake.
            SupersededError: the epoch was rebuilt in another lake.
        """
        run = self.slice_run
        if run.sent.sender is not None:
            return
        self.ledger.check_claim(self.writer)
        self._check_names()
        register(run, self.topology.versioned_topics)
        limit: dict[str, Any] = {} if timeout is None else {"transaction_timeout": timeout}
        own = {topic.name: self.paths.versioned(topic.name) for topic in self.topology.versioned_topics}
        batch = least_batch(self.broker, [own.get(topic.name, topic.name) for topic in self.topology.topics])
        sender = Sender(self.config.bootstrap_servers, self.paths.name, self.paths.name, batch_bytes=batch, **limit)
        sender.init()
        try:
            marker = markers.read(self.broker, self.paths)
            turns.check_not_superseded(marker, self.broker, self.paths)
            attestation.check(self.paths, marker, self.ledger.state(), is_settled=True)
        except BaseException:
            sender.close()
            raise
        run.sent.turn = marker.turn if marker else 0
        run.sent.seq = marker.seq if marker else -1
        run.sent.plan = marker.plan if marker else None
        run.sent.handover = marker.reconciled if marker else None
        run.sent.sender = sender

    def attest(self, record: TopologyRecord) -> None:
        """Check the lake against the broker before anything is done, also by a driver that may have to yield at once.

        Nothing is fenced: the writer that the broker knows may be the right one.

        Raises:
            DisagreementError: the lake is older than the broker, or a part of it older than another.
            RefusedError: the epoch's names on the broker belong to another lake.
            SupersededError: the epoch was rebuilt in another lake.
        """
        self.ledger.check_claim(self.writer)
        self._check_names()  # another lake's markers tell nothing of this one
        marker = markers.read(self.broker, self.paths)
        turns.check_not_superseded(marker, self.broker, self.paths)
        state = self.ledger.state()
        attestation.check(self.paths, marker, state, is_settled=False)
        attestation.check_tables(self.paths, state)
        if record.live == self.paths.epoch:
            attestation.check_others(self.config, self.broker, record, state)

    def _check_names(self) -> None:
        """Before a transactional id is initialised, which fences another lake's driver.

        Read once: no claim changes.
        """
        if not self._owns_names:
            ownership.check(self.broker, self.paths, self.epochs.lake_id())
            self._owns_names = True

    def idle(self, seconds: float = IDLE_SECONDS) -> None:
        """Wait for what comes next, and meanwhile merge what has waited long enough. Between two slices only."""
        self.watchdog.begin("waiting for what comes next")
        self.merge_when_due()
        time.sleep(seconds)

    def begin(self, line: str) -> None:
        """A line of the slice protocol begins."""
        self.watchdog.begin(line)
        self.exporter.begin(line)

    def alarm(self, line: Line) -> None:
        """Put into the log what every thread is at: a line does not end."""
        self.log.error(line.level, line=line.name, seconds=round(line.seconds, 1), stacks=stacks())
        self.notices.hangs(line, self.beat.seq, clock.now().isoformat())

    def merge_when_due(self) -> None:
        """Merge changes that wait for longer than they may. Between two slices only."""
        if self.is_merge_due():
            self.merge()

    def is_merge_due(self) -> bool:
        """Whether changes have waited too long, by the last commit; one that was looked at is left for a while."""
        committed = self.ledger.state().committed
        seq, looked = self._merge_looked
        if committed is None or (
            committed.seq == seq and time.monotonic() - looked < max(1.0, self.config.merge_seconds)
        ):
            return False
        age = timedelta(seconds=self.config.merge_seconds)
        return any(clock.now() - at >= age for at in unmerged_since(committed))

    def merge(self, *, is_asked: bool = False) -> None:
        """Bring changes into the tables without a slice: those that waited long enough, or all of them on request.

        Raises:
            StaleWriterError: another driver claimed the epoch.
        """
        state = self.ledger.state() if "slice_run" in self.__dict__ else None
        if state is None or not state.commits or self.is_spark_dead():
            return
        if self.record().epoch(self.paths.epoch).stage.is_ended:
            return
        self._merge_looked = (state.commits[-1].seq, time.monotonic())
        try:
            if merge_between(self.slice_run, is_asked=is_asked):
                self.log.info("merged", seq=state.commits[-1].seq)
        except StaleWriterError:
            raise
        except Exception as error:  # every commit reads as before; the next slice, or the next driver, does it
            headline = first_line(error) or type(error).__name__
            self.log.error("not merged", error=f"{type(error).__name__}: {headline}", seq=state.seq)

    def spend_sender(self) -> None:
        """Close the sender; the next one fences it. Does nothing when there is none."""
        run = self.__dict__.get("slice_run")
        if run is not None and run.sent.sender is not None:
            run.sent.sender.close()
            run.sent.sender = None

    def close(self) -> None:
        """Close everything; an error in one part does not keep the others open."""
        with ExitStack() as ending:  # the last one first
            if "broker" in self.__dict__:
                ending.callback(self.broker.close)
            if "session" in self.__dict__ and self._given_session is None and not self.is_spark_dead():
                ending.callback(self.session.stop)
            ahead = self.slice_run.take_ahead() if "slice_run" in self.__dict__ else None
            if ahead is not None and not self.is_spark_dead():
                ending.callback(ahead.close)
            ending.callback(self.spend_sender)

    def has_claim(self) -> bool:
        """Whether no other driver claimed the epoch since."""
        return Ledger(self.paths.ledger).has_claim(self.writer)

    def is_spark_dead(self) -> bool:
        """Whether there was a session and its JVM is gone."""
        return "session" in self.__dict__ and not is_alive(self.session)

    def is_kafka_there(self) -> bool:
        """Whether a broker answers."""
        try:
            self.broker.topic_ids(sorted(self.plan.topic_ids))
        except Transient:
            return False
        except KappaError:
            return True
        return True

    def live_paths(self, record: TopologyRecord) -> EpochPaths:
        """Where the live epoch is."""
        return EpochPaths(lake=self.paths.lake, topology=self.paths.topology, epoch=record.live_epoch())

    def live_ledger(self, record: TopologyRecord) -> Ledger:
        """The ledger of the live epoch."""
        path = self.live_paths(record).ledger
        if self._followed is None or self._followed.path != path:
            self._followed = Ledger(path)
        return self._followed

    def lag_to_live(self, record: TopologyRecord) -> int:
        """Offsets that the live epoch has read and this one has not."""
        if record.live is None:
            return 0
        position, live = self.ledger.begun().standing, self.live_ledger(record).begun().standing
        return position.beside(live).count_to(live.beside(position))

    def is_chained(self, record: TopologyRecord) -> bool:
        """Whether this epoch or the live one reads versioned topics of others."""
        return bool(self.plan.bound or (record.live is not None and record.epoch(record.live).bound))

    def start_successor(self) -> None:
        """Start the driver of the code that runs the epoch now; where this fails, the epoch's watcher does it."""
        try:
            process.ensure_driver(self.config, self.topology.name, self.paths.epoch)
        except KappaError as error:
            self.log.error("successor not started", error=str(error))

    def ensure_live_driver(self, epoch: int) -> None:
        """Start the live epoch's driver again if it died: it must finish what it planned, and yield."""
        if time.monotonic() - self._asked_for_live < self.config.beat_seconds:
            return
        self._asked_for_live = time.monotonic()
        process.ensure_driver(self.config, self.topology.name, epoch)

    def driver_state(self, topology: str, epoch: int) -> str:
        """State of the driver of some epoch."""
        return process.driver_status(self.config, topology, epoch).state

    def check_low(self, ranges: Sequence[OffsetRange]) -> None:
        """Raise when records that a slice is to read are gone, or their topic is.

        Raises:
            DataLossError: retention removed some, or the topic was recreated.
        """
        check_topics(self.broker, self.plan.topic_ids)
        low = self.broker.low_watermarks(sorted(self.plan.topic_ids))
        for item in without(ranges, common(ranges, self.plan.archived)):
            first = low.get(item.topic, item.partition) or 0
            if item.start < first and not item.is_empty:
                raise DataLossError(
                    f"{item.topic}[{item.partition}] starts at offset {first}, the slice at {item.start}: retention "
                    f"removed {first - item.start} offsets.",
                    topic=item.topic,
                    partition=item.partition,
                    low=first,
                    start=item.start,
                )

    def stable(self, position: Offsets) -> Offsets:
        """Where each partition of the sources ends now, for readers of committed records."""
        ends = self.broker.stable_offsets(sorted(self.plan.topic_ids))
        return position.merge(ends)

    def time_index(self) -> TimeIndex:
        """Answers where the records of a time begin, in the log and in the archives of the plan."""
        archives = [self.slice_run.archive(topic) for topic in sorted({item.topic for item in self.plan.archived})]
        return time_index(self.broker, self.plan.topic_ids, archives)

    def partitions(self) -> int:
        """Partitions of the widest source."""
        return max(self.broker.partitions(topic) for topic in self.plan.topic_ids)

    def event(self, event: EventKind, **detail: Any) -> None:
        """Put on record that the epoch came to a stage; nothing when it was aborted meanwhile."""

        def decide(now: Now) -> Sequence[Event]:
            if now.record.epoch(self.paths.epoch).stage.is_ended:
                return []
            return [now.event(event, self.paths.epoch, actor="driver", detail=detail)]

        self.ledger.check_claim(self.writer)
        self.epochs.change(self.paths.topology, decide)
        self.log.info(event, **{k: v for k, v in detail.items() if k != "report"})
        crash_point(event)

    def say(self, message: str) -> None:
        """Show people the current activity."""
        self.watchdog.begin(message, is_long=True)
        if message != self.doing:
            self.doing = message
            self.beat.say(message=message)
            self.log.info("now", doing=message)
