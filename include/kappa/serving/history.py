"""What the record of epochs says, for people and auditors: every move and decision with all that belongs to it.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kappa.offsets import set_asides
from kappa.offsets.notation import utc
from kappa.offsets.vector import Offsets
from kappa.record.events import Event
from kappa.record.moves import others_of
from kappa.replay import stored
from kappa.replay.estimates import Estimate, Measured, comparison

#: Parts of an event's detail that are documents of their own, kept there as JSON text.
_DOCUMENTS = ("plan", "report", "certificate")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One event with what is known of it.

    Attributes:
        n: position in the record, from 1.
        event: what happened; see :class:`kappa.record.epochs.Event`.
        actor: the person or program that asked for it.
        plan_id: id of the epoch's plan.
        offsets: the offset vector that belongs to it: the start of a plan, where a verification compared, where a move
            took place; ``None`` for other events.
        verdict: of a verification; of a handover or move the failed verdict that the request accepted.
        is_complete: whether the certificate of a move is complete; ``None`` for other events.
        plan: the plan, with the event that made it.
        report: the report of a verification.
        certificate: the certificate of a move.
        together: topology -> epoch of the others that it belongs to, of a handover, move or withdrawal of several.
        detail: whatever else was recorded.
    """

    n: int
    at: datetime
    topology: str
    epoch: int
    event: str
    actor: str
    reason: str
    plan_id: str | None = None
    offsets: Offsets | None = None
    verdict: str | None = None
    is_complete: bool | None = None
    plan: Mapping[str, Any] | None = None
    report: Mapping[str, Any] | None = None
    certificate: Mapping[str, Any] | None = None
    together: Mapping[str, int] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """Of the event that ended a replay's bulk work: what was estimated and what it was; empty otherwise."""
        if self.event != "replayed" or not {"measured", "estimate"} <= self.detail.keys():
            return ""
        return comparison(stored.read(Estimate, self.detail["estimate"]), Measured.from_dict(self.detail["measured"]))

    @property
    def interval(self) -> str:
        """Of a backfill the interval and the outputs; empty for other events."""
        if not self.event.startswith("backfill"):
            return ""
        begin, end = (datetime.fromisoformat(self.detail[name]) for name in ("from", "to"))
        return f"{', '.join(sorted(self.detail.get('outputs', ())))} from {utc(begin)} to {utc(end)}".strip()

    @property
    def set_aside(self) -> str:
        """Of a decision to set records aside, which; empty for other events."""
        if self.event != "set_aside":
            return ""
        said = {"decision": self.n, "reason": ""}
        return set_asides.described(set_asides.from_list({**one, **said} for one in self.detail["records"]))

    @property
    def reconciled(self) -> str:
        """What a move sent to topics of tables, in words; empty where it sent nothing."""
        counts: Mapping[str, Mapping[str, int]] = self.detail.get("reconciled", {})
        return "; ".join(
            f"{topic}: {found['upserts']:,} changed rows and {found['tombstones']:,} tombstones sent"
            for topic, found in counts.items()
        )


def entries(
    events: Iterable[Event], *, topology: str | None = None, epoch: int | None = None, since: datetime | None = None
) -> tuple[Entry, ...]:
    """Entries of a record, oldest first.

    Args:
        events: the whole record: an event names its plan only by the one that made its epoch.
        topology: only of this topology.
        epoch: only of epochs of this number.
        since: only from this time on.
    """
    plans: dict[tuple[str, int], str] = {}
    accepted: dict[int, str] = {}
    found = []
    for event in events:
        of = (event.topology, event.epoch)
        if event.event == "planned" and "plan_id" in event.detail:
            plans[of] = event.detail["plan_id"]
        if "accepted_verdict" in event.detail:
            accepted[event.n] = event.detail["accepted_verdict"]
        is_wanted = topology in (None, event.topology) and epoch in (None, event.epoch)
        if is_wanted and (since is None or event.at >= since):
            handover = event.detail.get("handover") if event.event == "moved" else event.n
            found.append(_entry(event, plans.get(of), accepted.get(handover) if handover is not None else None))
    return tuple(found)


def vector(offsets: Offsets, most: int = 4) -> str:
    """An offset vector in one line; of more than ``most`` partitions only the first are written out."""
    parts = [f"{topic}[{partition}]={offset}" for (topic, partition), offset in offsets.items()]
    rest = f" and {len(parts) - most} more" if len(parts) > most else ""
    return (" ".join(parts[:most]) or "none") + rest


def _entry(event: Event, plan_id: str | None, accepted: str | None) -> Entry:
    documents = {name: _document(event.detail.get(name)) for name in _DOCUMENTS}
    report, certificate = documents["report"], documents["certificate"]
    # A move's "plan" is the plan's id, which the epoch has too.
    known = ("plan_id", "together")
    rest = {name: value for name, value in event.detail.items() if documents.get(name) is None and name not in known}
    return Entry(
        n=event.n,
        at=event.at,
        topology=event.topology,
        epoch=event.epoch,
        event=event.event,
        actor=event.actor,
        reason=event.reason,
        plan_id=plan_id,
        offsets=_offsets(event, report),
        verdict=event.detail.get("verdict", accepted),
        is_complete=None if certificate is None else bool(certificate["complete"]),
        together=others_of(event.topology, event),
        detail=rest,
        **documents,
    )


def _document(text: Any) -> Mapping[str, Any] | None:
    if not isinstance(text, str) or not text.startswith("{"):
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def _offsets(event: Event, report: Mapping[str, Any] | None) -> Offsets | None:
    match event.event:
        case "planned":
            found = event.detail.get("start")
        case "verified":
            found = report["at"] if report is not None else None
        case _:
            found = event.detail.get("at")
    return None if found is None else Offsets.from_json(found)
