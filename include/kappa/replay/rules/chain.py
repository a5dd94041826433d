"""Rules about topologies that read each other's versioned topics: what an epoch is bound to, and which may move alone.

As in ``log`` one function each, from plain facts to findings or sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kappa.offsets.vector import Offsets
from kappa.replay.chains import Binding, ChainFacts, Final, Key, overlapping, roots
from kappa.replay.facts import LiveFacts
from kappa.replay.findings import Finding, refusals, refuses, warns
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint, Start, ToEarliest, start_kind


@dataclass(frozen=True, kw_only=True)
class Link:
    """An epoch and what it is bound to, as recorded.

    Attributes:
        stage: the stage it reached.
        is_live: whether readers get it.
        is_building: whether it is being built or brought back.
        bound: source -> the versioned topic that it reads.
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


def chain_findings(
    chain: ChainFacts, live: LiveFacts | None, start: Start, begin: Offsets | None, *, is_seeded: bool
) -> list[Finding]:
    """Objections to reading versioned topics of other epochs from a start.

    Args:
        chain: what is read.
        start: the start that was requested.
        begin: that start as offsets; None where it could not be resolved.
        is_seeded: whether tables are taken from a savepoint of the live epoch.
    """
    if not chain.bound:
        return []
    findings = start_within_chain(start, chain.bound)
    keys = [(upstream.topology, upstream.epoch) for upstream in chain.upstreams]
    if live is not None and live.is_behind:
        findings += upstream_behind(keys, live.epoch)
    if is_seeded and live is not None:
        findings += seeded_from_another(live.upstreams, keys)
    if begin is not None and roots(chain, begin) is None and not refusals(findings):
        findings += upstream_behind(keys, live.epoch if live else None, is_savepoint=isinstance(start, FromSavepoint))
    return findings


UPSTREAM_NOT_LIVE = refuses(
    "upstream-not-live",
    "Source {source!r} comes from {topology!r}, which has no live epoch to read.",
    "Start it first: kappa start {topology} --execute; or name one of its epochs: --upstream {topology}=<epoch>.",
    way_out="`kappa start` the other topology first. A first epoch goes live automatically and reads live epochs only: "
    "omit --upstream for it.",
)
_FIRST_READS_LIVE = replace(
    UPSTREAM_NOT_LIVE,
    message="A first epoch goes live automatically, and would read epoch {epoch} of {topology!r}, which is not live "
    "({live} is).",
    remedy="Omit --upstream {topology}={epoch}; once it is live beside a live epoch, a replay may read another one.",
)
UPSTREAM_UNKNOWN = refuses(
    "upstream-unknown",
    "Source {source!r} should read epoch {epoch} of {topology!r}, which has {known}.",
    "Name one of these, which have not ended. `kappa status {topology}` shows them.",
)


def upstream_missing(
    of: str, source: str, epoch: int | None, epochs: Collection[int], live: int | None
) -> list[Finding]:
    """The epoch that is to be read does not exist or has ended; or none was named and none is live.

    Args:
        of: the topology of the source.
        source: the topic output that is read.
        epoch: the requested epoch; None for the live one.
        epochs: its epochs that have not ended.
        live: its live epoch.
    """
    if epoch is None and live is None:
        return [UPSTREAM_NOT_LIVE({"source": source}, topology=of)]
    if epoch is not None and epoch not in epochs:
        return [UPSTREAM_UNKNOWN({"source": source}, topology=of, epoch=epoch, known=sorted(epochs))]
    return []


def upstream_not_live_yet(of: str, epoch: int, live: int | None) -> list[Finding]:
    """A first epoch goes live automatically, and a live epoch reads live epochs only."""
    return [] if epoch == live else [_FIRST_READS_LIVE(topology=of, epoch=epoch, live=live)]


UPSTREAM_NOT_FOLLOWED = refuses(
    "upstream-not-followed",
    "Source {source!r} has time={column!r} and no grace, so it follows {topology!r}, whose epoch {epoch} {says}.",
    "Declare how late its rows may be: grace='10 seconds'; or let {topology!r} send them with a time that an operator "
    "bounds, then `kappa replay {topology}`.",
    way_out="Give the source a grace, or set `Topic(time=...)` in the other topology to a column of the windows that "
    "an operator emits. An epoch of an earlier release reports no final rows until a replay.",
)


