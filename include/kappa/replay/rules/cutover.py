"""Epochs of several topologies that go live together or not at all: when, and where the old ones stop. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.stages import Stage


@dataclass(frozen=True, kw_only=True)
class CutoverRequest:
    """A requested handover that is neither finished nor withdrawn.

    Attributes:
        epoch: the epoch that becomes live.
        actor: the person or program that asked.
        together: topology -> epoch of all that go live with it, itself included; empty for a cutover of its own.
    """

    epoch: int
    actor: str
    at: datetime
    together: Mapping[str, int] = field(default_factory=dict)

    def members(self, topology: str) -> dict[str, int]:
        """Topology -> epoch of all that go live, for a handover of ``topology``."""
        return dict(self.together) or {topology: self.epoch}


@dataclass(frozen=True, kw_only=True)
class Member:
    """One epoch of those that go live together, as the record has it.

    Attributes:
        stage: the stage it reached.
        is_recalled: whether it was live before and is coming back.
        live: the live epoch of its topology.
        replaces: the live epoch that the request expects to replace; None for whichever it is.
        last_move: the move that made ``live`` the live epoch, with actor and time.
        pending: a handover of its topology.
        verdict: of its verification.
        failures: what that verification found, if it failed.
        is_accepted: whether the request accepts a failed verdict.
        unable: why code that runs its topology cannot run.
    """

    topology: str
    epoch: int
    stage: Stage
    is_recalled: bool = False
    live: int | None = None
    replaces: int | None = None
    last_move: str = ""
    pending: CutoverRequest | None = None
    verdict: str | None = None
    failures: str = ""
    is_accepted: bool = False
    unable: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether its verdict is an objection; the verdict of an epoch that was live before is not."""
        return self.verdict == "failed" and not self.is_recalled

    @property
    def name(self) -> str:
        """For people."""
        return f"epoch {self.epoch} of {self.topology!r}"


def can_take_over(stage: Stage, *, is_recalled: bool) -> bool:
    """Whether an epoch is far enough to go live: verified, or live before and caught up again."""
    return stage in (Stage.VERIFIED, Stage.APPROVED) or (is_recalled and stage is Stage.CAUGHT_UP)


def is_done(members: Sequence[Member]) -> bool:
    """Whether all are live already."""
    return all(member.live == member.epoch for member in members)


def is_asked(members: Sequence[Member]) -> bool:
    """Whether exactly this cutover is pending already."""
    together = {member.topology: member.epoch for member in members}
    return all(member.pending is not None and member.pending.members(member.topology) == together for member in members)


def refusals(members: Sequence[Member]) -> tuple[str, ...]:
    """All objections to moving these epochs together, one sentence each; none when they may."""
    named = " ".join(member.topology for member in members)
    return tuple(objection for member in members for objection in _refusals(member, named))


def _refusals(member: Member, named: str) -> Iterable[str]:
    if member.live == member.epoch:
        yield f"{member.name} is live already: leave it out, or name another epoch of that topology."
        return
    if member.live is None:
        yield f"{member.topology!r} has no live epoch that could hand over: kappa start {member.topology} --execute"
    if member.replaces is not None and member.live != member.replaces:
        yield (
            f"The live epoch of {member.topology!r} is {member.live}, {member.replaces} was "
            f"expected{f': {member.last_move}' if member.last_move else ''}. Check this, then ask again."
        )
    if member.pending is not None:
        yield pending_refusal(member.topology, member.pending)
    if not can_take_over(member.stage, is_recalled=member.is_recalled):
        way = "CAUGHT_UP again" if member.is_recalled else "VERIFIED"
        yield f"{member.name} is {member.stage}: it can take over once it is {way}."
    if member.has_failed and not member.is_accepted:
        failures = f": {member.failures}" if member.failures else ""
        yield (
            f"The verification of {member.name} failed{failures}. See it: kappa diff {member.topology} {member.epoch}. "
            f"To move readers anyway: kappa cutover {named} --accept-verdict {member.topology} --reason '...' --execute"
        )
    yield from member.unable


def pending_refusal(topology: str, pending: CutoverRequest) -> str:
    """Why nothing else may move a topology while a handover of it is pending: its actor, time and epochs."""
    others = rest_of_group(pending.together, topology)
    with_ = f", together with {others}" if others else ""
    return (
        f"{pending.actor} asked at {pending.at:%H:%M:%S} to hand {topology!r} over to epoch {pending.epoch}{with_}. "
        f"Wait until `kappa history {topology}` shows `moved` or `withdrawn`."
    )


def rest_of_group(together: Mapping[str, int], topology: str) -> str:
    """The others of a topology's group, for people: ``retail.loyalty epoch 2 and retail.stock epoch 3``."""
    return " and ".join(f"{name} epoch {epoch}" for name, epoch in sorted(together.items()) if name != topology)


def meeting_point(standings: Iterable[Offsets]) -> Offsets:
    """The vector up to which all continue before they yield: for each partition the furthest offset of any epoch.

    No epoch can take back what it has sent. Each offset below the vector was read by some epoch, so it is in the log.
    """
    furthest: dict[TopicPartition, int] = {}
    for standing in standings:
        for at, offset in standing.items():
            furthest[at] = max(offset, furthest.get(at, 0))
    return Offsets.of(furthest.items())


def yield_at(position: Offsets, standings: Iterable[Offsets]) -> Offsets:
    """Where an epoch at ``position`` yields: the meeting point in the topics that it reads."""
    return position.merge(meeting_point(standings).only(position.topics))
