"""Joins in plain Python: random logs of two sources, cut by arrival, and what the operators must make of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kappa.testing import Input

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Event:
    """A record of one of two sources, and where it lies once it is placed.

    Attributes:
        topic: its source.
        id: what is joined; None for a row without a key.
        value: what tells it from others; None for a null value, which deletes the id.
        at: its event time, epoch milliseconds.
        sent: Kafka's timestamp.
        frontier: the frontier at the record.
    """

    topic: str
    id: str | None
    value: int | None
    at: int
    sent: int
    partition: int = 0
    offset: int = -1
    order_ms: int = -1
    frontier: int = 0

    @property
    def input(self) -> Input:
        """The record as a driver takes it."""
        value = None if self.value is None else {"id": self.id, "value": self.value, "at": self.at}
        key = None if self.id is None else self.id.encode()
        return Input(topic=self.topic, value=value, key=key, partition=self.partition, timestamp_ms=self.sent)

    @property
    def order(self) -> tuple[int, str, int, int]:
        """Its place in the total order."""
        return (self.order_ms, self.topic, self.partition, self.offset)

    @property
    def place(self) -> dict[str, Any]:
        """The same as columns."""
        return {
            "_topic": self.topic,
            "_partition": self.partition,
            "_offset": self.offset,
            "_order_timestamp": moment(self.order_ms),
        }

    @property
    def is_admitted(self) -> bool:
        """Whether it has a key and is not late."""
        return self.id is not None and self.is_in_time

    @property
    def is_in_time(self) -> bool:
        """Whether it is not late."""
        return self.at >= self.frontier


def moment(millis: int) -> datetime:
    """Epoch milliseconds as a time."""
    return EPOCH + timedelta(milliseconds=millis)


def logs(
    chance: random.Random, topics: Sequence[str], *, records: int, partitions: int = 2, tombstones: str = ""
) -> dict[str, list[Event]]:
    """Records of each topic in the order in which they were sent; times go back and forth, some far back.

    Args:
        tombstones: the topic of which some records have no value; each of its records has a key.
    """
    topic_logs: dict[str, list[Event]] = {}
    number = 0
    for topic in topics:
        clocks = [chance.randint(-4, 4) * 250 for _ in range(partitions)]
        sent = [max(clock, 0) for clock in clocks]
        topic_logs[topic] = []
        for _ in range(records):
            at = chance.randrange(partitions)
            clocks[at] += chance.choice([0, 0, 250, 500, 1000, 2500])
            sent[at] = max(sent[at], clocks[at]) + chance.choice([0, 1, 7])
            number += 1
            is_tombstone = topic == tombstones and chance.random() < 0.25
            late = 0 if is_tombstone else chance.choice([0, 0, 0, 250, 500, 1000, 3000, 8000])
            topic_logs[topic].append(
                Event(
                    topic=topic,
                    id=chance.choice("aaabbc") if topic == tombstones else chance.choice(["a", "a", "b", "c", None]),
                    value=None if is_tombstone else number,
                    at=sent[at] if is_tombstone else clocks[at] - late,
                    sent=sent[at],
                    partition=at,
                )
            )
            clocks[at] = max(clocks[at], topic_logs[topic][-1].at)
    return topic_logs


def arrivals(
    chance: random.Random, topic_logs: dict[str, list[Event]], *, slices: int, behind: str = ""
) -> list[list[Event]]:
    """Cuts of the logs by arrival: how much of each partition a slice has is random.

    Args:
        behind: the topic of which nothing arrives in the first half of the slices.
    """
    queues: dict[tuple[str, int], list[Event]] = {}
    for events in topic_logs.values():
        for event in events:
            queues.setdefault((event.topic, event.partition), []).append(event)
    batches: list[list[Event]] = []
    for number in range(slices):
        batch: list[Event] = []
        for (topic, _), queue in queues.items():
            if topic == behind and number < slices // 2:
                continue
            count = len(queue) if number == slices - 1 else chance.randint(0, 2 * len(queue) // (slices - number))
            batch += queue[:count]
            del queue[:count]
        batches.append(batch)
    return batches


def closing(topics: Iterable[str], *, partitions: int = 2, at: int = 10**6) -> list[Event]:
    """A record in each partition, far behind all others: everything that waits is due."""
    return [
        Event(topic=topic, id="z", value=0, at=at, sent=at, partition=number)
        for topic in topics
        for number in range(partitions)
    ]


@dataclass(kw_only=True)
class Placing:
    """Gives records their offsets, their place in the total order and the frontier at them, slice after slice.

    Attributes:
        grace: topic -> how late a record may be, milliseconds.
        partitions: how many each topic has; a frontier waits for all of them.
    """

    grace: dict[str, int]
    partitions: int = 2
    _offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    _order: dict[tuple[str, int], int] = field(default_factory=dict)
    _stream: dict[tuple[str, int], int] = field(default_factory=dict)

    def place(self, batch: Iterable[Event]) -> Iterator[Event]:
        """The records with their places."""
        for event in batch:
            at = (event.topic, event.partition)
            self._order[at] = max(event.sent, self._order.get(at, event.sent))
            own = event.at
            if event.value is None:  # it has no time of its own, moves nothing, and lies where its partition stands
                own = min(event.sent, self._stream.get(at, event.sent))
            else:
                self._stream[at] = max(own, self._stream.get(at, own))
            self._offsets[at] = self._offsets.get(at, -1) + 1
            frontier = self._stream.get(at, own) - self.grace[event.topic]
            yield replace(event, at=own, offset=self._offsets[at], order_ms=self._order[at], frontier=frontier)

    def frontier(self, topic: str) -> int | None:
        """The frontier behind what was placed."""
        reached = [time for (name, _), time in self._stream.items() if name == topic]
        return min(reached) - self.grace[topic] if len(reached) == self.partitions else None


@dataclass(frozen=True, kw_only=True)
class Joined:
    """What an interval join gives of all records so far; a function of the set, which no cut has a part in.

    Attributes:
        rows: (left, right) of pairs and of rows without a partner.
        left: left rows that may still have a partner, with whether they have had one.
        right: the same on the right.
    """

    rows: list[tuple[Event | None, Event | None]]
    left: dict[Event, bool]
    right: dict[Event, bool]


def interval_joined(
    left: Iterable[Event],
    right: Iterable[Event],
    *,
    before: int,
    after: int,
    how: str,
    left_frontier: int | None,
    right_frontier: int | None,
) -> Joined:
    """The interval join of all records up to a slice's end, by its definition."""
    lefts = [event for event in left if event.is_in_time and (event.id is not None or how != "inner")]
    rights = [event for event in right if event.is_in_time and (event.id is not None or how == "outer")]
    pairs = [
        (one, two)
        for one in lefts
        for two in rights
        if one.id is not None and one.id == two.id and -before <= two.at - one.at <= after
    ]
    met = {one for one, _ in pairs} | {two for _, two in pairs}
    rows: list[tuple[Event | None, Event | None]] = list(pairs)
    lesser = lesser_of(left_frontier, right_frontier)
    over_left = [one for one in lefts if right_frontier is not None and one.at + after < right_frontier]
    over_right = [two for two in rights if left_frontier is not None and two.at + before < left_frontier]
    final_left = [one for one in over_left if lesser is not None and one.at + after < lesser]
    final_right = [two for two in over_right if lesser is not None and two.at + before < lesser]
    if how != "inner":
        rows += [(one, None) for one in final_left if one not in met]
    if how == "outer":
        rows += [(None, two) for two in final_right if two not in met]
    gone_left = over_left if how == "inner" else [one for one in over_left if one in met or one in final_left]
    gone_right = over_right if how != "outer" else [two for two in over_right if two in met or two in final_right]
    return Joined(
        rows=rows,
        left={one: one in met for one in lefts if one not in gone_left},
        right={two: two in met for two in rights if two not in gone_right},
    )


