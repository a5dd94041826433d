"""Gathers the facts for a plan: the deployed code, the log, the live epoch's ledger, the leftovers of other epochs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from kappa.archive.reader import Archive
from kappa.config import Config
from kappa.control.plans.existing_tables import columns_of
from kappa.control.plans.needed_topics import next_epoch, surveyed_topics
from kappa.control.plans.sampling import sounded
from kappa.control.plans.schema_facts import schema_facts
from kappa.environments import interpreters
from kappa.errors import CodeError, LakeUnreachableError, UnknownTopologyError
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import creator_options
from kappa.kafka.offsets_for_times import milliseconds
from kappa.names import EpochPaths, versioned_topic
from kappa.offsets import set_asides
from kappa.offsets.coverage import ArchiveFacts, first_readable
from kappa.offsets.vector import Offsets, TopicPartition, ranges_end
from kappa.presence import liveness
from kappa.record import code as code_store
from kappa.record.chains import surveyed
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState, LedgerState
from kappa.record.rollup import is_cut_by_arrival
from kappa.replay.chains import ChainFacts, physical, topics_of
from kappa.replay.facts import (
    ActiveFacts,
    Facts,
    LiveFacts,
    LogFacts,
    MarkerFacts,
    NamedSavepoint,
    SavepointFacts,
    SourceFacts,
    TopologyFacts,
    topology_facts,
)
from kappa.replay.findings import Finding
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.resolution import adoption_of
from kappa.replay.starts import FromMarker, start_time
from kappa.serving.published_tables import is_foreign
from kappa.slices.run import LOST_RELEASES, LOST_SET_ASIDES, MASK
from kappa.slices.topics import ownership, turns, versioned_topics
from kappa.topology import registry
from kappa.topology.masking import SHORTEST, fingerprint
from kappa.topology.shapes import shapes_from_dict
from kappa.verify import measurements

if TYPE_CHECKING:
    from kappa.topology import Topology

#: How long the markers of epochs that no record knows are watched, to see whether a driver still sends.
WATCH_SECONDS = 3.0
#: How often a group that seems to have been moved is looked at.
_LOOKS = 3


def survey(
    config: Config,
    broker: Broker,
    epochs: Epochs,
    request: ReplayRequest,
    *,
    now: datetime,
    step: tuple[Finding, ...] = (),
) -> Facts:
    """Facts for a plan that is made ``now``. Reads only, and starts no JVM: a caller that has one passes ``step``.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    record = epochs.record(request.topology)
    facts = surveyed_facts(config, broker, epochs, record, request, now=now, step=step)
    return sounded(config, broker, record, request, facts, now=now)


