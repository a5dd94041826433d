"""The topics on the broker that topologies read and write: what they keep, and how a new one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from kappa.acts import Act, Effect, act
from kappa.errors import TopologyError, UsageError
from kappa.kafka import topic_settings
from kappa.kafka.broker import Broker
from kappa.offsets.notation import duration_text
from kappa.replay.epoch_topics import EpochTopic
from kappa.topology import Topic, Topology

#: Names that begin so belong to epochs.
RESERVED = "kappa."


@dataclass(frozen=True, kw_only=True)
class TopicFacts:
    """A topic as the broker has it.

    Attributes:
        name: the topic.
        partitions: number of partitions.
        offsets: offsets between the low and the high watermarks, of all partitions.
        cleanup_policy: ``delete``, ``compact`` or both.
        retention: how long records are kept, by their timestamps; None for ever.
        retention_bytes: from which size on a partition drops its oldest records; None for any size.
        read_by: topologies that read it.
        written_by: topologies that send to it.
    """

    name: str
    partitions: int
    offsets: int
    cleanup_policy: str
    retention: timedelta | None
    retention_bytes: int | None
    read_by: tuple[str, ...]
    written_by: tuple[str, ...]


def topics(broker: Broker, topologies: Sequence[Topology]) -> list[TopicFacts]:
    """The topics on the broker by name, without those of epochs.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    names = [name for name in broker.topics() if not name.startswith(RESERVED)]
    if not names:
        return []
    low, high, settings = broker.low_watermarks(names), broker.high_watermarks(names), broker.topic_configs(names)
    reads = {t.name: {source.topic for source in t.sources} for t in topologies}
    writes = {t.name: {topic.name for topic in t.topics} for t in topologies}
    return [
        TopicFacts(
            name=name,
            partitions=len(high.partitions(name)),
            offsets=low.only({name}).count_to(high.only({name})),
            cleanup_policy=settings[name]["cleanup.policy"],
            retention=_retention(settings[name]),
            retention_bytes=_retention_bytes(settings[name]),
            read_by=tuple(sorted(t for t, topic_names in reads.items() if name in topic_names)),
            written_by=tuple(sorted(t for t, topic_names in writes.items() if name in topic_names)),
        )
        for name in names
    ]


def missing(broker: Broker, topologies: Sequence[Topology]) -> list[str]:
    """Topics that topologies read or send to and the broker lacks, by name; versioned ones are made for each epoch."""
    versioned = {topic.name for topology in topologies for topic in topology.versioned_topics}
    named = {source.topic for topology in topologies for source in topology.sources if source.of is None}
    named |= {topic.name for topology in topologies for topic in topology.topics}
    return sorted(named - versioned - set(broker.topics()))


def outputs(topologies: Sequence[Topology]) -> dict[str, Topic]:
    """The topic outputs that readers know by their names, by name."""
    return {topic.name: topic for topology in topologies for topic in topology.shared_topics}


def _retention(settings: Mapping[str, str]) -> timedelta | None:
    return topic_settings.time_of(settings, "retention.ms") if "delete" in settings["cleanup.policy"] else None


def _retention_bytes(settings: Mapping[str, str]) -> int | None:
    limit = int(settings["retention.bytes"])
    return limit if limit >= 0 and "delete" in settings["cleanup.policy"] else None


@act
def create(
    broker: Broker,
    name: str,
    *,
    partitions: int | None = None,
    settings: Mapping[str, str] | None = None,
    output: Topic | None = None,
) -> Act[bool]:
    """Create a topic; returns whether it was created. Idempotent: an equal one stays unchanged.

    Args:
        broker: Kafka; the settings that go over those of new topics count where the caller names none.
        name: the topic.
        partitions: number of partitions, three by default. A keyed source keeps this number for good.
        settings: settings of the topic, by Kafka's names; an empty one is left to the brokers. Records are kept for
            ever by default, and whatever their size.
        output: the topic output that is sent to it, if one is: it is made as a driver would make it.

    Raises:
        UsageError: the name is one of an epoch's.
        TopologyError: the topic exists with another number of partitions or other settings, or Kafka refuses them.
    """
    if name.startswith(RESERVED):
        raise UsageError(
            f"Topic {name!r} begins with {RESERVED!r}: such names are those of epochs. Choose another name."
        )
    base = topic_settings.OWN_TIME if output is None else topic_settings.of_output(output)
    usual = broker.adapted(EpochTopic(name=name, partitions=3, settings={**base, **topic_settings.FOR_EVER}))
    own = {key: value for key, value in {**usual.settings, **(settings or {})}.items() if value}
    topic = replace(usual, partitions=partitions or usual.partitions, settings=own)
    if name not in broker.topics():
        for refusal in broker.refusals([topic]).values():
            raise TopologyError(f"The brokers would not create topic {name!r}: {refusal.reason}", topic=name)
        created: list[bool] = []

        def make() -> None:
            created.append(broker.create(topic))
            if not created[0]:  # somebody else made it meanwhile
                _check_alike(broker, topic)

        effect = Effect(
            what=f"create {name} with {topic.partitions} partitions, retention {retention_text(topic.settings)}",
            values={"topic": name, "partitions": topic.partitions, "settings": dict(topic.settings)},
            make=make,
        )
        return Act(effects=(effect,), outcome=lambda: created[0])
    _check_alike(broker, topic)
    return Act(effects=(), outcome=lambda: False)


def retention_text(settings: Mapping[str, str]) -> str:
    """How long records of a new topic are kept."""
    if "retention.ms" not in settings:
        return "of the brokers"
    limit = topic_settings.time_of(settings, "retention.ms")
    return "forever" if limit is None else duration_text(limit)


def _check_alike(broker: Broker, topic: EpochTopic) -> None:
    """Raise where a topic that exists is not the one that was asked for."""
    name, partitions, all_settings = topic.name, topic.partitions, topic.settings
    current_settings = broker.topic_configs([name])[name]
    others = {
        key: current_settings.get(key) for key, value in all_settings.items() if current_settings.get(key) != value
    }
    if broker.partitions(name) != partitions or others:
        state = ", ".join(
            [f"{broker.partitions(name)} partitions", *(f"{key}={value}" for key, value in others.items())]
        )
        request = ", ".join([f"{partitions} partitions", *(f"{key}={all_settings[key]}" for key in others)])
        raise TopologyError(
            f"Topic {name!r} exists with {state}; {request} were asked for. Nothing was changed. See it: kappa topics "
            "list",
            topic=name,
        )
