"""The record of all topologies at one moment."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from kappa.record.epoch_record import TopologyRecord, record_of
from kappa.record.events import LASTING, Event
from kappa.replay import stored

T = TypeVar("T")
K = TypeVar("K")
#: A row of the record as the table has it.
Row = Mapping[str, Any]


def event_of(row: Row) -> Event:
    """The event of a row."""
    return stored.read(Event, {**row, "detail": json.loads(row.get("detail") or "{}")})


class TopologyEvents:
    """The events of one topology, oldest first; rows are parsed when they are asked for: most never are."""

    def __init__(self, events: tuple[Event, ...] = (), rows: tuple[Row, ...] = ()) -> None:
        self._parts = events, rows  # replaced as one: threads ask for the same events

    def parsed(self) -> tuple[Event, ...]:
        """The events."""
        events, rows = self._parts
        if rows:
            events = (*events, *map(event_of, rows))
            self._parts = events, ()
        return events

    def with_rows(self, rows: Iterable[Row]) -> TopologyEvents:
        """The same with more rows."""
        events, before = self._parts
        return TopologyEvents(events, (*before, *rows))


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
            self._built.setdefault(topology, record_of(topology, self._own(topology).parsed()))
        return self._built[topology]

    def __iter__(self) -> Iterator[TopologyRecord]:
        """The records of all topologies, by name."""
        return map(self.of, self.topologies)

    def events(self) -> list[Event]:
        """All events of all topologies, oldest first."""
        return list(heapq.merge(*(own.parsed() for own in self._events.values()), key=attrgetter("n")))

    def long_ended(self, before: datetime) -> set[int]:
        """Numbers of the events of epochs that ended before a time, and were not rolled up."""
        numbers: set[int] = set()
        for record in self:
            for number, events in _grouped(record.events, attrgetter("epoch")).items():
                epoch = record.epoch(number)
                if events[-1].at < before and epoch.stage.is_ended and not epoch.rolled_up:
                    numbers.update(event.n for event in events)
        return numbers

    def after(self, events: Sequence[Event]) -> TopologyRecords:
        """The record after more events; topologies that have none of them keep theirs."""
        own = _grouped(events, attrgetter("topology"))
        new = {name: TopologyEvents((*self._own(name).parsed(), *own[name])) for name in own}
        return self._with(new, events[-1].n, events)

    def with_rows(self, rows: Sequence[Row], *, floor: int) -> TopologyRecords:
        """The same with more rows of the table, oldest first, and with the floor that belongs to them."""
        own = _grouped(rows, itemgetter("topology"))
        new = {name: self._own(name).with_rows(own[name]) for name in own}
        relocations = [event_of(row) for row in rows if row["event"] == "relocated"]
        return replace(self._with(new, rows[-1]["n"], relocations), floor=floor)

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
        place = places[-1] if places else self.place
        return replace(self, last=last, place=place, _events={**self._events, **new}, _built=built)


def _identity(event: Event) -> tuple[str, int, str, datetime]:
    """What of an event a roll-up leaves as it is."""
    return event.topology, event.epoch, event.event, event.at


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
