"""The topics that an epoch needs besides its sources, as the brokers have them or would make them. Reads only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from kappa.errors import Terminal
from kappa.kafka import topic_settings
from kappa.names import EpochPaths, topology_prefix
from kappa.replay.epoch_topics import NeededTopic
from kappa.slices.topics import ownership
from kappa.topic_overrides import PARTITIONS

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker
    from kappa.record.epoch_record import TopologyRecord
    from kappa.topology import Topology

#: Kafka's setting with the class that decides which topics are made.
_POLICY = "create.topic.policy.class.name"


def surveyed_topics(
    broker: Broker, topology: Topology, paths: EpochPaths, partitions: int, listed: Collection[str]
) -> tuple[NeededTopic, ...]:
    """The topics of an epoch, each as it is, or with what the brokers say of making it.

    Args:
        broker: Kafka, with the settings that go over those of new topics.
        topology: the epoch's.
        paths: the epoch's.
        partitions: partitions of its widest source.
        listed: the topics that are there.
    """
    topics = [broker.adapted(topic) for topic in topic_settings.of_epoch(topology, paths, partitions)]
    settings = broker.topic_configs(topic.name for topic in topics if topic.name in listed)
    if paths.markers in listed:
        settings[paths.markers][PARTITIONS] = str(broker.partitions(paths.markers))
    refused = broker.refusals(topic for topic in topics if topic.name not in listed)
    policy = _policy(broker) if any(one.is_policy for one in refused.values()) else ""
    return tuple(
        NeededTopic(
            topic=topic,
            present=settings.get(topic.name),
            refusal=replace(refused[topic.name], policy=policy) if topic.name in refused else None,
        )
        for topic in topics
    )


def next_epoch(broker: Broker, record: TopologyRecord, listed: Collection[str]) -> int:
    """A number above any epoch on record and any that left records or groups on the broker.

    Topics of a later epoch that are all empty were made for it: whoever may not create topics has them made.
    """
    prefix, last = topology_prefix(record.topology), max([0, *record.epochs])
    own = [name for name in listed if name.startswith(prefix)]
    later = [name for name in own if max(ownership.numbers(prefix, [name]), default=0) > last]
    ends = broker.high_watermarks(later)
    written = [name for name in later if any(ends[name, partition] for partition in ends.partitions(name))]
    return max([last, *ownership.numbers(prefix, [*written, *broker.groups(prefix)])]) + 1


def _policy(broker: Broker) -> str:
    """The policy of the brokers; empty where it is not theirs to tell, or this login may not ask."""
    try:
        return broker.broker_config().get(_POLICY) or ""
    except Terminal:
        return ""