def surveyed_facts(
    config: Config,
    broker: Broker,
    epochs: Epochs,
    record: TopologyRecord,
    request: ReplayRequest,
    *,
    now: datetime,
    step: tuple[Finding, ...] = (),
) -> Facts:
    """Facts for a plan but for those that are measured, for which records of the sources are read."""
    topologies = tuple(item.name for item in registry.declared(config.topologies))
    topology, deployed = _topology(config, request.topology)
    chain = surveyed(config.lake, epochs, request, deployed)
    if deployed is not None:  # from here on topics are called what they are called in Kafka
        deployed = replace(deployed, sources=tuple(_physical(source, chain) for source in deployed.sources))
    topics = [source.topic for source in deployed.sources] if deployed else []
    present = [topic for topic in topics if broker.has_topic(topic)]
    settings = broker.topic_configs(present)
    listed = set(broker.topics())
    sent = {output.topic for output in deployed.outputs} & listed if deployed else set()
    log = LogFacts(
        low=broker.low_watermarks(present),
        high=broker.high_watermarks(present),
        stable=broker.stable_offsets(present),
        topic_ids=broker.topic_ids(present),
        cleanup={topic: values["cleanup.policy"] for topic, values in settings.items()},
        future_ms={
            topic: int(values["message.timestamp.after.max.ms"])
            for topic, values in settings.items()
            if values["message.timestamp.type"] == "CreateTime" and "message.timestamp.after.max.ms" in values
        },
        largest={topic: int(values["max.message.bytes"]) for topic, values in settings.items()},
        outputs=broker.topic_configs(sorted(sent)),
    )
    archives = [Archive(config.lake, topic) for topic in present]
    archived = {archive.topic: archive_facts for archive in archives if (archive_facts := archive.facts()) is not None}
    number = next_epoch(broker, record, listed)
    own = [versioned_topic(name, number) for name in (deployed.versioned if deployed else ())]
    paths = EpochPaths(lake=config.lake, topology=request.topology, epoch=number)
    names = (*deployed.tables, *deployed.appends) if deployed else ()
    candidate, at = record.candidate, start_time(request.start, now)
    live, live_state = _live(config, broker, record, chain)
    adoption = adoption_of(request, live) if request.resolved_seed is Seed.FROM_TABLES else None
    known_rates = measurements.rates(config.lake, record, live_state)
    return Facts(
        topology=deployed,
        log=log,
        next_epoch=number,
        live=live,
        active=ActiveFacts(epoch=candidate.epoch, stage=candidate.stage, plan=candidate.planned.detail["plan_id"])
        if candidate
        else None,
        markers=_markers(config, broker, request, record, epochs.lake_id(), now)
        if isinstance(request.start, FromMarker)
        else (),
        named_savepoints={
            name: NamedSavepoint(name=name, epoch=event.epoch, seq=event.detail["seq"])
            for name, event in record.savepoints.items()
        },
        first_records=None
        if at is None
        else _first_records(broker, archives, archived if request.archive else {}, log, milliseconds(at)),
        archives=archived,
        chain=chain,
        topologies=topologies,
        records_per_second=known_rates.records_per_second,
        records_per_offset=known_rates.records_per_offset,
        bytes_per_record=known_rates.bytes_per_record,
        disk_per_record=known_rates.disk_per_record,
        measured_epoch=known_rates.epoch,
        measured_records=known_rates.records,
        live_bytes=known_rates.live_bytes,
        colliding_topics=tuple(versioned_topics.foreign(broker, own)) if own else (),
        needed=surveyed_topics(broker, topology, paths, log.high.most_partitions, listed)
        if topology and len(present) == len(topics)
        else (),
        tool_options=creator_options(config.bootstrap_servers),
        topic_settings=config.topic_settings,
        step=step,
        existing={table.place: columns_of(table) for table in adoption.tables} if adoption else {},
        occupied=tuple(filter(is_foreign, map(paths.published, names))),
        unversioned=interpreters.own(config).unversioned,
    )


def _first_records(
    broker: Broker, archives: Sequence[Archive], archived: Mapping[str, ArchiveFacts], log: LogFacts, timestamp_ms: int
) -> dict[TopicPartition, int | None]:
    """First record per partition at or after a time; an archive that reaches the log comes before it."""
    first_records = broker.first_at_or_after([archive.topic for archive in archives], timestamp_ms)
    begin = first_readable(log.low, archived, log.topic_ids)
    for archive in archives:
        if archive.topic not in archived:
            continue
        first_records |= {
            at: at_or_after
            for at, at_or_after in archive.offsets_for_time(timestamp_ms).items()
            if at in begin and begin[at] < log.low[at]
        }
    return first_records


def _topology(config: Config, name: str) -> tuple[Topology | None, TopologyFacts | None]:
    """The deployed topology, and facts about it where it does not import too."""
    try:
        # First: of files that change meanwhile the plan has a hash that no longer holds when it is put on record.
        code = code_store.code_hash(config.topologies, name)
        topology = code_store.load(config.topologies, name)
    except UnknownTopologyError:
        return None, None
    except CodeError as error:
        return None, TopologyFacts(name=name, error=str(error))
    is_masked = topology.is_sensitive and len(config.mask_key) >= SHORTEST
    mask = fingerprint(config.mask_key) if is_masked else ""
    return topology, topology_facts(topology, code, mask, schema_facts(config, topology))


def _physical(source: SourceFacts, chain: ChainFacts) -> SourceFacts:
    return replace(source, topic=chain.bound[source.topic].topic) if source.topic in chain.bound else source


