"""Moves and decisions on record, in words. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from kappa.offsets import set_asides
from kappa.offsets.vector import Offsets
from kappa.record.events import Event, records_of
from kappa.record.moves import others_of, rollbacks
from kappa.serving.history import vector

#: Event -> its words and colour. Other events are shown by name.
_WORDS = {
    "planned": ("planned", "busy"),
    "rewound": ("consumer group rewound", "off"),
    "seeded": ("seeded", "off"),
    "replayed": ("history computed", "off"),
    "caught_up": ("caught up", "off"),
    "verified": ("verified", "busy"),
    "approved": ("approved", "good"),
    "moved": ("went live", "good"),
    "dropped": ("removed", "off"),
    "aborted": ("aborted", "warn"),
    "handover": ("cutover requested", "busy"),
    "withdrawn": ("cutover withdrawn", "warn"),
    "asked": ("approval requested", "busy"),
    "rejected": ("rejected", "warn"),
    "reopened": ("resumed", "busy"),
    "recalled": ("comes back", "busy"),
    "released": ("retired again", "off"),
    "start": ("driver wanted", "off"),
    "stop": ("driver not wanted", "off"),
    "stuck": ("stuck", "bad"),
    "own_topics": ("took the names of its topics", "off"),
    "savepoint": ("savepoint named", "off"),
    "savepoint_dropped": ("savepoint dropped", "off"),
    "upgrade": ("upgrade requested", "busy"),
    "upgraded": ("upgraded", "good"),
    "backfill": ("backfill requested", "busy"),
    "backfilled": ("backfilled", "good"),
    "superseded": ("rebuilt in another lake", "warn"),
    "relocated": ("lake moved", "warn"),
    "set_aside": ("records set aside", "warn"),
    "set_aside_withdrawn": ("set aside too late", "bad"),
    "restored": ("commits of another program undone", "warn"),
}


@dataclass(frozen=True, kw_only=True)
class EventLine:
    """An event in words.

    Attributes:
        n: its number in the record.
        what: what happened.
        kind: its colour.
        facts: its details: offsets, verdict, certificate and the like.
    """

    n: int
    topology: str
    epoch: int
    at: datetime
    actor: str
    reason: str
    what: str
    kind: str
    facts: tuple[str, ...]


def event_lines(events: Sequence[Event], most: int, *, before: int | None = None) -> list[EventLine]:
    """The newest events in words, newest first.

    Args:
        events: all events, oldest first.
        most: largest number of lines.
        before: only events with a lower number.
    """
    back = rollbacks(events)
    newest_first = (event for event in reversed(events) if before is None or event.n < before)
    return [_line(event, is_rollback=event.n in back) for event in islice(newest_first, most)]


def _line(event: Event, *, is_rollback: bool) -> EventLine:
    what, kind = _WORDS.get(event.event, (event.event.replace("_", " "), "off"))
    if event.event == "verified":
        word = str(event.detail.get("verdict", ""))
        what, kind = f"verified: {word}", {"same": "good", "differs": "warn", "failed": "bad"}.get(word, "off")
    elif event.event == "moved" and event.detail.get("from") is not None:
        what, kind = ("rollback", "warn") if is_rollback else ("cutover", "good")
    return EventLine(
        n=event.n,
        topology=event.topology,
        epoch=event.epoch,
        at=event.at,
        actor=event.actor,
        reason=event.reason,
        what=what,
        kind=kind,
        facts=tuple(_facts(event)),
    )


def _facts(event: Event) -> Iterable[str]:
    detail = event.detail
    if event.event == "moved":
        before = detail.get("from")
        yield f"instead of epoch {before}" if before is not None else "the first one"
        if isinstance(detail.get("certificate"), str):
            complete = json.loads(detail["certificate"])["complete"]
            yield "certificate complete" if complete else "certificate NOT complete"
    if event.event in ("moved", "handover") and "at" in detail:
        yield f"at {vector(Offsets.from_json(detail['at']))}"
    if event.event == "planned":
        yield f"version {detail.get('version', '?')}, code {str(detail.get('code', ''))[:12]}"
    if "name" in detail and event.event.startswith("savepoint"):
        yield str(detail["name"])
    if event.event.startswith("backfill") and {"from", "to"} <= detail.keys():
        yield f"{detail['from']} to {detail['to']}"
    if event.event == "set_aside":
        yield set_asides.described(records_of(event))
    if others := others_of(event.topology, event):
        yield f"together with {', '.join(f'{name} epoch {epoch}' for name, epoch in others.items())}"
