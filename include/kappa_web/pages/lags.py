"""How far live epochs are behind their topics, without a page that waits for the broker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from kappa import clock
from kappa.errors import Terminal, Transient, first_line
from kappa.offsets.vector import Offsets
from kappa_web.lake import behind

#: Length of a chart, and its number of steps.
CHART, STEPS = timedelta(minutes=30), 60
#: How long a page waits for the first answer.
_FIRST_SECONDS = 0.15
#: How old an answer may be before the broker is asked again.
LAG_SECONDS = 2.0


class Ends(Protocol):
    """A client that knows the ends of topics."""

    def stable_offsets(self, topics: Iterable[str]) -> Offsets: ...


@dataclass(frozen=True, kw_only=True)
class Lag:
    """How far live epochs are behind their topics.

    Attributes:
        offsets: topology -> offsets between its position and the stable end.
        asked_at: when the broker was asked; None before the first answer.
        problem: why the broker gave no answer; empty if it did.
    """

    offsets: dict[str, int]
    asked_at: datetime | None = None
    problem: str = ""


class Lags:
    """Asks the broker for the ends of all topics together, in a thread of its own, while pages are open.

    Its answers are kept for the length of a chart, as long as the server runs.

    Args:
        connect: makes the client of the broker.
    """

    def __init__(self, connect: Callable[[], Ends]) -> None:
        self._connect = connect
        self._broker: Ends | None = None
        self._last = Lag(offsets={})
        self._positions: dict[str, Offsets] = {}
        self._history: dict[str, deque[tuple[datetime, int]]] = {}
        self._lock = threading.Lock()
        self._is_asking = False
        self._answered_at = float("-inf")
        self._has_answer = threading.Event()

    def now(self, positions: Mapping[str, Offsets]) -> Lag:
        """The last known lags. If they are old the broker is asked; only the first answer is awaited, for a short time.

        Args:
            positions: topology -> what its live epoch reads next.
        """
        with self._lock:
            self._positions.update(positions)  # also those of other pages: an answer has all of them
            is_due = not self._is_asking and time.monotonic() - self._answered_at >= LAG_SECONDS
            self._is_asking = self._is_asking or is_due
        if is_due:
            threading.Thread(target=self._refresh, args=(dict(self._positions),), name="lags", daemon=True).start()
        self._has_answer.wait(_FIRST_SECONDS)
        return self._last

    def charted(self, topology: str, now: datetime) -> list[float | None]:
        """The lag at the end of each step of a chart; None where it was not measured."""
        values: list[float | None] = [None] * STEPS
        begin = now - CHART
        for at, offsets in list(self._history.get(topology, ())):
            if at >= begin:
                values[min(STEPS - 1, int((at - begin) / (CHART / STEPS)))] = float(offsets)
        return values

    def _refresh(self, positions: Mapping[str, Offsets]) -> None:
        try:
            self._last = self._lag(positions)
            for name, offsets in self._last.offsets.items():
                self._history.setdefault(name, deque(maxlen=2_000)).append((clock.now(), offsets))
        except Transient:
            self._last = replace(self._last, offsets={}, problem="Kafka does not answer.")
        except Exception as error:  # a wrong setting, for example: the earlier lags may have any age
            words = f"The lag cannot be measured: {first_line(error)}"
            self._last = replace(self._last, offsets={}, problem=words)
        finally:
            with self._lock:
                self._is_asking, self._answered_at = False, time.monotonic()
            self._has_answer.set()

    def _lag(self, positions: Mapping[str, Offsets]) -> Lag:
        self._broker = self._broker or self._connect()
        try:
            ends = self._broker.stable_offsets({topic for position in positions.values() for topic, _ in position})
            offsets = _counts({name: behind(position, ends) for name, position in positions.items()})
        except Terminal:  # a topic is gone: ask for the others topology by topology
            apart: dict[str, int | None] = {}
            for name, position in positions.items():
                try:
                    ends = self._broker.stable_offsets({topic for topic, _ in position})
                except Terminal:
                    continue
                apart[name] = behind(position, ends)
            offsets = _counts(apart)
        return Lag(offsets=offsets, asked_at=clock.now())


def _counts(apart: Mapping[str, int | None]) -> dict[str, int]:
    """Lags that are numbers: a position beyond the end of the log has none."""
    return {name: count for name, count in apart.items() if count is not None}
