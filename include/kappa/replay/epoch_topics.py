"""The topics that an epoch needs on the broker, with their settings, and the commands that make them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal

from kappa.topic_overrides import PARTITIONS, REPLICATION, Overrides

Kind = Literal["changelog", "markers", "versioned", "output"]
#: What a message calls a topic of each kind.
WORDS: Mapping[Kind, str] = {
    "changelog": "a changelog",
    "markers": "a topic of markers",
    "versioned": "a versioned topic",
    "output": "a topic output",
}


@dataclass(frozen=True, kw_only=True)
class EpochTopic:
    """A topic that an epoch needs, and how it is made where it is missing.

    Attributes:
        name: its name.
        kind: its purpose.
        partitions: number of partitions; markers have one whatever is set.
        settings: by Kafka's names; what is not here is left to the broker.
        replication: copies of each partition; -1 leaves that to the broker.
    """

    name: str
    kind: Kind = "output"
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)
    replication: int = -1

    @property
    def all_settings(self) -> dict[str, str]:
        """What can be set, the numbers of partitions and copies too."""
        copies = {} if self.replication < 0 else {REPLICATION: str(self.replication)}
        return {PARTITIONS: str(self.partitions), **copies, **self.settings}


@dataclass(frozen=True, kw_only=True)
class TopicRefusal:
    """Why the brokers would not make a topic.

    Attributes:
        reason: in their words.
        is_right: whether this login may not create it; another one may.
        settings: names of settings that they refuse each by itself; empty where that is not known.
        policy: class of the policy that refuses it; empty where Kafka itself does, or that is not known.
        is_policy: whether a policy does.
        is_name: whether it is the name that they refuse: they take it for that of a topic that is there.
    """

    reason: str
    is_right: bool = False
    settings: tuple[str, ...] = ()
    policy: str = ""
    is_policy: bool = False
    is_name: bool = False


@dataclass(frozen=True, kw_only=True)
class NeededTopic:
    """A topic that an epoch needs, as the brokers see it before the epoch begins.

    Attributes:
        topic: how it is made.
        present: all its settings where it is there, of markers the number of partitions too; None where it is missing.
        refusal: why the brokers would not make it; None where they would, or it is there.
    """

    topic: EpochTopic
    present: Mapping[str, str] | None = None
    refusal: TopicRefusal | None = None

    @property
    def settings(self) -> Mapping[str, str]:
        """Those that it has, or would be made with."""
        return self.topic.all_settings if self.present is None else self.present

    @property
    def is_barred(self) -> bool:
        """Whether this login may not create it."""
        return self.refusal is not None and self.refusal.is_right

    @property
    def objection(self) -> TopicRefusal | None:
        """Why no login could make it as it is; None where one could, or it is there."""
        return None if self.is_barred else self.refusal


def overridden(topic: EpochTopic, overrides: Overrides) -> EpochTopic:
    """The topic with settings that go over its own: those of all topics first, then those of each pattern that fits.

    An empty setting is left to the broker.
    """
    values = topic.all_settings | {name: value for name, value in overrides.items() if isinstance(value, str)}
    for pattern, settings in overrides.items():
        if not isinstance(settings, str) and fnmatchcase(topic.name, pattern):
            values |= settings
    partitions, replication = values.pop(PARTITIONS, ""), values.pop(REPLICATION, "")
    return replace(
        topic,
        partitions=topic.partitions if topic.kind == "markers" else int(partitions or topic.partitions),
        replication=int(replication or -1),
        settings={name: value for name, value in values.items() if value},
    )


def creation(topic: EpochTopic, options: str = "") -> str:
    """The command of Kafka's own tool that makes a topic.

    Args:
        topic: the topic.
        options: how the tool reaches the brokers.
    """
    words = ["kafka-topics.sh", *options.split(), "--create", "--if-not-exists", "--topic", topic.name]
    words += ["--partitions", str(topic.partitions)]
    words += [] if topic.replication < 0 else ["--replication-factor", str(topic.replication)]
    for name, value in topic.settings.items():
        words += ["--config", f"{name}={value}"]
    return shlex.join(words)


def creations(topics: Iterable[EpochTopic], options: str = "") -> str:
    """The commands for several topics, as one line of a shell."""
    return "; ".join(creation(topic, options) for topic in topics)