def lesser_of(*frontiers: int | None) -> int | None:
    """The least frontier; None while there is not one of each side."""
    reached = [frontier for frontier in frontiers if frontier is not None]
    return min(reached) if len(reached) == len(frontiers) else None


def as_of(
    left: Iterable[Event], versions: Iterable[Event], *, how: str, frontier: int | None
) -> list[tuple[Event, Event | None]]:
    """Left rows that both frontiers have passed, each with the version that was valid at its time.

    Args:
        frontier: the lesser one.
    """
    keyed = [version for version in versions if version.id is not None]
    pairs: list[tuple[Event, Event | None]] = []
    for row in left:
        if not row.is_in_time or frontier is None or row.at >= frontier:
            continue
        valid = [v for v in keyed if v.id == row.id and max(v.at, v.frontier) <= row.at]
        version = max(valid, key=lambda v: (v.at, v.order), default=None)
        if version is not None and version.value is None:
            version = None
        if version is not None or how == "left":
            pairs.append((row, version))
    return pairs


def still_asked(versions: Iterable[Event], *, since: int | None) -> list[Event]:
    """Versions that a left row at ``since`` or later may see: none that a greater one has replaced by then, or on its
    own first day.
    """
    keyed = [version for version in versions if version.id is not None]
    rest = []
    for one in keyed:
        greater = [v for v in keyed if v.id == one.id and (v.at, v.order) > (one.at, one.order)]
        until = min((max(v.at, v.frontier) for v in greater), default=None)
        is_gone = until is not None and (until <= max(one.at, one.frontier) or (since is not None and until <= since))
        if not is_gone:
            rest.append(one)
    return rest


def newest_seen(
    batch: Iterable[Event], table: dict[str, Event], *, rows: str, how: str
) -> list[tuple[Event, Event | None]]:
    """Rows of a slice with the newest row of the table before them; brings the table to the slice's end.

    Args:
        batch: the slice, of both topics.
        table: the newest version of each key before the slice.
        rows: the topic of the stream.
    """
    pairs = []
    for event in sorted(batch, key=lambda one: one.order):
        if event.topic == rows:
            seen = None if event.id is None else table.get(event.id)
            if seen is not None or how == "left":
                pairs.append((event, seen))
        elif event.id is None:
            continue
        elif event.value is None:
            table.pop(event.id, None)
        else:
            table[event.id] = event
    return pairs
