"""The record of epochs for people and auditors: every move and decision with its plan, report and certificate.

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
    """One event with its documents.

    Attributes:
        n: position in the record, from 1.
        event: what happened; see :class:`kappa.record.epochs.Event`.
        actor: the person or program behind it.
        plan_id: id of the epoch's plan.
        offsets: its offset vector: the start of a plan, the place of a verification or a move; ``None`` for others.
        verdict: of a verification; of a handover or move the failed verdict that the request accepted.
        is_complete: whether the certificate of a move is complete; ``None`` for other events.
        plan: the plan, with the event that made it.
        report: the report of a verification.
        certificate: the certificate of a move.
        together: topology -> epoch of the others that it belongs to, of a handover, move or withdrawal of several.
        detail: all other fields.
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
        """Estimate and measurement, for the event that ended a replay's bulk work; empty otherwise."""
        if self.event != "replayed" or not {"measured", "estimate"} <= self.detail.keys():
            return ""
        return comparison(stored.read(Estimate, self.detail["estimate"]), Measured.from_dict(self.detail["measured"]))

    @property
    def interval(self) -> str:
        """Interval and outputs of a backfill; empty for other events."""
        if not self.event.startswith("backfill"):
            return ""
        begin, end = (datetime.fromisoformat(self.detail[name]) for name in ("from", "to"))
        return f"{', '.join(sorted(self.detail.get('outputs', ())))} from {utc(begin)} to {utc(end)}".strip()

    @property
    def set_aside(self) -> str:
        """The records of a decision to set some aside; empty for other events."""
        if self.event != "set_aside":
            return ""
        decision = {"decision": self.n, "reason": ""}
        return set_asides.described(set_asides.from_list({**one, **decision} for one in self.detail["records"]))

    @property
    def environment(self) -> str:
        """The environment of a move, of its request or of a start, in words; empty where none is on record."""
        decision, environment = (str(self.detail.get(name, "")) for name in ("in_environment", "environment"))
        if decision and environment in ("", decision):
            return f"in environment {decision[:12]}, by decision"
        if "instead_of" in self.detail:
            return f"in environment {environment[:12]} instead of its own, {self.detail['instead_of'][:12]}"
        return f"in environment {environment[:12]}" if environment else ""

    @property
    def reconciled(self) -> str:
        """Records that a move sent to topics of tables, in words; empty where it sent none."""
        counts: Mapping[str, Mapping[str, int]] = self.detail.get("reconciled", {})
        return "; ".join(
            f"{topic}: {count['upserts']:,} changed rows and {count['tombstones']:,} tombstones sent"
            for topic, count in counts.items()
        )


def entries(
    events: Iterable[Event], *, topology: str | None = None, epoch: int | None = None, since: datetime | None = None
) -> tuple[Entry, ...]:
    """Entries of a record, oldest first.

    Args:
        events: the whole record: the plan of an event is in the event that made its epoch.
        topology: only of this topology.
        epoch: only of epochs of this number.
        since: only from this time on.
    """
    plans: dict[tuple[str, int], str] = {}
    accepted: dict[int, str] = {}
    selection = []
    for event in events:
        of = (event.topology, event.epoch)
        if event.event == "planned" and "plan_id" in event.detail:
            plans[of] = event.detail["plan_id"]
        if "accepted_verdict" in event.detail:
            accepted[event.n] = event.detail["accepted_verdict"]
        is_match = topology in (None, event.topology) and epoch in (None, event.epoch)
        if is_match and (since is None or event.at >= since):
            handover = event.detail.get("handover") if event.event == "moved" else event.n
            selection.append(_entry(event, plans.get(of), accepted.get(handover) if handover is not None else None))
    return tuple(selection)


def vector(offsets: Offsets, most: int = 4) -> str:
    """An offset vector in one line; of more than ``most`` partitions only the first are written out."""
    parts = [f"{topic}[{partition}]={offset}" for (topic, partition), offset in offsets.items()]
    rest = f" and {len(parts) - most} more" if len(parts) > most else ""
    return (" ".join(parts[:most]) or "none") + rest


def _entry(event: Event, plan_id: str | None, accepted: str | None) -> Entry:
    documents = {name: _document(event.detail.get(name)) for name in _DOCUMENTS}
    report, certificate = documents["report"], documents["certificate"]
    # A move's "plan" is the plan's id, which the epoch has too.
    fields = ("plan_id", "together")
    rest = {name: value for name, value in event.detail.items() if documents.get(name) is None and name not in fields}
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
    document: dict[str, Any] = json.loads(text)
    return document


def _offsets(event: Event, report: Mapping[str, Any] | None) -> Offsets | None:
    match event.event:
        case "planned":
            offsets = event.detail.get("start")
        case "verified":
            offsets = report["at"] if report is not None else None
        case _:
            offsets = event.detail.get("at")
    return None if offsets is None else Offsets.from_json(offsets)
