"""The reset of a consumer group, as data: its old and new offsets, and objections to it.

It is resolved like a replay's start.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kappa.errors import UsageError
from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.findings import Finding, Severity, check, refusals
from kappa.replay.resolution import first_records_at, named_offsets, shifted
from kappa.replay.rules import group as group_rules
from kappa.replay.rules import start as start_rules
from kappa.replay.starts import (
    FromMarker,
    FromSavepoint,
    ShiftBy,
    Start,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    start_kind,
    start_time,
)


@dataclass(frozen=True, kw_only=True)
class GroupRequest:
    """A request to set partitions of a group.

    Attributes:
        group: name of the consumer group.
        start: the position to set.
        partitions: topic -> its partitions, ``None`` for all; may be empty where the start names its own.

    Raises:
        UsageError: no partition is selected, the start is not one that a group can have, or the client would take its
            name for another.
    """

    group: str
    start: Start | ToCurrent
    partitions: Mapping[str, Sequence[int] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.group != (other := self.group.lstrip(string.whitespace)):
            raise UsageError(
                f"Group {self.group!r} begins with a blank, which Kafka's client drops: it would set the group "
                f"{other!r}. Name that one, or set this one with Kafka's own tool: kafka-consumer-groups.sh"
            )
        if isinstance(self.start, (FromSavepoint, FromMarker)):
            raise UsageError(f"Start {start_kind(self.start)} is for replays only: a group has no epoch.")
        if not self.partitions and not isinstance(self.start, ToOffset):
            raise UsageError("No partition is selected. Name topics: --topic pos, or --topic pos:0,2.")

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that the request names, sorted."""
        named = (*self.start.topics, *self.start.offsets.topics) if isinstance(self.start, ToOffset) else ()
        return tuple(sorted({*self.partitions, *named}))


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """Facts about a group and the topics that the request names.

    Attributes:
        offsets: what the group has committed, of any topic.
        exists: whether there is such a group.
        members: its active members.
        low: low watermark of every partition of the topics that exist.
        high: their high watermarks.
        stable: their last stable offsets.
        first_records: for a start by time, as in :class:`~kappa.replay.facts.Facts`.
    """

    offsets: Offsets
    exists: bool
    members: int
    low: Offsets
    high: Offsets
    stable: Offsets
    first_records: Mapping[TopicPartition, int | None] | None = None


@dataclass(frozen=True, kw_only=True)
class GroupReset:
    """What setting the group will do.

    Attributes:
        group: name of the group.
        before: what it has committed for the selected partitions.
        after: what it will have committed; empty if that could not be resolved.
        findings: objections to it.
    """

    group: str
    before: Offsets
    after: Offsets
    findings: tuple[Finding, ...]

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings that refuse it."""
        return refusals(self.findings)

    @property
    def is_refused(self) -> bool:
        """Whether a finding refuses it."""
        return bool(self.refusals)

    def check(self) -> None:
        """Accept it or refuse it.

        Raises:
            RefusedError: a finding refuses it; the message holds all of them.
        """
        check(self.findings, f"Setting group {self.group!r}")


def build_reset(request: GroupRequest, facts: GroupFacts, *, now: datetime) -> GroupReset:
    """Resolve where the group is set and gather all findings. Never raises because of a finding."""
    findings = group_rules.group_of_epoch(request.group)
    findings += group_rules.group_with_members(request.group, facts.members)
    findings += group_rules.partitions_not_there(request.partitions, facts.high)
    selected = _selected(request, facts.high)
    after, problems = _resolved(request, facts, selected, now)
    findings += problems
    if not any(problem.severity is Severity.REFUSE for problem in problems):
        findings += group_rules.offset_outside_log(after or Offsets(), facts.low, facts.high)
        findings += group_rules.group_is_new(request.group, exists=facts.exists)
    before = Offsets.of((at, offset) for at, offset in facts.offsets.items() if at in selected)
    return GroupReset(group=request.group, before=before, after=after or Offsets(), findings=tuple(findings))


def _selected(request: GroupRequest, high: Offsets) -> Offsets:
    """The requested partitions that exist, with their high watermarks."""
    start, partitions = request.start, request.partitions
    if partitions:
        places = {
            at
            for at in high
            if at[0] in partitions and (partitions[at[0]] is None or at[1] in (partitions[at[0]] or ()))
        }
    else:
        assert isinstance(start, ToOffset)
        places = {at for at in high if at in start.offsets or at[0] in start.topics}
    return Offsets.of((at, offset) for at, offset in high.items() if at in places)


def _resolved(
    request: GroupRequest, facts: GroupFacts, selected: Offsets, now: datetime
) -> tuple[Offsets | None, list[Finding]]:
    start, at = request.start, start_time(request.start, now)
    if at is not None:
        return _by_time(at, facts, selected)
    if isinstance(start, ToOffset):
        after, findings = named_offsets(start, selected)
        # Without a selection, the start's own names are the selection: each is looked up among all that exist.
        return after, findings if request.partitions else start_rules.unknown_partitions(start, facts.high)
    if isinstance(start, (ToEarliest, ToLatest)):
        return _only(facts.low if isinstance(start, ToEarliest) else facts.high, selected), []
    missing = group_rules.group_without_offset(request.group, list(selected), facts.offsets)
    position = _only(facts.offsets, selected)
    if missing or not isinstance(start, ShiftBy):
        return position, missing
    return shifted(position, start.by, facts.low, facts.high)


def _by_time(at: datetime, facts: GroupFacts, selected: Offsets) -> tuple[Offsets | None, list[Finding]]:
    if facts.first_records is None:
        raise ValueError("A start by time needs GroupFacts.first_records, looked up for that time.")
    if not len(selected):
        return None, []
    after, offsets, findings = first_records_at(at, facts.first_records, _only(facts.stable, selected), {})
    return after, [*findings, *group_rules.time_before_the_log(at, offsets, facts.low)]


def _only(offsets: Offsets, selected: Offsets) -> Offsets:
    return Offsets.of((at, offset) for at, offset in offsets.items() if at in selected)
