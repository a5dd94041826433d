"""Rules about topologies that read each other's own topics: what an epoch may be bound to, and what may move or go alone.

As in log_rules one function each, from plain facts to findings or sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kappa.offsets.vector import Offsets
from kappa.replay.chains import Binding, ChainFacts, Key, overlapping
from kappa.replay.findings import Finding, refuse, warn
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint, Start, ToEarliest, start_kind


@dataclass(frozen=True, kw_only=True)
class Link:
    """An epoch and what it is bound to, as the record has it.

    Attributes:
        topology: its topology.
        epoch: its number.
        stage: the stage it reached.
        is_live: whether readers get it.
        is_building: whether it is being built or brought back.
        bound: source -> the own topic that it reads.
    """

    topology: str
    epoch: int
    stage: Stage
    is_live: bool = False
    is_building: bool = False
    bound: Mapping[str, Binding] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For people."""
        return f"epoch {self.epoch} of {self.topology!r}"

    @property
    def upstreams(self) -> set[Key]:
        """The epochs that it reads."""
        return {binding.key for binding in self.bound.values()}


def upstream_missing(
    of: str, source: str, epoch: int | None, known: Collection[int], live: int | None
) -> list[Finding]:
    """The epoch that shall be read does not exist, has ended, or nobody said which and none is live.

    Args:
        of: the topology of the source.
        source: the topic output that is read.
        epoch: the epoch that was asked for; None for the live one.
        known: its epochs that have not ended.
        live: its live epoch.
    """
    if epoch is None and live is None:
        return [
            refuse(
                "upstream-not-live",
                f"Source {source!r} is of {of!r}, which has no live epoch to read.",
                f"Start it first: kappa start {of} --execute; or name an epoch of it: --upstream {of}=<epoch>.",
                topology=of,
            )
        ]
    if epoch is not None and epoch not in known:
        return [
            refuse(
                "upstream-unknown",
                f"Source {source!r} shall read epoch {epoch} of {of!r}, which has {sorted(known)}.",
                f"See `kappa status {of}`, and name one of these.",
                topology=of,
                epoch=epoch,
                known=sorted(known),
            )
        ]
    return []


def upstream_not_live_yet(of: str, epoch: int, live: int | None) -> list[Finding]:
    """A first epoch goes live by itself, and a live epoch reads live epochs only."""
    if epoch == live:
        return []
    return [
        refuse(
            "upstream-not-live",
            f"A first epoch goes live by itself, and would read epoch {epoch} of {of!r}, which is not live ({live} is).",
            f"Leave --upstream {of}={epoch} away; once it is live beside a live epoch, a replay may read another one.",
            topology=of,
            epoch=epoch,
            live=live,
        )
    ]


def upstream_without_topic(of: str, epoch: int, source: str, topics: Collection[str]) -> list[Finding]:
    """The epoch has no own topic for that topic output."""
    if source in topics:
        return []
    return [
        refuse(
            "upstream-not-versioned",
            f"Source {source!r} is of {of!r}, and epoch {epoch} of that has no own topic for it; it has {sorted(topics)}.",
            f"Declare it there as Topic(name={source!r}, on_replay='versioned') and replay {of}; or read it without of=, as a topic that all epochs share.",
            topology=of,
            epoch=epoch,
            topics=sorted(topics),
        )
    ]


def upstream_silent(of: str, epoch: int, has_sent: bool) -> list[Finding]:
    """No commit of the epoch says up to where it has sent: it is not seeded yet, or runs an older platform."""
    if has_sent:
        return []
    return [
        refuse(
            "upstream-silent",
            f"Epoch {epoch} of {of!r} has no commit on record that says up to where its own topics are filled.",
            f"Wait until `kappa status {of}` shows it past SEEDED. One that runs an older platform begins to say so after: kappa upgrade {of}",
            topology=of,
            epoch=epoch,
        )
    ]


def upstream_behind(upstreams: Iterable[Key], live: int | None) -> list[Finding]:
    """A live epoch stands before the first commit of the epochs that shall be read: there is no place to compare."""
    names = ", ".join(f"epoch {epoch} of {topology!r}" for topology, epoch in upstreams)
    return [
        refuse(
            "upstream-behind",
            f"{names} has no commit yet at or before the root offsets at which live epoch {live} stands.",
            "Wait until both are further, then plan again.",
            live=live,
        )
    ]


def upstream_cycle(topology: str, above: Collection[str]) -> list[Finding]:
    """The topology reads what is made of its own output."""
    if topology not in above:
        return []
    return [
        refuse(
            "upstream-cycle",
            f"{topology!r} would read topics that are made of its own output: it would feed itself.",
            "Take one of these sources away.",
            topology=topology,
        )
    ]


