"""How far an archive is, and how far it could come."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from kappa.acts import Act, Effect, act
from kappa.archive.reader import Archive, archived_topics
from kappa.archive.rows import schema_name
from kappa.config import Config
from kappa.errors import ConflictError, DataLossError, UnknownArchiveError
from kappa.kafka.broker import Broker
from kappa.offsets.coverage import ArchiveFacts
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.presence import liveness
from kappa.record.epochs import epochs_of
from kappa.record.ledger_state import LedgerState
from kappa.topology import Source, registry

#: How a stop takes the archive away from its archiver.
NOBODY = "nobody"


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The effect that archiving a topic would have now.

    Attributes:
        topic_id: Kafka's id of it.
        position: next offset to archive of each partition.
        end: the stable end.
        lost: offsets that retention removed before they were archived, between the archive's end and the log's
            beginning.
        schemas: names of the schemas by which records are parsed; those that the deployed topologies read the topic by.
    """

    topic: str
    topic_id: str
    position: Offsets
    end: Offsets
    lost: tuple[OffsetRange, ...]
    schemas: tuple[str, ...]

    @property
    def lag(self) -> int:
        """Offsets that are not archived yet."""
        return sum(max(0, last - (self.position.get(*at) or 0)) for at, last in self.end.items())


@dataclass(frozen=True, kw_only=True)
class ArchiveStatus:
    """How far an archive is.

    Attributes:
        facts: what it covers.
        records: how many records it holds.
        lag: offsets of the log that are not archived yet; None when Kafka was not asked, or no longer has the topic.
        is_same_topic: whether the broker's topic is the archived one; None when Kafka was not asked.
        archiver: ``running``, ``stuck`` (it cannot go on), ``stopped``, ``dead`` or ``never`` (started).
        message: what the archiver says.
    """

    topic: str
    facts: ArchiveFacts
    records: int
    lag: int | None
    is_same_topic: bool | None
    archiver: str
    message: str


def outlook(config: Config, broker: Broker, topic: str) -> Outlook:
    """The effect that archiving a topic would have now. Changes nothing.

    Raises:
        DataLossError: the topic was recreated since it was archived.
        LakeMovedError: the lake is at another address.
        TopologyError: it does not exist.
    """
    _look_at_lake(config)
    archive = Archive(config.lake, topic)
    topic_id = checked_id(broker, archive)
    low, end = broker.low_watermarks([topic]), broker.stable_offsets([topic])
    state = archive.ledger.state()
    position = position_of(state, end) if state.commits else low
    return Outlook(
        topic=topic,
        topic_id=topic_id,
        position=position.merge(Offsets.of((item.at, item.end) for item in lost_records(position, low))),
        end=end,
        lost=lost_records(position, low),
        schemas=tuple(schemas_of(config, topic)),
    )


def topics_of(config: Config) -> tuple[str, ...]:
    """Topics with an archive, sorted.

    Raises:
        LakeMovedError: the lake is at another address.
    """
    _look_at_lake(config)
    return archived_topics(config.lake)


def _look_at_lake(config: Config) -> None:
    """An archive has no part in the record of epochs, which alone says where the lake is and of which format."""
    epochs_of(config.lake).records()


def status(config: Config, topic: str) -> ArchiveStatus:
    """How far an archive is.

    Raises:
        UnknownArchiveError: the topic has no archive.
        BrokerUnreachableError: Kafka does not answer.
        LakeMovedError: the lake is at another address.
    """
    _look_at_lake(config)
    archive = Archive(config.lake, topic)
    facts = archive.facts()
    if facts is None:
        raise UnknownArchiveError(
            f"Topic {topic!r} has no archive in {config.lake}. Begin one: kappa archive start {topic} --execute",
            topic=topic,
        )
    lag: int | None = None
    with Broker(config.bootstrap_servers) as broker:
        is_same = topic in broker.topics(topic) and broker.topic_ids([topic])[topic] == facts.topic_id
        if is_same:
            lag = outlook(config, broker, topic).lag
    sign = liveness.look(archive.paths.heartbeat, config.stale_seconds)
    beat = sign.beat
    state = "never" if beat is None else beat.state if sign.state in ("alive", "stopped") else sign.state
    return ArchiveStatus(
        topic=topic,
        facts=facts,
        records=sum(chunk.rows for chunk in archive.chunks),
        lag=lag,
        is_same_topic=is_same,
        archiver=state,
        message=beat.message if beat else "",
    )


@act
def stop(config: Config, topic: str) -> Act[bool]:
    """Take an archive away from its archiver, wherever that runs; return whether there was one.

    The archiver ends before its next write to the ledger. Idempotent; the next start goes on where it was.
    """
    _look_at_lake(config)
    ledger = Archive(config.lake, topic).ledger
    taken: list[str] = []

    def has_archiver(state: LedgerState) -> bool:
        return state.claim is not None and state.claim.writer != NOBODY

    def take() -> None:
        while has_archiver(state := ledger.state()):
            with suppress(ConflictError):  # a slice was planned or committed meanwhile
                ledger.claim(NOBODY, "", state)
                taken.append(topic)

    end = Effect(what=f"end the archiver of {topic}", values={"topic": topic}, make=take)
    return Act(effects=(end,) if has_archiver(ledger.state()) else (), outcome=lambda: bool(taken))


def schemas_of(config: Config, topic: str) -> dict[str, Source]:
    """The schemas by which the deployed topologies read a topic, by name; each once."""
    schemas: dict[str, Source] = {}
    for topology in registry.topologies(config.topologies)[0].values():
        for source in topology.sources:
            name = schema_name(source)
            if source.topic == topic and name is not None:
                schemas[name] = source
    return dict(sorted(schemas.items()))


def position_of(state: LedgerState, end: Offsets) -> Offsets:
    """Next offset to archive of every partition; one that appeared later begins at 0."""
    return ranges_end(state.commits[-1].ranges).naming(end)


def lost_records(position: Offsets, low: Offsets) -> tuple[OffsetRange, ...]:
    return tuple(
        OffsetRange(topic=at[0], partition=at[1], start=position[at], end=first)
        for at, first in low.items()
        if at in position and position[at] < first
    )


def checked_id(broker: Broker, archive: Archive) -> str:
    topic_id = broker.topic_ids([archive.topic])[archive.topic]
    expected = archive.topic_id
    if expected is not None and topic_id != expected:
        raise DataLossError(
            f"Topic {archive.topic!r} was recreated: its id is {topic_id}, the archive is of {expected}. Offsets of "
            f"the old topic mean nothing in the new one. Move the folder {archive.paths.root} away to keep the old "
            "records, then start a new archive.",
            topic=archive.topic,
            found=topic_id,
            expected=expected,
        )
    return topic_id
