"""The record of all epochs: each act with epoch, actor, time and reason; and the live pointer.

One append-only Delta table for all topologies. The pointer of a topology is its last ``moved`` row: one commit moves
it.
"""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.acts import Effect
from kappa.delta import row_files
from kappa.delta.append_log import AppendLog
from kappa.delta.row_files import python_rows
from kappa.errors import ConflictError, IllegalTransitionError, LakeMovedError, first_line
from kappa.faults import crash_point
from kappa.names import epochs_history, epochs_log
from kappa.record.epoch_record import TopologyRecord
from kappa.record.events import FORMAT, STAGE_OF, Event, EventKind, event_of, intent, lasting, late_numbers, row_of
from kappa.record.topology_records import TopologyRecords, record_of
from kappa.replay import stored
from kappa.replay.stages import Stage, check_transition
from kappa.store.address import is_remote

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Now:
    """The record as one decision sees it.

    Attributes:
        topology: the topology that is decided about.
        records: the record of all topologies.
    """

    topology: str
    records: TopologyRecords

    @property
    def record(self) -> TopologyRecord:
        """The record of the topology."""
        return self.of(self.topology)

    def of(self, topology: str) -> TopologyRecord:
        """The record of some topology."""
        return self.records.of(topology)

    def after(self, events: Sequence[Event]) -> Now:
        """The record as it would be with more events."""
        numbered = [replace(event, n=self.records.last + index) for index, event in enumerate(events, start=1)]
        return Now(topology=self.topology, records=self.records.after(numbered)) if numbered else self

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
    """The record of all epochs of a lake: one object per process and lake, from :func:`epochs_of`.

    Each look reads what was appended since the last one.

    Args:
        lake: its address.
        is_anywhere: whether to read it also where it says that the lake is at another address: for copies of lakes.
    """

    def __init__(self, lake: str, *, is_anywhere: bool = False) -> None:
        self._lake = lake
        self._is_anywhere = is_anywhere
        self._log = AppendLog(
            epochs_log(lake),
            _arrow_schema(),
            format=FORMAT,
            what="event",
            is_rewritten=True,
            properties={stored.LAKE_FORMAT_PROPERTY: str(stored.LAKE_FORMAT)},
            check=partial(stored.check_lake, lake=lake),
            late="document",
            late_by="topology",
        )
        self._records = TopologyRecords()
        self._looked = -math.inf
        self._lake_id = ""
        # A driver asks from the thread of its stream and from its own. Held from the look to the append that rests on
        # it: a look by the other thread in between would make an append seem to know rows that ``decide`` was not
        # shown.
        self._lock = threading.RLock()

    def records(self, *, age_seconds: float = 0.0) -> TopologyRecords:
        """The record of all topologies now, or as of a look that is not older than this.

        Raises:
            LakeMovedError: the lake is at another address.
            NewerFormatError: its format is one of newer code.
        """
        with self._lock:
            if time.monotonic() - self._looked >= age_seconds:
                self._look()
            if self._records.place not in ("", self._lake) and not self._is_anywhere:
                raise moved(self._lake, self._records.place)
            return self._records

    def _look(self) -> None:
        started, rows = time.monotonic(), self._log.new_rows()
        if self._log.is_anew:  # also where epochs were rolled up: their documents go from memory too
            self._records, self._lake_id = TopologyRecords(), ""
        if rows.num_rows:
            late, late_rows = self._log.late, self._log.late_rows
            self._records = self._records.with_rows(rows, floor=self._log.floor, late=late, late_rows=late_rows)
        self._looked = started

    def events(self) -> list[Event]:
        """All events of all topologies, oldest first, as they are now.

        Raises:
            LakeMovedError: the lake is at another address.
        """
        return self.records().events()

    def place(self) -> str:
        """The address at which the lake is, if it was ever moved; empty otherwise."""
        return self.records().place

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

    def continues(self, before: Epochs) -> bool:
        """Whether this is the record of the same lake and went on from another one, also where it was rolled up since.

        Args:
            before: the other one: it may be as of an address at which the lake was, or from which it was copied.
        """
        own, others = self.records(), before.records()
        is_same_lake = self.lake_id() == before.lake_id() != ""
        return is_same_lake and own.continues(others)

    def establish(self) -> str:
        """Create the record, if there is none, and with it the lake's id; the id. Idempotent."""
        self._log.create()
        return self.lake_id()

    def topologies(self) -> list[str]:
        """Names of the topologies on record, sorted."""
        return self.records().topologies

    def record(self, topology: str) -> TopologyRecord:
        """The record of a topology now."""
        return self.records().of(topology)

    def now(self, topology: str) -> Now:
        """The record as a decision about a topology would see it."""
        return Now(topology=topology, records=self.records())

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
                    records = self._log.append([row_of(event) for event in events])
                except ConflictError:
                    continue
                self._looked = -math.inf
                self._roll_up(events)
                return [event_of(record) for record in records]

    def history(self, topology: str | None = None) -> list[Event]:
        """All events ever, oldest first; those of epochs that ended long ago are read from files.

        Args:
            topology: of this topology; None for all.
        """
        records = self.records()
        selection = list(records) if topology is None else [records.of(topology)]
        events = {event.n: event for record in selection for event in record.events}
        for name in sorted({epoch.rolled_up for record in selection for epoch in record.epochs.values()} - {""}):
            rows = row_files.table(epochs_history(self._lake), name, format=FORMAT, what="event")
            if topology is not None:
                rows = row_files.where(rows, "topology", topology)
            events |= {event.n: event for event in map(event_of, python_rows(rows))}
        return [events[n] for n in sorted(events)]

    def whole_record(self, topology: str) -> TopologyRecord:
        """The record of a topology with all events of epochs that ended long ago, which are read from files."""
        return record_of(topology, self.history(topology))

    @property
    def rolled_up_to(self) -> int:
        """Number of the last event that was rolled up, as of the last look; 0 for none."""
        return self._records.floor

    def _roll_up(self, events: Sequence[Event]) -> None:
        """Roll up epochs that ended long ago, where there are enough of them and another one has ended.

        Their events go into a file; then, in one commit, the record keeps a few of them without documents. A crash
        leaves the record as it was, and perhaps a file that nothing names, or rolled up. A failure harms nobody: the
        next epoch that ends brings another attempt.
        """
        if not any(event.event in ("aborted", "dropped") for event in events):
            return
        try:
            numbers = self.records().long_ended(clock.now() - EVENTS_STAY)
            if len(numbers) >= ROLL_UP_EVENTS:
                self._roll_up_events(numbers)
        except Exception as error:
            import structlog

            structlog.get_logger(__name__).warning("not rolled up", path=self._log.path, error=first_line(error))

    def _roll_up_events(self, numbers: set[int]) -> None:
        import pyarrow as pa

        # Random: the file is of this process alone. Where the record does not name it, it goes after a day.
        name = f"{max(numbers):012d}-{secrets.token_hex(4)}"
        folder, rows, schema = epochs_history(self._lake), self._log.rows(), self._log.full_schema()
        rolled_up = [row for row in rows if row["n"] in numbers]
        row_files.keep(folder, name, rolled_up, schema)
        crash_point("record.history")
        stay = [row for row in (lasting(row, name) if row["n"] in numbers else row for row in rows) if row is not None]
        late = late_numbers(pa.Table.from_pylist(stay, schema))
        late_rows = sorted((row for row in stay if row["n"] in late), key=itemgetter("topology"))
        # Where clocks differ these may all be older than those of the last roll-up, whose numbers are gone.
        floor = max(*numbers, self._log.floor + 1)
        self._log.replace([row for row in stay if row["n"] not in late], [], floor, late_rows)
        row_files.keep(folder, name, rolled_up, schema)  # a host that slept for a day finds it removed
        crash_point("record.rolled_up")
        self.records()

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


#: How long all events of an epoch that ended stay on record after the last one, its removal apart.
EVENTS_STAY = timedelta(days=1)
#: How many events of such epochs are rolled up at once: the whole record is written for it.
ROLL_UP_EVENTS = 1_000
#: Lakes whose record a process keeps: it serves one, and a rebuild or a comparison reads a second one.
_LAKES = 4


def epochs_of(lake: str) -> Epochs:
    """The record of a lake in this process. Where there is none yet, or none any more, nothing of it is kept."""
    if not is_remote(lake) and not Path(epochs_log(lake), "_delta_log").is_dir():
        return Epochs(lake)
    return _epochs_of(lake)


@lru_cache(maxsize=_LAKES)
def _epochs_of(lake: str) -> Epochs:
    return Epochs(lake)


# A lock or a table that another thread is using would stay so in a child of this process.
os.register_at_fork(after_in_child=_epochs_of.cache_clear)


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

    text = {name: pa.string() for name in ("topology", "event", "actor", "reason", "detail", "document")}
    return pa.schema({"n": pa.int64(), "epoch": pa.int64(), **text, "at": pa.timestamp("us", "UTC")})