def _live(
    config: Config, broker: Broker, record: TopologyRecord, chain: ChainFacts
) -> tuple[LiveFacts | None, LedgerState | None]:
    """The live epoch and its ledger."""
    if record.live is None:
        return None, None
    paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=record.live)
    ledger = Ledger(paths.ledger)
    state = ledger.state()
    if not isinstance(state, BegunState):
        raise LakeUnreachableError(
            f"Epoch {record.live} of {record.topology!r} is live and its ledger holds no commit. Try again in a moment."
        )
    planned = record.epoch(record.live).planned.detail
    shapes = state.shapes
    bound = record.epoch(record.live).bound
    is_other = topics_of(bound) != topics_of(chain.bound)

    def place(row: LedgerRow, *, is_exact: bool) -> Offsets | None:
        """Where a commit ended, in the topics that the plan will read."""
        return physical(chain, row.standing, is_exact=is_exact) if is_other else ranges_end(row.ranges)

    position = place(state.committed, is_exact=False)
    places = {row.seq: place(row, is_exact=True) for row in state.readable}
    return LiveFacts(
        epoch=record.live,
        seq=state.committed.seq,
        position=Offsets() if position is None else position,
        origin=Offsets.from_json(planned["origin"]),
        version=record.epoch(record.live).version,
        code=state.committed.code,
        topic_ids=state.commits[0].detail["topic_ids"],
        savepoints=tuple(
            SavepointFacts(
                seq=row.seq,
                offsets=at,
                finished_at=row.at,
                shapes={n: shape for n, shape in state.shapes_at(row.seq).items() if n in row.delta_versions},
            )
            for row in state.readable
            if (at := places[row.seq]) is not None
        ),
        topics=record.epoch(record.live).sends_to,
        versioned=record.epoch(record.live).plan.versioned,
        reconciled=record.epoch(record.live).reconciled,
        sent_forms=record.epoch(record.live).sent_forms,
        shapes=shapes,
        group=None if is_other else _moved_group(broker, paths, ledger),
        upstreams=tuple(topics_of(bound)),
        root_origin=record.epoch(record.live).origin,
        is_behind=position is None,
        mask=state.commits[0].detail.get(MASK, ""),
        begin=ranges_end(state.commits[0].ranges),
        has_lost_releases=LOST_RELEASES in state.commits[0].detail,
        set_aside=state.set_aside,
        has_lost_set_asides=LOST_SET_ASIDES in state.commits[0].detail,
        is_cut_by_arrival=is_cut_by_arrival(state),
        adoption=record.epoch(record.live).plan.adoption,
    ), state


def _moved_group(broker: Broker, paths: EpochPaths, ledger: Ledger) -> Offsets | None:
    """Where an epoch's group is, unless a slice that was the last one during the look ended there.

    A group that has no offsets any more was not moved: Kafka forgets those of a group that commits nothing for a week.
    """
    position: Offsets | None = None
    for _ in range(_LOOKS):  # its driver may move it and commit between two looks
        before = ledger.state().seq
        position = broker.group_position(paths.name, ledger.begun().position)
        state = ledger.state()
        rows = [row for row in state.commits[-_LOOKS:] if row.seq >= min(before, state.commits[-1].seq)]
        ends = [ranges_end(row.ranges) for row in [*rows, *([state.open_plan] if state.open_plan else [])]]
        if any(all(end.get(*at) == offset for at, offset in position.items()) for end in ends):
            return None
    return position


def _markers(
    config: Config, broker: Broker, request: ReplayRequest, record: TopologyRecord, lake: str, now: datetime
) -> tuple[MarkerFacts, ...]:
    markers = turns.last_markers(broker, config.lake, request.topology)
    # The heartbeat of an epoch on record tells whether its driver runs; for one of a lost lake only the broker does.
    moving = set() if record.live is not None else _moving(config, broker, request.topology, markers)
    facts = []
    for epoch, marker in sorted(markers.items()):
        paths = EpochPaths(lake=config.lake, topology=request.topology, epoch=epoch)
        whose = ownership.owner(broker, paths)
        is_alive = liveness.settled(paths.heartbeat, config.stale_seconds).is_alive
        facts.append(
            MarkerFacts(
                epoch=epoch,
                seq=marker.seq,
                position=marker.end,
                topic_ids=marker.topic_ids,
                shapes=shapes_from_dict(marker.shapes),
                sends=marker.sends,
                turn=marker.turn,
                is_growing=epoch in moving or is_alive,
                set_aside_unnamed=0
                if Ledger(paths.ledger).exists()
                else marker.set_aside_count - set_asides.count(marker.set_aside),
                owner=str(whose) if whose is not None and whose.lake != lake else "",
            )
        )
    return tuple(facts)


def _moving(config: Config, broker: Broker, topology: str, epochs: Iterable[int]) -> set[int]:
    """Epochs for which something is sent while they are looked at."""
    paths = {epoch: EpochPaths(lake=config.lake, topology=topology, epoch=epoch) for epoch in epochs}
    if not paths:
        return set()
    topics = [one.markers for one in paths.values()]
    before, deadline = broker.high_watermarks(topics), time.monotonic() + WATCH_SECONDS
    while time.monotonic() < deadline:
        time.sleep(WATCH_SECONDS / 10)
        after = broker.high_watermarks(topics)
        moved = {epoch for epoch, one in paths.items() if after.get(one.markers, 0) != before.get(one.markers, 0)}
        if moved:
            return moved
    return set()