def upstream_not_followed(source: str, binding: Binding, column: str, final: Final | None) -> list[Finding]:
    """The epoch that is read does not say up to when rows are final by that column.

    Args:
        source: the topic output that is read.
        binding: the epoch, and its topic.
        column: the time of the source.
        final: what the epoch records of the topic.
    """
    if final is not None and final.time == column:
        return []
    says = "does not report its final rows" if final is None else f"reports its final rows by {final.time!r}"
    return [
        UPSTREAM_NOT_FOLLOWED(
            {"source": source, "column": column, "says": says}, topology=binding.topology, epoch=binding.epoch
        )
    ]


UPSTREAM_NOT_VERSIONED = refuses(
    "upstream-not-versioned",
    "Source {source!r} comes from {topology!r}, whose epoch {epoch} has no versioned topic for it; it has {topics}.",
    "Declare it there as Topic(name={source!r}, on_replay='versioned') and replay {topology}; or read it without of=, "
    "as a topic that all epochs share.",
)


def upstream_without_topic(of: str, epoch: int, source: str, topics: Collection[str]) -> list[Finding]:
    """The epoch has no versioned topic for this topic output."""
    if source in topics:
        return []
    return [UPSTREAM_NOT_VERSIONED({"source": source}, topology=of, epoch=epoch, topics=sorted(topics))]


UPSTREAM_SILENT = refuses(
    "upstream-silent",
    "No commit of epoch {epoch} of {topology!r} records how far its versioned topics are filled.",
    "Wait until `kappa status {topology}` shows it past SEEDED. An epoch on an older platform records it after: kappa "
    "upgrade {topology}",
)


def upstream_silent(of: str, epoch: int, has_sent: bool) -> list[Finding]:
    """No commit of the epoch records how far it has sent: it is not seeded yet, or runs an older platform."""
    return [] if has_sent else [UPSTREAM_SILENT(topology=of, epoch=epoch)]


UPSTREAM_BEHIND = refuses(
    "upstream-behind",
    "{names} has no commit yet at or before the root offsets at which live epoch {live} stands.",
    "Wait until both have advanced, then plan again.",
)
_SAVEPOINT_ELSEWHERE = replace(
    UPSTREAM_BEHIND,
    message="{names} has no commit any more, or none yet, at the root offsets of the savepoint of live epoch {live}.",
    remedy="Start at a later savepoint, or --to-earliest.",
)


def upstream_behind(upstreams: Iterable[Key], live: int | None, *, is_savepoint: bool = False) -> list[Finding]:
    """A live epoch stands before the first commit of the epochs to read, or its savepoint beside their commits."""
    names = ", ".join(f"epoch {epoch} of {topology!r}" for topology, epoch in upstreams)
    return [(_SAVEPOINT_ELSEWHERE if is_savepoint else UPSTREAM_BEHIND)({"names": names}, live=live)]


UPSTREAM_CYCLE = refuses(
    "upstream-cycle",
    "{topology!r} would read topics that are made from its own output: it would feed itself.",
    "Remove one of these sources.",
)


def upstream_cycle(topology: str, above: Collection[str]) -> list[Finding]:
    """The topology reads a product of its own output."""
    return [UPSTREAM_CYCLE(topology=topology)] if topology in above else []


UPSTREAM_DIAMOND = refuses(
    "upstream-diamond",
    "The sources lead to root topic {names} in more than one way: an epoch would not have one single offset in it.",
    "Read it through one topology only; that one may send what the other needs in a second versioned topic.",
)


def upstream_twice(chain: ChainFacts) -> list[Finding]:
    """One root topic is reached in two ways: a commit would have two offsets of it."""
    direct = Offsets.of(((topic, 0), 0) for topic in chain.direct)
    twice = overlapping([direct, *(upstream.origin for upstream in chain.upstreams)])
    return [UPSTREAM_DIAMOND({"names": ", ".join(twice)}, topics=twice)] if twice else []


UPSTREAM_NOT_READ = refuses(
    "upstream-not-read",
    "--upstream names {topology!r}, but no source comes from it; sources come from {those}.",
    "Omit it, or correct the name.",
)


def upstream_not_read(names: Iterable[str], read: Collection[str]) -> list[Finding]:
    """``--upstream`` names a topology that no source comes from."""
    words = {"those": sorted(read) or "no topology"}
    return [UPSTREAM_NOT_READ(words, topology=name) for name in sorted(names) if name not in read]


