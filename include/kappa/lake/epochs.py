"""The record of all epochs: who did what to which epoch, when and why; and the live pointer.

One append-only Delta table for all topologies. The pointer of a topology is its last ``moved`` row: one commit moves it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.errors import ConflictError, IllegalTransitionError
from kappa.lake.append_log import AppendLog
from kappa.lake.epoch_record import TopologyRecord, record_of
from kappa.lake.events import FORMAT, STAGE_OF, Event, EventKind, intent
from kappa.names import epochs_log
from kappa.replay import stored
from kappa.replay.dry_run import about_to
from kappa.replay.stages import Stage, check_transition

if TYPE_CHECKING:
    import pyarrow as pa


class Epochs:
    """The record of all epochs of a lake."""

    def __init__(self, lake: str) -> None:
        self._log = AppendLog(epochs_log(lake), _arrow_schema(), format=FORMAT, what="event")
        self._parsed: list[Event] = []
        self._lake_id = ""
        # A driver asks from the thread of its stream and from its own. Held from the look to the append that rests on it:
        # a look by the other thread in between would make an append seem to know rows that ``decide`` was not shown.
        self._lock = threading.RLock()

    def events(self) -> list[Event]:
        """All events of all topologies, oldest first, as they are now."""
        with self._lock:
            self._parsed.extend(map(_from_record, self._log.refresh()))
            return list(self._parsed)

    def lake_id(self) -> str:
        """The lake's id: that of the table that this record is. A copied or restored lake keeps it. Empty before the first event."""
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
        """What the record says of a topology now."""
        return record_of(topology, self.events())

    def append(self, decide: Callable[[list[Event]], Sequence[Event]]) -> list[Event]:
        """Append what ``decide`` makes of the present events, in one commit.

        ``decide`` sees all events and returns those to append: none when there is nothing to do, or raises to refuse.
        When somebody else appends in between it is asked again, so that the decision always rests on the latest record.

        Returns:
            The appended events.

        Raises:
            IllegalTransitionError: an event would bring an epoch to a stage that cannot follow its present one.
        """
        while True:
            with self._lock:
                known = self.events()
                chosen = list(decide(known))
                if not chosen:
                    return []
                for event in chosen:
                    _check(known, event)
                about_to(" and ".join(map(intent, chosen)))
                if not self._log.exists():
                    self._log.create()
                    continue  # another process may have created it, and appended, in between
                try:
                    written = self._log.append([_to_record(event) for event in chosen])
                except ConflictError:
                    continue
                self.events()
                return [_from_record(record) for record in written]

    def add(self, topology: str, epoch: int, event: EventKind, *, actor: str, reason: str = "", **detail: Any) -> Event:
        """Append one event without a condition of its own."""
        row = Event(
            topology=topology, epoch=epoch, event=event, at=clock.now(), actor=actor, reason=reason, detail=detail
        )
        return self.append(lambda _: [row])[0]


def _check(events: Sequence[Event], event: Event) -> None:
    record = record_of(event.topology, events)
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
