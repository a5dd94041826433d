"""The engines of a driver: Spark, Kafka and the sender, each opened on first use."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kappa.archive.reader import Archives
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.voice import Voice
from kappa.errors import KappaError, Transient
from kappa.kafka import markers, topic_settings
from kappa.kafka.broker import Broker
from kappa.kafka.producer import Sender
from kappa.kafka.refusals import least_batch
from kappa.kafka.registry import Registry
from kappa.lazy import Lazy
from kappa.offsets.cuts import TimeIndex
from kappa.offsets.vector import Offsets
from kappa.slices.input.cuts import time_index
from kappa.slices.input.reader_schemas import Schemas
from kappa.slices.run import Engines, EpochRun
from kappa.slices.topics import turns
from kappa.slices.topics.registered_topics import register
from kappa.spark.session import StartingSession, driver_name, is_answering, merge_bytes
from kappa.verify import attestation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LazyEngines:
    """Spark, Kafka and the sender of an epoch's driver.

    Args:
        epoch: the epoch.
        voice: says that Spark starts.
        session: Spark; None starts one when it is needed, and stops it at the end.

    Attributes:
        starting: Spark that is starting already, for this driver alone.
    """

    def __init__(self, epoch: DrivenEpoch, voice: Voice, *, session: SparkSession | None = None) -> None:
        self.starting: StartingSession | None = None
        self._epoch = epoch
        self._voice = voice
        self._given_session = session
        self._session = Lazy(self._start)
        self._broker = Lazy(self._connect)
        self._run = Lazy(self._hold)

    @property
    def session(self) -> SparkSession:
        """Spark, started when it is first needed."""
        return self._session.get()

    @property
    def broker(self) -> Broker:
        """Kafka's administration."""
        return self._broker.get()

    @property
    def slice_run(self) -> EpochRun:
        """The epoch as the slice protocol needs it."""
        return self._run.get()

    @property
    def opened_session(self) -> SparkSession | None:
        """Spark; None until it was needed."""
        return self._session.made

    @property
    def opened_broker(self) -> Broker | None:
        """Kafka's administration; None until it was needed."""
        return self._broker.made

    @property
    def opened_run(self) -> EpochRun | None:
        """The epoch as the slice protocol needs it; None until it did."""
        return self._run.made

    def _start(self) -> SparkSession:
        from kappa.spark.session import mute

        session = self._started() if self._given_session is None else self._given_session
        if self._epoch.topology.is_sensitive:
            mute(session)
        return session

    def _started(self) -> SparkSession:
        from kappa.spark.session import build_session

        voice, epoch = self._voice, self._epoch
        before = voice.doing
        voice.say("starting Spark")
        name = driver_name(epoch.topology.name, epoch.paths.epoch)
        session = build_session(epoch.config, name) if self.starting is None else self.starting.session()
        voice.say(before)
        return session

    def _connect(self) -> Broker:
        config = self._epoch.config
        return Broker(config.bootstrap_servers, topic_settings=config.topic_settings)

    def _hold(self) -> EpochRun:
        epoch, config, plan = self._epoch, self._epoch.config, self._epoch.plan
        engines = Engines(
            session=self.session,
            broker=self.broker,
            bootstrap_servers=config.bootstrap_servers,
            begin=self._voice.begin,
            arrow_rows=config.arrow_rows,
            merge_bytes=merge_bytes(config),
            small_slice=config.small_slice,
            mask_key=config.mask_key,
            schemas=Schemas(config.lake, Registry(config.schema_registry)),
            archives=Archives(config.lake),
            merge_seconds=config.merge_seconds,
            savepoint_grain=timedelta(minutes=config.savepoint_minutes),
            scratch=str(config.home / "scratch"),
        )
        return EpochRun(
            topology=epoch.topology,
            paths=epoch.paths,
            writer=epoch.writer,
            code=epoch.code,
            ledger=epoch.ledger,
            engines=engines,
            topic_ids=dict(plan.topic_ids),
            bound=epoch.upstreams.topics,
            roots=plan.roots.get("start", Offsets()),
            archived=plan.archived,
            lake_id=epoch.epochs.lake_id(),
        )

    def open_sender(self, timeout: timedelta | None = None) -> None:
        """Fence earlier senders of this epoch, then read the sent records, in this order.

        Raises:
            DisagreementError: the broker and the ledger disagree about the slices.
            RefusedError: the epoch's names on the broker belong to another lake.
            SupersededError: the epoch was rebuilt in another lake.
        """
        run, epoch, broker = self.slice_run, self._epoch, self.broker
        if run.sent.sender is not None:
            return
        epoch.ledger.check_claim(epoch.writer)
        epoch.check_names(broker)
        topology, name = epoch.topology, epoch.paths.name
        register(run, topology.versioned_topics)
        limit: dict[str, Any] = {} if timeout is None else {"transaction_timeout": timeout}
        batch = least_batch(broker, [one.name for one in topic_settings.of_epoch(topology, epoch.paths, 1)])
        sender = Sender(epoch.config.bootstrap_servers, name, name, batch_bytes=batch, **limit)
        sender.init()
        try:
            marker = markers.read(broker, epoch.paths)
            turns.check_not_superseded(marker, broker, epoch.paths)
            attestation.check(epoch.paths, marker, epoch.ledger.state(), is_settled=True)
        except BaseException:
            sender.close()
            raise
        run.sent.turn = marker.turn if marker else 0
        run.sent.seq = marker.seq if marker else -1
        run.sent.plan = marker.plan if marker else None
        run.sent.handover = marker.reconciled if marker else None
        run.sent.sender = sender

    def spend_sender(self) -> None:
        """Close the sender; the next one fences it. Does nothing when there is none."""
        run = self.opened_run
        if run is not None and run.sent.sender is not None:
            run.sent.sender.close()
            run.sent.sender = None

    def time_index(self) -> TimeIndex:
        """Answers where the records of a time begin, in the log and in the archives of the plan."""
        plan = self._epoch.plan
        archives = [self.slice_run.archive(topic) for topic in sorted({item.topic for item in plan.archived})]
        return time_index(self.broker, plan.topic_ids, archives)

    def is_spark_dead(self) -> bool:
        """Whether there was a session, and it can compute no more: no other one is started in this process."""
        return self.opened_session is not None and not is_answering(self.opened_session)

    def is_kafka_there(self) -> bool:
        """Whether the partitions of the sources answer a new client: a connected one may have a token that new ones
        cannot get.
        """
        try:
            with self._connect() as broker:
                broker.stable_offsets(self._epoch.plan.topic_ids)
        except Transient:
            return False
        except KappaError:
            return True
        return True

    def close(self) -> None:
        """Close everything; an error in one part does not keep the others open."""
        broker, session = self.opened_broker, self.opened_session
        with ExitStack() as ending:  # the last one first
            if broker is not None:
                ending.callback(broker.close)
            if session is not None and self._given_session is None and not self.is_spark_dead():
                ending.callback(session.stop)
            ending.callback(self.spend_sender)
