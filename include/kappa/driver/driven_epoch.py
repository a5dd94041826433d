"""The epoch that a driver runs: where it is, what is on record of it, and what is checked of it on the broker.

Of all drivers that ever come up for an epoch, the last one to claim it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import structlog

from kappa.config import Config
from kappa.delta.published import PublishedTable
from kappa.driver.processes import launches
from kappa.driver.upstreams import Upstreams
from kappa.environments import files, interpreters
from kappa.errors import ConflictError, DataLossError, DriverAlreadyRunningError, IllegalTransitionError
from kappa.faults import crash_point
from kappa.kafka import markers
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.coverage import common, without
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.presence import heartbeat, liveness
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Now, epochs_of
from kappa.record.events import Event, EventKind
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.replay.chains import is_reached
from kappa.slices.places import check_topics
from kappa.slices.topics import ownership, turns
from kappa.slices.writing import check_mask
from kappa.store.stores import store_of
from kappa.topology import registry
from kappa.topology.earlier_code import earlier_code
from kappa.verify import attestation
from kappa.verify.certificate import sent_in_turns

log = structlog.get_logger("kappa.driver.driver")


class DrivenEpoch:
    """An epoch, as its driver has it at hand. It keeps no state of the epoch: that is the record's and the ledger's.

    Args:
        code: content hash of the code that runs; None for that of the epoch's plan.

    Attributes:
        topology: the code.
        paths: where the epoch is.
        writer: the driver's claim.
        epochs: the record.
        ledger: the epoch's ledger.
        plan: what the epoch was planned to be.
        upstreams: the epochs that it reads.
        code: content hash of the code.
        log: with topology, epoch and writer.
    """

    def __init__(self, config: Config, topology: str, epoch: int, *, code: str | None = None) -> None:
        self.config = config
        with earlier_code():
            self.topology = registry.load(config.topologies, topology)
        self.paths = EpochPaths(lake=config.lake, topology=topology, epoch=epoch)
        self.writer = liveness.claim_name()
        self.epochs = epochs_of(config.lake)
        self.ledger = Ledger(self.paths.ledger)
        self.plan = self.record().epoch(epoch).plan
        self.upstreams = Upstreams(lake=config.lake, bound=self.plan.bound)
        self.code = code or self.record().epoch(epoch).code
        self.log = log.bind(topology=topology, epoch=epoch, writer=self.writer)
        self._followed: Ledger | None = None
        self._ledgers: dict[str, Ledger] = {}
        self._published: dict[str, PublishedTable] = {}
        self._owns_names = False

    def record(self) -> TopologyRecord:
        """The topology's record, read now."""
        return self.epochs.record(self.paths.topology)

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

    def has_claim(self) -> bool:
        """Whether no other driver claimed the epoch since."""
        return Ledger(self.paths.ledger).has_claim(self.writer)

    def published(self, place: str) -> PublishedTable:
        """The published table of a place ``tables/<name>`` or ``outputs/<name>``."""
        if place not in self._published:
            path = self.paths.published(place.partition("/")[2])
            self._published[place] = PublishedTable(path, timedelta(hours=self.config.published_hours))
        return self._published[place]

    # Beside the live epoch

    def live_paths(self, record: TopologyRecord) -> EpochPaths:
        """Where the live epoch is."""
        return EpochPaths(lake=self.paths.lake, topology=self.paths.topology, epoch=record.live_epoch())

    def live_ledger(self, record: TopologyRecord) -> Ledger:
        """The ledger of the live epoch."""
        path = self.live_paths(record).ledger
        if self._followed is None or self._followed.path != path:
            self._followed = Ledger(path)
        return self._followed

    def lag_to_live(self, broker: Broker, record: TopologyRecord) -> int:
        """Offsets that the live epoch has read and this one has not; and those of topics that this one reads alone."""
        if record.live is None:
            return 0
        state, live = self.ledger.begun(), self.live_ledger(record).begun().standing
        apart = self.ends_apart(broker, state, live)
        position = state.standing
        lag = position.beside(live).count_to(live.beside(position))
        return lag + state.position.only(apart.topics).count_to(apart)

    def ends_apart(self, broker: Broker, state: BegunState, live: Offsets) -> Offsets:
        """Where those topics end now that this epoch reads, and that one that stands at ``live`` does not.

        There is no commit in them to follow. A versioned topic ends where its epoch has committed, and is one of them
        if no root topic of it is read.
        """
        position = state.position
        own = sorted(set(position.topics) - set(live.topics) - {one.topic for one in self.plan.bound.values()})
        ends = position.only(own).merge(broker.stable_offsets(own)) if own else Offsets()
        for sent in self.upstreams.ahead(state.standing).values():
            if sent and not set(sent[-1].standing.topics) & set(live.topics):
                ends = ends.merge(sent[-1].ends)
        return ends

    def has_read_what_was_sent(self, record: TopologyRecord) -> bool:
        """Whether no epoch has sent beyond where this one stands; but for the live one, which sends on."""
        return is_reached(sent_in_turns(self.config.lake, record, self._ledgers), self.ledger.begun().standing)

    def is_chained(self, record: TopologyRecord) -> bool:
        """Whether this epoch or the live one reads versioned topics of others."""
        return bool(self.plan.bound or (record.live is not None and record.epoch(record.live).bound))

    # On the broker

    def attest(self, broker: Broker, record: TopologyRecord) -> None:
        """Check the lake against the broker before anything is done, also by a driver that may have to yield at once.

        Nothing is fenced: the writer that the broker knows may be the right one.

        Raises:
            DisagreementError: the lake is older than the broker, or a part of it older than another.
            RefusedError: the epoch's names on the broker belong to another lake.
            SupersededError: the epoch was rebuilt in another lake.
        """
        self.ledger.check_claim(self.writer)
        self.check_names(broker)  # another lake's markers tell nothing of this one
        marker = markers.read(broker, self.paths)
        turns.check_not_superseded(marker, broker, self.paths)
        state = self.ledger.state()
        attestation.check(self.paths, marker, state, is_settled=False)
        attestation.check_tables(self.paths, state)
        if record.live == self.paths.epoch:
            attestation.check_others(self.config, broker, record, state)

    def check_names(self, broker: Broker) -> None:
        """Before a transactional id is initialised, which fences another lake's driver.

        Read once: no claim changes.

        Raises:
            RefusedError: the epoch's names on the broker belong to another lake.
        """
        if not self._owns_names:
            ownership.check(broker, self.paths, self.epochs.lake_id())
            self._owns_names = True

    def check_low(self, broker: Broker, ranges: Sequence[OffsetRange]) -> None:
        """Raise when records that a slice is to read are gone, or their topic is.

        Raises:
            DataLossError: retention removed some, or the topic was recreated.
        """
        check_topics(broker, self.plan.topic_ids)
        low = broker.low_watermarks(sorted(self.plan.topic_ids))
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

    def stable(self, broker: Broker, position: Offsets) -> Offsets:
        """Where each partition of the sources ends now, for readers of committed records."""
        return position.merge(broker.stable_offsets(self.plan.topic_ids))

    def partitions(self, broker: Broker) -> int:
        """Partitions of the widest source."""
        return max(broker.partitions(topic) for topic in self.plan.topic_ids)


