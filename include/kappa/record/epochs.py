"""The record of all epochs: each act with epoch, actor, time and reason; and the live pointer.

One append-only Delta table for all topologies. The pointer of a topology is its last ``moved`` row: one commit moves
it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from shlex import quote
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.acts import Effect
from kappa.delta.append_log import AppendLog
from kappa.errors import ConflictError, IllegalTransitionError, LakeMovedError
from kappa.names import epochs_log
from kappa.record.epoch_record import TopologyRecord, record_of
from kappa.record.events import FORMAT, STAGE_OF, Event, EventKind, intent
from kappa.replay import stored
from kappa.replay.stages import Stage, check_transition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Now:
    """The record as one decision sees it.

    Attributes:
        topology: the topology that is decided about.
        events: all events of all topologies, oldest first.
    """

    topology: str
    events: tuple[Event, ...]
    _records: dict[str, TopologyRecord] = field(default_factory=dict, repr=False)

    @property
    def record(self) -> TopologyRecord:
        """The record of the topology."""
        return self.of(self.topology)

    def of(self, topology: str) -> TopologyRecord:
        """The record of some topology; built from the events once."""
        if topology not in self._records:
            self._records[topology] = record_of(topology, self.events)
        return self._records[topology]

    def after(self, events: Sequence[Event]) -> Now:
        """The record as it would be with more events."""
        last = self.events[-1].n if self.events else 0
        numbered = (replace(event, n=last + index) for index, event in enumerate(events, start=1))
        return Now(topology=self.topology, events=(*self.events, *numbered))

    @cached_property
    def at(self) -> datetime:
        """The time of the decision, UTC: all its events have the same."""
        return clock.now()

    def event(
        self,
        kind: EventKind,
        epoch: int,
        *,
        actor: str,
        reason: str = "",
        detail: Mapping[str, Any] | None = None,
        topology: str = "",
    ) -> Event:
        """An event of the topology, or of another one, at the time of the decision."""
        return Event(
            topology=topology or self.topology,
            epoch=epoch,
            event=kind,
            at=self.at,
            actor=actor,
            reason=reason,
            detail=detail or {},
        )


#: A decision: the events to append for a record; none when there is nothing to do. It raises to refuse.
Decision = Callable[[Now], Sequence[Event]]


class Epochs:
    """The record of all epochs of a lake.

    Args:
        lake: its address.
        is_anywhere: whether to read it also where it says that the lake is at another address: for copies of lakes.
    """

    def __init__(self, lake: str, *, is_anywhere: bool = False) -> None:
        self._lake = lake
        self._is_anywhere = is_anywhere
        self._place = ""
        self._log = AppendLog(epochs_log(lake), _arrow_schema(), format=FORMAT, what="event")
        self._parsed: list[Event] = []
        self._lake_id = ""
        # A driver asks from the thread of its stream and from its own. Held from the look to the append that rests on
        # it: a look by the other thread in between would make an append seem to know rows that ``decide`` was not
        # shown.
        self._lock = threading.RLock()

    def events(self) -> list[Event]:
        """All events of all topologies, oldest first, as they are now.

        Raises:
            LakeMovedError: the lake is at another address.
        """
        with self._lock:
            events = list(map(_from_record, self._log.refresh()))
            self._parsed.extend(events)
            self._place = next((e.detail["to"] for e in reversed(events) if e.event == "relocated"), self._place)
            if self._place not in ("", self._lake) and not self._is_anywhere:
                raise moved(self._lake, self._place)
            return list(self._parsed)

    def place(self) -> str:
        """The address at which the lake is, if it was ever moved; empty otherwise."""
        self.events()
        return self._place

    def exists(self) -> bool:
        """Whether the record is there."""
        return self._log.exists()

    def lake_id(self) -> str:
        """The lake's id: that of the table of this record.

        A copied or restored lake keeps it. Empty before the first event.
        """
        if not self._lake_id:
            self._lake_id = self._log.table_id()
        return self._lake_id

    def establish(self) -> str:
        """Create the record, if there is none, and with it the lake's id; the id. Idempotent."""
        self._log.create()
        return self.lake_id()

    def topologies(self) -> list[str]:
        """Names of the topologies on record, sorted."""
        return sorted({event.topology for event in self.events()})

    def record(self, topology: str) -> TopologyRecord:
        """The record of a topology now."""
        return record_of(topology, self.events())

    def now(self, topology: str) -> Now:
        """The record as a decision about a topology would see it."""
        return Now(topology=topology, events=tuple(self.events()))

    def effects(
        self, now: Now, decide: Decision, *, what: str = "", after: Callable[[list[Event]], object] = lambda _: None
    ) -> tuple[tuple[Effect, ...], Now]:
        """What :meth:`change` would do as an effect, none where there is nothing to do; and the record after it.

        When it is made it is decided again, for the record of then.

        Args:
            what: the effect in words; empty for those of the events.
            after: called with the events that were appended.

        Raises:
            IllegalTransitionError: as :meth:`change`.
        """
        events = _decided(now, decide)
        if not events:
            return (), now
        named = [{"topology": event.topology, "epoch": event.epoch, "event": event.event} for event in events]
        together = ", all in one commit" if len(events) > 1 else ""
        effect = Effect(
            what=what or " and ".join(map(intent, events)) + together,
            values={"events": named},
            make=lambda: after(self.change(now.topology, decide)),
        )
        return (effect,), now.after(events)

    def change(self, topology: str, decide: Decision) -> list[Event]:
        """Compare-and-set: append the events that ``decide`` returns for the present record, in one commit.

        After an append by another process it is called again, so that the decision always rests on the latest record.

        Args:
            topology: the topology that is decided about.
            decide: the decision; it sees no more of the record than its argument.

        Returns:
            The appended events.

        Raises:
            IllegalTransitionError: an event would bring an epoch to a stage that cannot follow its present one.
        """
        while True:
            with self._lock:
                events = _decided(self.now(topology), decide)
                if not events:
                    return []
                if not self._log.exists():
                    self._log.create()
                    continue  # another process may have created it, and appended, in between
                try:
                    records = self._log.append([_to_record(event) for event in events])
                except ConflictError:
                    continue
                self.events()
                return [_from_record(record) for record in records]

    def add(self, topology: str, epoch: int, event: EventKind, *, actor: str, reason: str = "", **detail: Any) -> Event:
        """Append one event without a condition of its own."""
        return self.change(topology, lambda now: [now.event(event, epoch, actor=actor, reason=reason, detail=detail)])[
            0
        ]