UPSTREAM_START = refuses(
    "upstream-start",
    "A replay of a topology that reads {names} cannot start {start}: its slices begin where a slice of the other "
    "topology ended.",
    "Replay --to-earliest, or --from-savepoint.",
)


def start_within_chain(start: Start, bound: Mapping[str, Binding]) -> list[Finding]:
    """Each epoch of the other topology has a topic of its own: times and offsets in one mean nothing in the next."""
    if not bound or isinstance(start, (ToEarliest, FromSavepoint)):
        return []
    topics = sorted(binding.topic for binding in bound.values())
    return [UPSTREAM_START({"names": ", ".join(topics), "start": start_kind(start)}, topics=topics)]


UPSTREAM_MIXED_HISTORY = warns(
    "upstream-mixed-history",
    "The savepoint was computed from {earlier}, and the epoch will read {later} from there on: earlier rows stay as "
    "they are.",
    "No action needed if that is what you want; --to-earliest reads all of it from the new one.",
)


def seeded_from_another(seed_bound: Iterable[Key], bound: Iterable[Key]) -> list[Finding]:
    """Tables computed from one epoch's topics go on with those of another."""
    before, after = set(seed_bound), set(bound)
    if before == after:
        return []
    words = {"earlier": _names(before) or "other topics", "later": _names(after)}
    return [UPSTREAM_MIXED_HISTORY(words, before=sorted(map(list, before)), after=sorted(map(list, after)))]


def move_refusals(links: Sequence[Link], moves: Mapping[str, int]) -> list[str]:
    """Objections to these moves of pointers because of the epochs that read each other, one sentence each.

    After them each live epoch must read live epochs only, and none may be left reading one that stops.

    Args:
        links: all epochs that have not ended, of all topologies.
        moves: topology -> the epoch that is to be live.
    """
    live = {link.topology: link.epoch for link in links if link.is_live} | dict(moves)
    stops = {link.topology: link.epoch for link in links if link.is_live and link.topology in moves}
    reasons = []
    for link in links:
        is_live = live.get(link.topology) == link.epoch
        for topology, epoch in sorted(link.upstreams):
            is_left = link.is_building and not is_live and stops.get(topology) == epoch and live.get(topology) != epoch
            if is_live and live.get(topology) != epoch:
                reasons.append(_left_behind(link, topology, epoch, live.get(topology), moves))
            elif is_left and link.topology not in moves:
                reasons.append(
                    f"{link.name}, which is being built, reads epoch {epoch} of {topology!r}, which would stop. Abort "
                    f"it first: kappa abort {link.topology} {link.epoch} --execute"
                )
    return reasons


def _left_behind(link: Link, topology: str, epoch: int, live: int | None, moves: Mapping[str, int]) -> str:
    if link.topology in moves and topology not in moves:
        return (
            f"{link.name} reads epoch {epoch} of {topology!r}, where epoch {live} is live. Move both together: kappa "
            f"cutover {topology} {link.topology} --execute"
        )
    if link.topology in moves:
        return (
            f"{link.name} reads epoch {epoch} of {topology!r}, where epoch {live} would be live. Name epochs that "
            "belong together."
        )
    return (
        f"Live {link.name} reads epoch {epoch} of {topology!r}, which would stop. Replay {link.topology} on the other "
        f"one (kappa replay {link.topology} --to-earliest --upstream {topology}={live} --execute), then move both "
        f"together: kappa cutover {topology} {link.topology} --execute; back to an epoch that was live before: kappa "
        f"rollback {topology} {link.topology} --execute"
    )


def removal_refusals(links: Sequence[Link], topology: str, epoch: int) -> list[str]:
    """Readers of an epoch that is to be removed, with what to do first; one sentence each."""
    return [
        f"{link.name} ({link.stage}) reads the versioned topic of epoch {epoch} of {topology!r} and needs it to "
        "continue or to come back. Remove that reader first: kappa "
        f"{'retire' if link.stage is Stage.RETIRED else 'abort'} {link.topology} {link.epoch} --execute"
        for link in links
        if (topology, epoch) in link.upstreams and not link.stage.is_ended
    ]


def _names(keys: Iterable[Key]) -> str:
    return ", ".join(f"epoch {epoch} of {topology!r}" for topology, epoch in sorted(keys))