def claim(epoch: DrivenEpoch, last_claim: int | None = None) -> dict[str, Any]:
    """Claim the epoch in its ledger; what the claim says of the environment of this process.

    Args:
        epoch: the epoch.
        last_claim: number of the last claim when the driver was launched, 0 for none: one that comes up late takes no
            claim that was made since. None for whichever is the last now.

    Raises:
        DriverAlreadyRunningError: another driver has it, or had it since the launch.
        IllegalTransitionError: the epoch was given up before its driver came up; nothing is left of the attempt.
        LedgerError: the key of masked values is not that of the epoch.
    """
    _check_not_ended(epoch)
    try:
        environment = _claimed(epoch, last_claim)
    except Exception:
        _check_not_ended(epoch)  # of one that is removed meanwhile, anything may be missing
        raise
    crash_point("claim")
    _check_not_ended(epoch)
    return environment


def _claimed(epoch: DrivenEpoch, last_claim: int | None) -> dict[str, Any]:
    epoch.ledger.create()
    state = epoch.ledger.state()
    if last_claim is not None and state.claim is not None and state.claim.n != last_claim:
        raise DriverAlreadyRunningError(
            f"This driver of epoch {epoch.paths.epoch} of {epoch.topology.name!r} was launched when claim {last_claim} "
            f"of the ledger was the last; {state.claim.writer} has claimed the epoch since. It came up too late, and "
            f"ends. Look for the epoch's driver: kappa status {epoch.topology.name}",
            writer=state.claim.writer,
        )
    claimant = "" if state.claim is None else state.claim.writer
    sign = liveness.settled(epoch.paths.heartbeat, epoch.config.stale_seconds, claimant=claimant)
    if sign.is_alive and sign.beat is not None:
        raise DriverAlreadyRunningError(
            f"Epoch {epoch.paths.epoch} of {epoch.topology.name!r} has a driver: {sign.beat.writer}, last heard "
            f"of at {sign.beat.at:%H:%M:%S}.",
            writer=sign.beat.writer,
        )
    check_mask(epoch.topology, state, epoch.config.mask_key)
    environment = _environment(epoch, state.claim)
    try:
        epoch.ledger.claim(epoch.writer, epoch.code, state, environment=environment)
    except ConflictError as error:
        raise DriverAlreadyRunningError(
            f"Another driver claimed epoch {epoch.paths.epoch} of {epoch.topology.name!r} at the same moment."
        ) from error
    return environment


def _environment(epoch: DrivenEpoch, before: LedgerRow | None) -> dict[str, str]:
    """What a claim says of the environment of this process, which it stores; a crash leaves a file without a claim."""
    present = interpreters.own(epoch.config).environment
    files.store(epoch.paths, present)
    own = launches.own_environment(epoch.record(), epoch.paths.epoch, before) or present.id
    return {"environment": present.id} | ({"instead_of": own} if own != present.id else {})


def _check_not_ended(epoch: DrivenEpoch) -> None:
    """An abandoned epoch is removed without a wait for a driver that never beat: that one brings nothing back."""
    stage = epoch.record().epoch(epoch.paths.epoch).stage
    if not stage.is_ended:
        return
    if heartbeat.read(epoch.paths.heartbeat) is None:
        store_of(epoch.paths.root).delete_folder(epoch.paths.root)
    raise IllegalTransitionError(
        f"Epoch {epoch.paths.epoch} of {epoch.topology.name!r} is {stage}: its driver came up too late, and ends.",
        epoch=epoch.paths.epoch,
    )
