"""The topics that an epoch needs, with all settings whose defaults on a broker could drop or rewrite records.

Retention uses a record's timestamp. A record with a time of its own is already as old as its event when it arrives: a
topic of such records keeps them for ever, accepts any time, and does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from kappa.names import EpochPaths
from kappa.replay.epoch_topics import EpochTopic
from kappa.topology import Topic, Topology

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker

#: The greatest number of milliseconds that Kafka accepts.
_ANY = str(2**63 - 1)
#: A record keeps the time with which it is sent.
OWN_TIME = {"message.timestamp.type": "CreateTime"}
_ANY_TIME = {"message.timestamp.before.max.ms": _ANY, "message.timestamp.after.max.ms": _ANY}
#: Longer than any log; Kafka's longest time does not fit what Python has for one.
_LONGEST_MS = 100 * 365 * 24 * 3600 * 1000
#: Neither time nor size removes a record.
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}

#: Settings of changelogs and markers.
CHANGELOG = {
    **OWN_TIME,
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    # A fold that takes a day must still see every tombstone.
    "delete.retention.ms": str(7 * 24 * 3600 * 1000),
    "segment.ms": str(3600 * 1000),
    "max.message.bytes": str(8 << 20),
}


def time_of(settings: Mapping[str, str], name: str) -> timedelta | None:
    """A setting in milliseconds, at most a hundred years; None for -1, which is without a limit."""
    limit_ms = int(settings[name])
    return None if limit_ms < 0 else timedelta(milliseconds=min(limit_ms, _LONGEST_MS))


def of_versioned(topic: Topic) -> dict[str, str]:
    """The settings of an epoch's own topic: it holds history and is removed with its epoch, whatever the broker's
    defaults.
    """
    return {**OWN_TIME, **FOR_EVER, "cleanup.policy": "delete", **(_ANY_TIME if topic.time else {})}


def of_output(topic: Topic) -> dict[str, str]:
    """The settings of a topic output that all epochs share, if it does not exist yet.

    For records with the time of sending, retention is the broker's default.
    """
    policy = "compact" if topic.on_replay == "reconcile" else "delete"
    retention = FOR_EVER if topic.time and policy == "delete" else {}
    return {**OWN_TIME, "cleanup.policy": policy, **retention, **(_ANY_TIME if topic.time else {})}


def markers_of(paths: EpochPaths) -> EpochTopic:
    """The topic of an epoch's markers."""
    return EpochTopic(name=paths.markers, kind="markers", partitions=1, settings=CHANGELOG)


def changelogs_of(topology: Topology, paths: EpochPaths, partitions: int) -> tuple[EpochTopic, ...]:
    """The changelogs of an epoch's tables."""
    names = (paths.changelog(table.name) for table in topology.tables)
    return tuple(EpochTopic(name=name, kind="changelog", partitions=partitions, settings=CHANGELOG) for name in names)


def versioned_of(topology: Topology, paths: EpochPaths, partitions: int) -> tuple[EpochTopic, ...]:
    """The topics of an epoch's versioned topic outputs."""
    return tuple(
        EpochTopic(
            name=paths.versioned(topic.name), kind="versioned", partitions=partitions, settings=of_versioned(topic)
        )
        for topic in topology.versioned_topics
    )


def outputs_of(topology: Topology, partitions: int) -> tuple[EpochTopic, ...]:
    """The topic outputs that all epochs share."""
    return tuple(
        EpochTopic(name=topic.name, kind="output", partitions=partitions, settings=of_output(topic))
        for topic in topology.shared_topics
    )


def of_epoch(topology: Topology, paths: EpochPaths, partitions: int) -> tuple[EpochTopic, ...]:
    """All topics that an epoch needs besides its sources."""
    return (
        markers_of(paths),
        *changelogs_of(topology, paths, partitions),
        *versioned_of(topology, paths, partitions),
        *outputs_of(topology, partitions),
    )


def create_missing(broker: Broker, topics: Iterable[EpochTopic]) -> None:
    """Create the topics that are not there, with the settings that go over theirs; the others stay as they are."""
    needed = tuple(topics)
    present = set(broker.topics()) if needed else set()
    for topic in needed:
        if topic.name not in present:
            broker.create(broker.adapted(topic))
