"""The record of all topologies at one moment."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from kappa.record.epoch_record import TopologyRecord, record_of
from kappa.record.events import Event


@dataclass(frozen=True, kw_only=True)
class TopologyRecords:
    """The record of all topologies as of one look; that of a topology is built when it is asked for, once.

    Attributes:
        last: number of the last event.
        place: address at which the lake is, if it was ever moved; empty otherwise.
    """

    last: int = 0
    place: str = ""
    _events: Mapping[str, tuple[Event, ...]] = field(default_factory=dict, repr=False)
    _built: dict[str, TopologyRecord] = field(default_factory=dict, repr=False)

    @property
    def topologies(self) -> list[str]:
        """Names of the topologies on record, sorted."""
        return sorted(self._events)

    def of(self, topology: str) -> TopologyRecord:
        """The record of a topology; an empty one where nothing of it is on record."""
        if topology not in self._built:
            self._built[topology] = record_of(topology, self._events.get(topology, ()))
        return self._built[topology]

    def __iter__(self) -> Iterator[TopologyRecord]:
        """The records of all topologies, by name."""
        return map(self.of, self.topologies)

    def events(self) -> list[Event]:
        """All events of all topologies, oldest first."""
        return list(heapq.merge(*self._events.values(), key=attrgetter("n")))

    def long_ended(self, before: datetime) -> set[tuple[str, int]]:
        """Topologies and epochs that ended before a time, and were not rolled up."""
        return {
            (record.topology, epoch.epoch)
            for record in self
            for epoch in record.epochs.values()
            if epoch.stage.is_ended and not epoch.rolled_up
            if max(event.at for event in record.events if event.epoch == epoch.epoch) < before
        }

    def after(self, events: Iterable[Event]) -> TopologyRecords:
        """The record after more events; topologies that have none of them keep theirs."""
        new: dict[str, list[Event]] = {}
        last, place = self.last, self.place
        for event in events:
            new.setdefault(event.topology, []).append(event)
            last = event.n
            if event.event == "relocated":
                place = event.detail["to"]
        if not new:
            return self
        return TopologyRecords(
            last=last,
            place=place,
            _events={**self._events, **{name: (*self._events.get(name, ()), *own) for name, own in new.items()}},
            _built={name: record for name, record in self._built.items() if name not in new},
        )
