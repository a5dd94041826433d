"""Durations of the lines of the slice protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Lines:
    """Times the lines of one slice by the driver's own clock, and announces each before it begins.

    Lines that an earlier driver finished are left out.

    Args:
        begin: called with the name of each line.

    Attributes:
        seconds: line -> how long it took.
    """

    def __init__(self, begin: Callable[[str], None]) -> None:
        self._begin = begin
        self.seconds: dict[str, float] = {}

    @contextmanager
    def line(self, name: str, seq: int) -> Iterator[None]:
        """One line of slice ``seq``."""
        self._begin(f"{name} of slice {seq}")
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 6)
