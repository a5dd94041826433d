"""The present line of each thread of a driver, with its age: a heartbeat that goes on while nothing moves shows it.

Each thread names the line that it begins. The oldest of them goes with every heartbeat, with its age by the driver's
own monotonic clock; past the limits the driver counts as ``slow``, then as ``stuck``, and the stacks of its threads are
in its log.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: The question to the JVM, over and over: a frozen one does not answer.
JVM_LINE = "asking the JVM for the time"


@dataclass(frozen=True, kw_only=True)
class Line:
    """The present line of a thread.

    Attributes:
        name: the line.
        seconds: its age.
        level: ``""``, ``slow`` or ``stuck``.
    """

    name: str = ""
    seconds: float = 0.0
    level: str = ""

    @property
    def message(self) -> str:
        """The problem, for people."""
        return f"{self.level}: {self.name!r} has not ended for {self.seconds / 60:.1f} min"


class Watchdog:
    """The lines of a process's threads.

    Args:
        slow_seconds: after how long a line is slow.
        stuck_seconds: after how long it is stuck, unless it may take as long as it takes.
        clock: monotonic seconds.
    """

    def __init__(
        self, slow_seconds: float, stuck_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = slow_seconds, stuck_seconds
        self._clock = clock
        self._lines: dict[int, tuple[str, float, bool]] = {}
        self._lock = threading.Lock()

    def begin(self, line: str, *, is_long: bool = False) -> None:
        """The calling thread begins a line; its line before has ended.

        Args:
            line: its name, for people.
            is_long: whether it may take as long as it takes: it is slow after a while, and never stuck.
        """
        with self._lock:
            self._lines[threading.get_ident()] = (line, self._clock(), is_long)

    def end(self) -> None:
        """The calling thread has no line any more."""
        with self._lock:
            self._lines.pop(threading.get_ident(), None)

    def worst(self) -> Line:
        """The line that is furthest beyond its limits, or else the oldest."""
        with self._lock:
            lines = list(self._lines.values())
        now = self._clock()
        return max(
            (
                Line(name=name, seconds=now - since, level=self._level(now - since, is_long))
                for name, since, is_long in lines
            ),
            key=lambda line: (("", "slow", "stuck").index(line.level), line.seconds),
            default=Line(),
        )

    def _level(self, seconds: float, is_long: bool) -> str:
        slow, stuck = self._limits
        if seconds >= stuck and not is_long:
            return "stuck"
        return "slow" if seconds >= slow else ""


def stacks() -> str:
    """The stack of every thread of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    texts = []
    for number, frame in sys._current_frames().items():
        texts.append(f"Thread {names.get(number, number)}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(texts)


class JvmProbe:
    """Asks the JVM for the time every few seconds from a thread of its own, until closed.

    Args:
        watchdog: learns how long an answer takes.
        session: gives the session; None while there is none.
        seconds: pause between two questions.
    """

    def __init__(self, watchdog: Watchdog, session: Callable[[], Any], seconds: float) -> None:
        self._watchdog = watchdog
        self._session = session
        self._seconds = seconds
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="jvm probe", daemon=True).start()

    def close(self) -> None:
        """Ask no more; an open question is left to itself."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._seconds):
            session = self._session()
            if session is None:
                continue
            self._watchdog.begin(JVM_LINE)
            # A JVM that is gone answers with an error at once: the driver's own calls meet that too.
            with contextlib.suppress(Exception):
                session._jvm.System.nanoTime()
            self._watchdog.end()