def moved(lake: str, place: str) -> LakeMovedError:
    """The error of whoever looks for a lake where it was."""
    return LakeMovedError(
        f"The lake {lake} has moved to {place}: nothing is read or written here any more. Set "
        f"KAPPA_LAKE={quote(place)}. If that address names this lake, or the one there is to be given up: kappa lake "
        "open",
        lake=lake,
        to=place,
    )


def _decided(now: Now, decide: Decision) -> list[Event]:
    events = list(decide(now))
    for event in events:
        _check(now, event)
    return events


def _check(now: Now, event: Event) -> None:
    record = now.of(event.topology)
    if event.event == "planned":
        if event.epoch in record.epochs:
            raise IllegalTransitionError(f"Epoch {event.epoch} of {event.topology!r} is planned already.")
        return
    stage = record.epoch(event.epoch).stage
    if event.event in STAGE_OF:
        is_recalled = record.epoch(event.epoch).is_recalled
        check_transition(stage, STAGE_OF[event.event], has_live=record.live is not None, is_recalled=is_recalled)
    elif event.event == "recalled" and stage is not Stage.RETIRED:
        raise IllegalTransitionError(
            f"Epoch {event.epoch} of {event.topology!r} is {stage.name}; only a RETIRED epoch can be recalled."
        )


def _arrow_schema() -> pa.Schema:
    import pyarrow as pa

    text = {name: pa.string() for name in ("topology", "event", "actor", "reason", "detail")}
    return pa.schema({"n": pa.int64(), "epoch": pa.int64(), **text, "at": pa.timestamp("us", "UTC")})


def _to_record(event: Event) -> dict[str, Any]:
    record = {name: getattr(event, name) for name in event.__dataclass_fields__ if name != "n"}
    return {**record, "detail": json.dumps(record["detail"])}


def _from_record(record: Mapping[str, Any]) -> Event:
    return stored.read(Event, {**record, "detail": json.loads(record.get("detail") or "{}")})
