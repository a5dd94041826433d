"""Consumer groups, any team's: where they stand, and setting them by Kafka's reset verbs.

Refuses where Kafka's tool clamps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kappa import clock
from kappa.acts import Act, Effect, act
from kappa.errors import ConflictError, UnknownGroupError
from kappa.kafka.broker import Broker
from kappa.kafka.offsets_for_times import milliseconds
from kappa.replay.group_reset import GroupFacts, GroupRequest, GroupReset, build_reset
from kappa.replay.starts import start_time


@dataclass(frozen=True, kw_only=True)
class GroupPartition:
    """Where a group stands in one partition.

    Attributes:
        partition: its partition.
        offset: next offset that the group reads.
        low: low watermark; None if the partition is gone.
        high: high watermark; None if the partition is gone.
    """

    topic: str
    partition: int
    offset: int
    low: int | None
    high: int | None

    @property
    def lag(self) -> int | None:
        """Offsets that the group has yet to read, among those that retention left; None where the partition is gone, or
        ends before the group's offset, as after a truncation.
        """
        if self.high is None or self.high < self.offset:
            return None
        return self.high - max(self.offset, self.low or 0)


def positions(broker: Broker, group: str) -> list[GroupPartition]:
    """Where a group stands, partition by partition.

    Raises:
        UnknownGroupError: it has committed nothing, or there is no such group.
    """
    offsets = broker.group_offsets(group)
    if not len(offsets):
        others = [name for name in broker.groups() if name != group]
        raise UnknownGroupError(
            f"Group {group!r} has no offsets on {broker.bootstrap_servers}; groups are {others[:20]}"
            f"{' and others' if len(others) > 20 else ''}. Correct the name, or set it with --topic and --to-earliest.",
            group=group,
        )
    present = _present(broker, offsets.topics)
    low, high = broker.low_watermarks(present), broker.high_watermarks(present)
    return [
        GroupPartition(
            topic=topic,
            partition=partition,
            offset=offset,
            low=low.get(topic, partition),
            high=high.get(topic, partition),
        )
        for (topic, partition), offset in offsets.items()
    ]


def plan_reset(broker: Broker, request: GroupRequest) -> GroupReset:
    """Where the group would stand, and objections to it. Changes nothing."""
    now = clock.now()
    present = _present(broker, request.topics)
    at, offsets = start_time(request.start, now), broker.group_offsets(request.group)
    facts = GroupFacts(
        offsets=offsets,
        exists=len(offsets) > 0 or request.group in broker.groups(request.group),
        members=broker.group_members(request.group),
        low=broker.low_watermarks(present),
        high=broker.high_watermarks(present),
        stable=broker.stable_offsets(present),
        first_records=None if at is None else broker.first_at_or_after(present, milliseconds(at)),
    )
    return build_reset(request, facts, now=now)


@act
def apply_reset(broker: Broker, reset: GroupReset) -> Act[None]:
    """Set the group, and read back that it stands there. Idempotent; a crash leaves it where it was, or set.

    Raises:
        RefusedError: a finding refuses it; the group is as it was.
        ConflictError: a consumer joined the group at the same time, or another process moved it.
    """
    reset.check()

    def set_group() -> None:
        broker.set_group_offsets(reset.group, reset.after)
        offsets = broker.group_offsets(reset.group)
        elsewhere = [at for at, offset in reset.after.items() if offsets.get(*at) != offset]
        if elsewhere:
            topic, partition = elsewhere[0]
            raise ConflictError(
                f"Group {reset.group!r} stands at {offsets.get(topic, partition)} of {topic}[{partition}], it was set "
                f"to {reset.after[topic, partition]}: another process moved it. See which consumers read for it.",
                group=reset.group,
            )

    what = f"set {len(reset.after)} partitions of group {reset.group}"
    effect = Effect(what=what, values={"group": reset.group, "offsets": reset.after}, make=set_group)
    return Act(effects=(effect,) if len(reset.after) else (), outcome=lambda: None)


def _present(broker: Broker, topics: Iterable[str]) -> list[str]:
    names = set(broker.topics()) | set(broker.topics("__"))
    return [topic for topic in topics if topic in names]