def upstream_twice(chain: ChainFacts) -> list[Finding]:
    """One root topic is reached in two ways: a commit would have two offsets of it."""
    direct = Offsets.of(((topic, 0), 0) for topic in chain.direct)
    twice = overlapping([direct, *(upstream.origin for upstream in chain.upstreams)])
    if not twice:
        return []
    return [
        refuse(
            "upstream-diamond",
            f"The sources lead to root topic {', '.join(twice)} in more than one way: where an epoch stands in it would not be one offset.",
            "Read it through one topology only; that one may send what the other needs in a second versioned topic.",
            topics=twice,
        )
    ]


def upstream_not_read(asked: Iterable[str], read: Collection[str]) -> list[Finding]:
    """``--upstream`` names a topology that no source is of."""
    return [
        refuse(
            "upstream-not-read",
            f"--upstream names {name!r}, and no source is of it; there are sources of {sorted(read) or 'no topology'}.",
            "Leave it away, or correct the name.",
            topology=name,
        )
        for name in sorted(asked)
        if name not in read
    ]


def start_within_chain(start: Start, bound: Mapping[str, Binding]) -> list[Finding]:
    """Times and offsets are those of a topic that every epoch of the other topology has anew: they name no place in it."""
    if not bound or isinstance(start, (ToEarliest, FromSavepoint)):
        return []
    topics = sorted(binding.topic for binding in bound.values())
    return [
        refuse(
            "upstream-start",
            f"A replay of a topology that reads {', '.join(topics)} cannot start {start_kind(start)}: its slices begin where a slice of the other topology ended.",
            "Replay --to-earliest, or --from-savepoint.",
            topics=topics,
        )
    ]


def seeded_from_another(seed_bound: Iterable[Key], bound: Iterable[Key]) -> list[Finding]:
    """Tables that were made of one epoch's topics go on with another's."""
    before, after = set(seed_bound), set(bound)
    if before == after:
        return []
    return [
        warn(
            "upstream-mixed-history",
            f"The savepoint was made of {_names(before) or 'other topics'}, and the epoch will read {_names(after)} from there on: earlier rows stay as they are.",
            "Nothing, if that is what you want; --to-earliest reads all of it from the new one.",
            before=sorted(map(list, before)),
            after=sorted(map(list, after)),
        )
    ]


def move_refusals(links: Sequence[Link], moves: Mapping[str, int]) -> list[str]:
    """What speaks against these moves of pointers because of who reads whom, one sentence each.

    After them each live epoch must read live epochs only, and nobody may be left reading one that stops.

    Args:
        links: all epochs that have not ended, of all topologies.
        moves: topology -> the epoch that shall be live.
    """
    live = {link.topology: link.epoch for link in links if link.is_live} | dict(moves)
    stops = {link.topology: link.epoch for link in links if link.is_live and link.topology in moves}
    found = []
    for link in links:
        is_live = live.get(link.topology) == link.epoch
        for topology, epoch in sorted(link.upstreams):
            is_left = link.is_building and not is_live and stops.get(topology) == epoch and live.get(topology) != epoch
            if is_live and live.get(topology) != epoch:
                found.append(_left_behind(link, topology, epoch, live.get(topology), moves))
            elif is_left and link.topology not in moves:
                found.append(
                    f"{link.name}, which is being built, reads epoch {epoch} of {topology!r}, and that would stop. "
                    f"Give it up first: kappa abort {link.topology} {link.epoch} --execute"
                )
    return found


def _left_behind(link: Link, topology: str, epoch: int, live: int | None, moves: Mapping[str, int]) -> str:
    if link.topology in moves and topology not in moves:
        return (
            f"{link.name} reads epoch {epoch} of {topology!r}, and epoch {live} of that is live. Move both together: "
            f"kappa cutover {topology} {link.topology} --execute"
        )
    if link.topology in moves:
        return f"{link.name} reads epoch {epoch} of {topology!r}, and epoch {live} of that would be live. Name epochs that belong together."
    return (
        f"Live {link.name} reads epoch {epoch} of {topology!r}, which would stop. Replay {link.topology} on the other one "
        f"(kappa replay {link.topology} --to-earliest --upstream {topology}={live} --execute), then move both together: "
        f"kappa cutover {topology} {link.topology} --execute. Back again both go as well: kappa rollback {topology} {link.topology} --execute"
    )


def removal_refusals(links: Sequence[Link], topology: str, epoch: int) -> list[str]:
    """Who still reads an epoch that shall be removed, and what to do first; one sentence each."""
    return [
        f"{link.name} ({link.stage}) reads the own topic of epoch {epoch} of {topology!r} and needs it to go on or to come back. "
        f"Remove that first: kappa {'retire' if link.stage is Stage.RETIRED else 'abort'} {link.topology} {link.epoch} --execute"
        for link in links
        if (topology, epoch) in link.upstreams and not link.stage.is_ended
    ]


def _names(keys: Iterable[Key]) -> str:
    return ", ".join(f"epoch {epoch} of {topology!r}" for topology, epoch in sorted(keys))
