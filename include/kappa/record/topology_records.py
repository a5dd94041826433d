"""The record of all topologies at one moment, out of the rows of its table.

Rows become events when their topology is asked for, those of epochs that ended long ago when these are: most never do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from kappa.delta import row_files
from kappa.delta.row_files import python_rows
from kappa.record.epoch_record import EpochRecord, TopologyRecord, WholeRecord
from kappa.record.events import LASTING, STAGE_OF, Event, Rows, event_of, felt_rows, rows_by_topology
from kappa.replay.stages import COMPARED, Stage
from kappa.store.address import one_spelling

if TYPE_CHECKING:
    import pyarrow as pa

    from kappa.delta.row_files import LateColumn, LateRows

T = TypeVar("T")
K = TypeVar("K")


class TopologyEvents:
    """The events of one topology. May be used by several threads.

    Args:
        events: some of epochs that were not rolled up, oldest first.
        rows: rows of later ones of these.
        past: rows of epochs that were rolled up.
        late: gives more of those, that were not read; None where there are none.
    """

    def __init__(
        self,
        events: tuple[Event, ...] = (),
        *,
        rows: tuple[Rows, ...] = (),
        past: Rows | None = None,
        late: Callable[[], list[Event]] | None = None,
    ) -> None:
        self._parts = events, rows  # replaced as one: threads ask for the same events
        self._past, self._late = past, late

    def recent(self) -> tuple[Event, ...]:
        """Those of epochs that were not rolled up, oldest first."""
        events, rows = self._parts
        if rows:
            events = (*events, *(event for some in rows for event in some.events()))
            self._parts = events, ()
        return events

    def pending(self) -> tuple[Event, ...]:
        """Those, and of the others as many as it takes to tell what is live and pending; oldest first."""
        recent = self.recent()
        if not {event.epoch for event in recent} <= {event.epoch for event in recent if event.event == "planned"}:
            return self.whole()  # one has got an event since it was rolled up
        if self._past is None:
            return recent
        return _in_order(*recent, *felt_rows(self._past, recent[0].n if recent else None).events())

    def whole(self) -> tuple[Event, ...]:
        """All, oldest first."""
        past = [] if self._past is None else self._past.events()
        late = [] if self._late is None else self._late()
        return _in_order(*late, *past, *self.recent()) if past or late else self.recent()

    def record(self, topology: str) -> TopologyRecord:
        """The record of the topology."""
        has_past = self._past is not None or self._late is not None
        return record_of(topology, self.pending(), whole=self.whole if has_past else None)

    def with_rows(self, rows: Rows) -> TopologyEvents:
        """The same with more rows, of epochs that were not rolled up."""
        events, before = self._parts
        return TopologyEvents(events, rows=(*before, rows), past=self._past, late=self._late)

    def after(self, events: Sequence[Event]) -> TopologyEvents:
        """The same with later events."""
        return TopologyEvents((*self.recent(), *events), past=self._past, late=self._late)


@dataclass(frozen=True, kw_only=True)
class TopologyRecords:
    """The record of all topologies as of one look; that of a topology is built when it is asked for, once.

    Attributes:
        last: number of the last event.
        floor: number of the last event that was rolled up; 0 for none.
        place: address at which the lake is, if it was ever moved; empty otherwise.
    """

    last: int = 0
    floor: int = 0
    place: str = ""
    _events: Mapping[str, TopologyEvents] = field(default_factory=dict, repr=False)
    _built: dict[str, TopologyRecord] = field(default_factory=dict, repr=False)

    @property
    def topologies(self) -> list[str]:
        """Names of the topologies on record, sorted."""
        return sorted(self._events)

    def of(self, topology: str) -> TopologyRecord:
        """The record of a topology; an empty one where nothing of it is on record."""
        if topology not in self._built:  # two threads get the same one
            self._built.setdefault(topology, self._own(topology).record(topology))
        return self._built[topology]

    def __iter__(self) -> Iterator[TopologyRecord]:
        """The records of all topologies, by name."""
        return map(self.of, self.topologies)

    def events(self) -> list[Event]:
        """All events of all topologies, oldest first."""
        return list(heapq.merge(*(own.whole() for own in self._events.values()), key=attrgetter("n")))

    def long_ended(self, before: datetime) -> set[int]:
        """Numbers of the events of epochs that have ended and were in use before a time, and were not rolled up."""
        numbers: set[int] = set()
        for record in self:
            for number, events in _grouped(self._own(record.topology).recent(), attrgetter("epoch")).items():
                if _last_use(events) < before and record.epoch(number).stage.is_ended:
                    numbers.update(event.n for event in events)
        return numbers

    def after(self, events: Sequence[Event]) -> TopologyRecords:
        """The record after more events; topologies that have none of them keep theirs."""
        own = _grouped(events, attrgetter("topology"))
        return self._with({name: self._own(name).after(own[name]) for name in own}, events[-1].n, events)

    def with_rows(self, rows: pa.Table, *, floor: int, late: LateColumn, late_rows: LateRows) -> TopologyRecords:
        """The same with more rows of the table, in any order, and with the floor that belongs to them.

        Args:
            rows: the rows, without their documents.
            floor: number of the last event that was rolled up.
            late: the documents.
            late_rows: those of epochs that were rolled up that :func:`late_numbers` named then.
        """
        import pyarrow.compute as pc

        new: dict[str, TopologyEvents] = {}
        for name, is_past, own in rows_by_topology(rows, floor, late):
            past = partial(_past_events, late_rows, name) if late_rows.sizes() else None
            before = new.get(name) or self._events.get(name) or TopologyEvents(late=past)
            new[name] = TopologyEvents(past=own, late=past) if is_past else before.with_rows(own)
        relocations = list(map(event_of, python_rows(row_files.where(rows, "event", "relocated").sort_by("n"))))
        return replace(self._with(new, pc.max(rows["n"]).as_py(), relocations), floor=floor)

    def continues(self, before: TopologyRecords) -> bool:
        """Whether a record went on from another one, also where it was rolled up since."""
        own = {event.n: _identity(event) for event in self.events()}
        return self.last >= before.last and all(
            own.get(event.n, None if event.n > self.floor or event.event in LASTING else _identity(event))
            == _identity(event)
            for event in before.events()
        )

    def _own(self, topology: str) -> TopologyEvents:
        return self._events.get(topology) or TopologyEvents()

    def _with(self, new: Mapping[str, TopologyEvents], last: int, events: Iterable[Event]) -> TopologyRecords:
        built = {name: record for name, record in self._built.copy().items() if name not in new}
        places = [event.detail["to"] for event in events if event.event == "relocated"]
        place = one_spelling(places[-1]) if places else self.place
        return replace(self, last=last, place=place, _events={**self._events, **new}, _built=built)


def _past_events(late_rows: LateRows, topology: str) -> list[Event]:
    return list(map(event_of, late_rows.of(topology)))


#: An epoch that catches up and is compared once more: its report says nothing of what changed since.
_COMPARED_ANEW: Mapping[str, Any] = {"stage": Stage.REPLAYED, "verified": None}
#: Wishes of people and schedulers about an epoch, as fields of its record.
_WISHES: Mapping[str, Mapping[str, Any]] = {
    "start": {"is_wanted": True},
    "stop": {"is_wanted": False},
    "recalled": {"is_wanted": True, "is_recalled": True},
}

#: Fields of an epoch's record that are events by number while it is made: there may be many.
_DECISIONS = ("backfills", "backfilled", "set_asides")


def record_of(
    topology: str, events: Sequence[Event], *, whole: Callable[[], Sequence[Event]] | None = None
) -> TopologyRecord:
    """The record of one topology, out of events.

    Args:
        topology: the topology.
        events: its events, or as many as it takes to tell what is live and pending.
        whole: gives all of them; None where these are all.
    """
    own = [event for event in events if event.topology == topology]
    epochs: dict[int, dict[str, Any]] = {}
    live: int | None = None
    handover: Event | None = None
    moves = []
    savepoints: dict[str, Event] = {}
    for event in own:
        if event.event == "planned":
            epochs[event.epoch] = {"epoch": event.epoch, "planned": event, **{name: {} for name in _DECISIONS}}
        entry = epochs[event.epoch]
        if event.event in STAGE_OF:
            entry["stage"] = STAGE_OF[event.event]
        entry.update(_WISHES.get(event.event, {}))
        match event.event:
            case "own_topics" | "seeded" | "replayed" | "verified":
                entry[event.event] = event
            case "approved":
                entry["approvals"] = (*entry.get("approvals", ()), event)
            case "rejected":
                entry.update(rejected=event, approvals=(), is_wanted=False, stage=Stage.VERIFIED)
            case "reopened":
                entry.update(_reopened(entry, live))
            case "released":
                entry.update(is_recalled=False, is_wanted=False, stage=Stage.RETIRED)
                handover = None if handover is not None and handover.epoch == event.epoch else handover
            case "handover" | "withdrawn":
                handover = event if event.event == "handover" else None
            case "upgrade" | "upgrade_withdrawn":
                entry["upgrade"] = event if event.event == "upgrade" else None
            case "upgraded":
                entry.update(upgrade=None, upgraded=(*entry.get("upgraded", ()), event))
            case "backfill" | "backfilled" | "backfill_withdrawn" | "set_aside" | "set_aside_withdrawn":
                _decide(entry, event)
            case "superseded":
                entry.update(is_wanted=False, superseded=event)
            case "savepoint" | "savepoint_dropped":
                _name(savepoints, event)
            case "aborted" | "dropped":
                entry.update(is_wanted=False, is_recalled=False)
                if handover is not None and handover.epoch == event.epoch:
                    handover = None
            case "moved":
                moves.append(event)
                handover = None
                _retire(epochs, live, event)
                entry.update(moved=event, is_recalled=False, is_wanted=True)
                live = event.epoch
    records = {
        number: EpochRecord(**entry | {name: tuple(entry[name].values()) for name in _DECISIONS})
        for number, entry in epochs.items()
    }
    return TopologyRecord(
        topology=topology,
        live=live,
        recent={number: epoch for number, epoch in records.items() if not epoch.rolled_up},
        recent_events=tuple(event for event in own if not records[event.epoch].rolled_up),
        handover=handover,
        standing=_standing(own, handover),
        last_move=moves[-1] if moves else None,
        savepoints=savepoints,
        make_whole=lambda: (
            WholeRecord(epochs=records, moves=tuple(moves), events=tuple(own))
            if whole is None
            else record_of(topology, whole()).make_whole()
        ),
    )


def _retire(epochs: Mapping[int, dict[str, Any]], live: int | None, move: Event) -> None:
    """Retire the epoch that was live before a move to another one."""
    if live is not None and live != move.epoch:
        epochs[live].update(stage=Stage.RETIRED, upgrade=None, is_wanted=bool(move.detail.get("keep_old_running")))


def _reopened(entry: Mapping[str, Any], live: int | None) -> dict[str, Any]:
    """A rejected epoch that is taken up again; compared anew where another epoch than it was compared with is live."""
    verified = entry.get("verified")
    is_stale = verified is None or verified.detail.get("live_epoch", live) != live
    return {"is_wanted": True, "rejected": None, **(_COMPARED_ANEW if is_stale else {})}


def _decide(entry: dict[str, Any], event: Event) -> None:
    """Take in a decision about an epoch, or how one ended; a candidate that sets others aside is compared anew."""
    match event.event:
        case "backfill" | "set_aside":
            entry[f"{event.event}s"][event.n] = event
        case "set_aside_withdrawn":
            entry["set_asides"].pop(event.detail["set_aside"], None)
        case _:
            entry["backfills"].pop(event.detail["backfill"], None)
            if event.event == "backfilled":
                entry["backfilled"][event.n] = event
    is_aside = event.event in ("set_aside", "set_aside_withdrawn")
    if is_aside and entry["stage"] in COMPARED and not entry.get("is_recalled"):
        entry.update(_COMPARED_ANEW)


def _name(savepoints: dict[str, Event], event: Event) -> None:
    if event.event == "savepoint":
        savepoints[event.detail["name"]] = event
    else:
        savepoints.pop(event.detail["name"], None)


def _standing(events: Sequence[Event], handover: Event | None) -> Event | None:
    if handover is None or "together" not in handover.detail:
        return None
    standings = (e for e in reversed(events) if e.event == "standing" and e.detail["handover"] == handover.n)
    return next(standings, None)


def _last_use(events: Sequence[Event]) -> datetime:
    """The time of the last event of an epoch; its removal after it was live is none: nobody waits for that."""
    return max(event.at for event in events if event.event != "dropped")


def _identity(event: Event) -> tuple[str, int, str, datetime]:
    """What of an event a roll-up leaves as it is."""
    return event.topology, event.epoch, event.event, event.at


def _in_order(*events: Event) -> tuple[Event, ...]:
    return tuple(sorted(events, key=attrgetter("n")))


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
