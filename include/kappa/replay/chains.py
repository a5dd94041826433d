"""Chains: a topology reads the versioned topic of another topology's epoch.

Which epoch that is, and where it stands. Pure.

Two epochs that read different versioned topics cannot be compared by their offsets: they are compared by those of the
*root topics*, which no topology of the chain writes. Each commit of such an epoch records both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kappa.errors import LedgerError
from kappa.offsets.vector import Offsets
from kappa.replay import stored
from kappa.replay.findings import Finding

#: A topology and one of its epochs.
Key = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Which versioned topic an epoch reads as a source.

    Attributes:
        topology: the topology that fills it.
        epoch: the epoch of that topology.
        topic: its name in Kafka.
    """

    topology: str
    epoch: int
    topic: str

    @property
    def key(self) -> Key:
        """The epoch that is read."""
        return self.topology, self.epoch


@dataclass(frozen=True, kw_only=True)
class Final:
    """The time up to which the rows of a versioned topic are final after a commit: no earlier row is sent any more.

    Attributes:
        time: the column that holds the time of a row.
        ms: epoch milliseconds; None while the sources of the rows have no frontier.
    """

    time: str
    ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class SentEnd:
    """What an epoch had sent to its versioned topics by one of its commits.

    Attributes:
        ends: next offset of its versioned topics after a commit's transaction.
        standing: the offsets in the root topics up to which that commit has read.
        final: versioned topic -> the time up to which its rows are final, for topics that readers can follow.
    """

    ends: Offsets
    standing: Offsets
    final: Mapping[str, Final] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class UpstreamFacts:
    """An epoch that a planned epoch reads.

    Attributes:
        topics: its versioned topics that are read.
        sent: what it has sent so far, oldest first.
        origin: the offsets in the root topics at which the history in its versioned topics begins.
    """

    topology: str
    epoch: int
    topics: tuple[str, ...]
    sent: tuple[SentEnd, ...]
    origin: Offsets


@dataclass(frozen=True, kw_only=True)
class ChainFacts:
    """How the sources of a topology are bound.

    Attributes:
        bound: source -> the versioned topic that it stands for.
        upstreams: the epochs that fill those topics.
        direct: topics that are read as they are.
        findings: objections to reading them in this way.
    """

    bound: Mapping[str, Binding] = field(default_factory=dict)
    upstreams: tuple[UpstreamFacts, ...] = ()
    direct: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def final_detail(final: Mapping[str, Final]) -> dict[str, Any]:
    """The entry of these times in a ledger row; empty without any."""
    return {"final": {topic: asdict(one) for topic, one in sorted(final.items())}} if final else {}


def final_from_dict(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Final]:
    """Read what :func:`final_detail` put under its name."""
    return {topic: stored.read(Final, one) for topic, one in values.items()}


def frontiers_detail(frontiers: Mapping[str, int]) -> dict[str, Any]:
    """The entry of the frontiers that a slice takes over in a ledger row; empty without any."""
    return {"frontiers": dict(sorted(frontiers.items()))} if frontiers else {}


def bindings_as_dict(bound: Mapping[str, Binding]) -> dict[str, dict[str, object]]:
    """Bindings as JSON values."""
    return {source: asdict(binding) for source, binding in sorted(bound.items())}


def bindings_from_dict(values: Mapping[str, Mapping[str, object]]) -> dict[str, Binding]:
    """Read what :func:`bindings_as_dict` gave."""
    return {source: stored.read(Binding, binding) for source, binding in values.items()}


def topics_of(bound: Mapping[str, Binding]) -> dict[Key, tuple[str, ...]]:
    """Epoch that is read -> its versioned topics that are read."""
    topics_by_epoch: dict[Key, list[str]] = {}
    for binding in bound.values():
        topics_by_epoch.setdefault(binding.key, []).append(binding.topic)
    return {key: tuple(sorted(topics)) for key, topics in sorted(topics_by_epoch.items())}


def is_at(live: Offsets, standing: Offsets, *, is_bound: bool = False) -> bool:
    """Whether two epochs have read up to the same offsets of the topics that both read.

    Args:
        live: where one stands.
        standing: where the other stands.
        is_bound: whether one of them reads versioned topics. Both must then share a root topic: vectors of different
            topics have nothing in which they could differ, and would be taken for equal.

    Raises:
        LedgerError: they share no root topic and must.
    """
    if is_bound and not set(live.topics) & set(standing.topics):
        raise LedgerError(
            f"{live.to_json()} and {standing.to_json()} name no topic in common: they cannot be compared. "
            "Both epochs must come from the same root topics."
        )
    return live.is_level_with(standing)


def is_reached(end: Offsets, standing: Offsets) -> bool:
    """Whether an epoch at this place has read everything up to ``end`` in the topics that both name."""
    return standing.beside(end).dominates(end.beside(standing))


def sent_at(sent: Iterable[SentEnd], standing: Offsets) -> SentEnd | None:
    """The last end at exactly that place in the root topics."""
    fitting = [one for one in sent if is_at(one.standing, standing, is_bound=True)]
    return fitting[-1] if fitting else None


def sent_before(sent: Iterable[SentEnd], standing: Offsets) -> SentEnd | None:
    """The last end that is not beyond that place in the root topics."""
    fitting = [one for one in sent if is_reached(one.standing, standing)]
    return fitting[-1] if fitting else None


def physical(chain: ChainFacts, standing: Offsets, *, is_exact: bool) -> Offsets | None:
    """The offsets that an epoch of this chain must have read to stand at a place or at the last one before it, or None.

    Args:
        chain: the chain.
        standing: a place in the root topics.
        is_exact: whether only that exact place is accepted.
    """
    position = standing.only(chain.direct)
    for upstream in chain.upstreams:
        one = sent_at(upstream.sent, standing) if is_exact else sent_before(upstream.sent, standing)
        if one is None:
            return None
        position = position.merge(one.ends)
    return position


def roots(chain: ChainFacts, position: Offsets) -> Offsets | None:
    """The place in the root topics of an epoch of this chain that has read up to ``position``; None where no upstream
    ever stood there.
    """
    place = position.only(chain.direct)
    for upstream in chain.upstreams:
        part = position.only(upstream.topics)
        if not any(offset for _, offset in part.items()):
            place = place.merge(upstream.origin)
            continue
        standing = next((one.standing for one in upstream.sent if one.ends == part), None)
        if standing is None:
            return None
        place = place.merge(standing)
    return place


def next_end(ahead: Sequence[SentEnd], position: Offsets, most: int) -> SentEnd | None:
    """The end of a slice that reads versioned topics: the furthest end within this many offsets, or the next one.

    Args:
        ahead: ends beyond the position, oldest first.
        position: where the slice starts.
        most: offsets that it may span; one transaction that is larger is one slice.
    """
    if not ahead:
        return None
    fitting = [one for one in ahead if position.only(one.ends.topics).count_to(one.ends) <= most]
    return fitting[-1] if fitting else ahead[0]


def within(sent: Iterable[SentEnd], limit: Offsets) -> list[SentEnd]:
    """The ends that are not beyond ``limit``, an offset vector of the versioned topics; the first one of equal ends."""
    ends: list[SentEnd] = []
    for one in sent:
        if limit.dominates(one.ends) and (not ends or ends[-1].ends != one.ends):
            ends.append(one)
    return ends


def overlapping(standings: Collection[Offsets]) -> list[str]:
    """Root topics that several of these vectors name."""
    topics = [topic for standing in standings for topic in standing.topics]
    return sorted({topic for topic in topics if topics.count(topic) > 1})
