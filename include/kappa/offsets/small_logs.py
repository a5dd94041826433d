"""A small log in memory, and the ways in which it can be cut into slices.

By time, as a replay cuts it: in each partition at the first offset at which the running maximum of the timestamps
reaches the time. By arrival, as a live stream cuts it: each partition at its position when a slice was planned.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Generic, Protocol, TypeVar

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogRecord(Protocol):
    """A record of a topic; ``timestamp_ms`` is set."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def timestamp_ms(self) -> int | None: ...


R = TypeVar("R", bound=LogRecord)


@dataclass(frozen=True, kw_only=True, order=True)
class Placed(Generic[R]):
    """A record at its place in the total order."""

    running_ms: int
    topic: str
    partition: int
    offset: int
    item: R = field(compare=False)


def placed(records: Sequence[R]) -> list[Placed[R]]:
    """The records at their places; those of one partition in the order given."""
    running: dict[tuple[str, int], int] = {}
    offsets: Counter[tuple[str, int]] = Counter()
    places = []
    for item in records:
        at = (item.topic, item.partition)
        running[at] = max(time_of(item), running.get(at, time_of(item)))
        places.append(
            Placed(running_ms=running[at], topic=item.topic, partition=item.partition, offset=offsets[at], item=item)
        )
        offsets[at] += 1
    return sorted(places)


def cut_by_time(log: list[Placed[R]], cuts: int, chance: random.Random) -> Iterable[tuple[str, list[list[Placed[R]]]]]:
    """Names of ways to cut, with the slices."""
    yield "one slice per record", [[one] for one in log]
    times = sorted({one.running_ms for one in log})[1:]  # a cut at the first time would give an empty slice
    earlier: set[tuple[int, ...]] = set()
    for _ in range(cuts if times else 0):
        cut = tuple(sorted(chance.sample(times, chance.randint(1, min(4, len(times))))))
        if cut in earlier:
            continue
        earlier.add(cut)
        parts = groupby(log, key=lambda one: sum(one.running_ms >= time for time in cut))
        yield f"cut at {', '.join(map(_shown, cut))}", [list(part) for _, part in parts]


def cut_by_arrival(
    log: list[Placed[R]], cuts: int, chance: random.Random
) -> Iterable[tuple[str, list[list[Placed[R]]]]]:
    """Names of ways in which the records may have arrived, with the slices: each partition has its own pace."""
    places = sorted({(one.topic, one.partition) for one in log})
    for _ in range(cuts):
        last = chance.randint(1, 4)
        slices: list[list[Placed[R]]] = [[] for _ in range(last + 1)]
        for place in places:
            own = [one for one in log if (one.topic, one.partition) == place]
            ends = sorted(chance.randint(0, len(own)) for _ in range(last))
            for number, (start, end) in enumerate(zip([0, *ends], [*ends, len(own)], strict=True)):
                slices[number] += own[start:end]
        shown = "; ".join(", ".join(f"{one.topic}[{one.partition}]@{one.offset}" for one in part) for part in slices)
        yield f"as they arrived ({shown})", [sorted(part) for part in slices if part]


def _shown(ms: int) -> str:
    """A time, or a number of milliseconds outside the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{ms} ms"


def time_of(record: LogRecord) -> int:
    """The timestamp of a record that has one."""
    assert record.timestamp_ms is not None
    return record.timestamp_ms
