"""Handovers and moves on record: of one topology, or of several together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kappa import clock
from kappa.record.epoch_record import TopologyRecord
from kappa.record.events import Event
from kappa.record.ledger_rows import ENVIRONMENT_FIELDS
from kappa.record.ledger_state import BegunState
from kappa.record.topology_records import TopologyRecords
from kappa.replay.proof.certificate import Certificate
from kappa.replay.rules.cutover import CutoverRequest

#: Events of an epoch after which a handover to it is pending no more.
ENDS = ("moved", "withdrawn", "aborted", "released", "dropped")


def together_of(event: Event | None) -> dict[str, int]:
    """Topology -> epoch of all that move in one handover, itself included; empty for a single topology."""
    return dict(event.detail.get("together", {})) if event is not None else {}


def members_of(handover: Event) -> dict[str, int]:
    """Topology -> epoch of all members of a handover or a move, of a single topology too."""
    return together_of(handover) or {handover.topology: handover.epoch}


def others_of(topology: str, event: Event | None) -> dict[str, int]:
    """Topology -> epoch of the other members of a handover or a move."""
    return {name: epoch for name, epoch in together_of(event).items() if name != topology}


def rollbacks(events: Iterable[Event]) -> frozenset[int]:
    """Numbers of the moves that bring readers back to an earlier epoch of theirs; all other moves are cutovers.

    Back from epoch 2 to epoch 1 is a rollback, and so is the way forward to epoch 2 again: both bring a retired epoch
    back. A cutover to an older epoch that was rejected at first is not a rollback.

    Args:
        events: of one topology or of several, oldest first, from the beginning.
    """
    numbers, earlier = set(), set()
    for event in events:
        if event.event == "moved":
            if (event.topology, event.epoch) in earlier:
                numbers.add(event.n)
            earlier.add((event.topology, event.epoch))
    return frozenset(numbers)


def cutover_request(handover: Event) -> CutoverRequest:
    """A pending handover, in the form that the rules take."""
    return CutoverRequest(epoch=handover.epoch, actor=handover.actor, at=handover.at, together=together_of(handover))


def waiting(records: TopologyRecords, handover: Event) -> dict[str, TopologyRecord]:
    """Topologies whose handover is pending: members of a group, or the one topology."""
    members = {name: records.of(name) for name in sorted(members_of(handover))}
    return {name: record for name, record in members.items() if is_of(record, handover)}


def withdrawals(records: TopologyRecords, handover: Event, *, actor: str, reason: str) -> list[Event]:
    """Events that withdraw a handover, a group's for all members; none when it is pending no more."""
    at = clock.now()
    return [
        Event(
            topology=name,
            epoch=record.handover.epoch,
            event="withdrawn",
            at=at,
            actor=actor,
            reason=reason,
            detail={"handover": record.handover.n, **_group_of(handover)},
        )
        for name, record in waiting(records, handover).items()
        if record.handover is not None
    ]


def ended_by(record: TopologyRecord, handover: int, epoch: int) -> str:
    """How a topology's handover to an epoch ended, with actor and time; empty while it is pending."""
    ends = [e for e in record.events if e.n > handover and e.epoch == epoch and e.event in ENDS]
    if not ends:
        return ""
    end = ends[0]
    why = f": {end.reason}" if end.reason else ""
    return f"{record.topology!r} epoch {end.epoch} {end.event} by {end.actor} at {end.at:%H:%M:%S}{why}"


def moved(
    record: TopologyRecord,
    handover: Event,
    state: BegunState,
    certificate: Certificate,
    extras: Mapping[str, Any],
    *,
    at: datetime,
) -> Event:
    """The row of a move after its handover, alone or in a group.

    Args:
        record: the topology, before the move.
        handover: the request, with its actor and the epoch that becomes live.
        state: the ledger of that epoch.
        certificate: the proof.
        extras: further fields of its detail, about topics.
        at: when.
    """
    detail = {
        "from": record.live,
        "at": state.standing.as_dict(),
        "seq": state.seq,
        "handover": handover.n or None,
        "plan": record.epoch(handover.epoch).planned.detail["plan_id"],
        "certificate": certificate.to_json(),
        "keep_old_running": bool(handover.detail.get("keep_old_running")),
        **_environment(record, handover.epoch, state),
        **_group_of(handover),
        **extras,
    }
    return Event(
        topology=record.topology,
        epoch=handover.epoch,
        event="moved",
        at=at,
        actor=handover.actor,
        reason=handover.reason,
        detail=detail,
    )


def _environment(record: TopologyRecord, epoch: int, state: BegunState) -> dict[str, str]:
    """The environment of the driver that takes over, and that in which somebody decided to run the epoch."""
    decision = record.environment_of(epoch)
    detail = {} if state.claim is None else state.claim.detail
    fields = {name: str(detail[name]) for name in ENVIRONMENT_FIELDS if name in detail}
    return fields | ({"in_environment": decision} if decision else {})


def _group_of(handover: Event) -> dict[str, Any]:
    """The fields of a row about its group; empty for a single topology."""
    return {name: handover.detail[name] for name in ("group", "together") if name in handover.detail}


def is_of(record: TopologyRecord, handover: Event) -> bool:
    """Whether a topology waits for this handover, or in its group."""
    pending = record.handover
    if pending is None:
        return False
    return pending.n == handover.n or (
        "group" in handover.detail and pending.detail.get("group") == handover.detail["group"]
    )
