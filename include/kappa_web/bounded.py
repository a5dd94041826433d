"""Reads of tables, some at a time and each for a while: a scan of everything stops no other caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLong
from typing import TypeVar

from kappa_web.problems import Problem

T = TypeVar("T")


class Bounded:
    """Runs reads in threads of its own.

    Args:
        at_once: most reads at a time.
        wait_seconds: how long a read waits for another to end.
        seconds: how long one may take; the engine cannot be stopped, so that a longer one keeps its place to its end.
    """

    def __init__(self, at_once: int = 8, wait_seconds: float = 5.0, seconds: float = 20.0) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="query")
        self._places = threading.BoundedSemaphore(at_once)
        self._wait, self._seconds = wait_seconds, seconds

    def run(self, read: Callable[[], T]) -> T:
        """What the read gives.

        Raises:
            Problem: 503, too many reads run, or this one takes too long.
        """
        if not self._places.acquire(timeout=self._wait):
            raise Problem(503, "busy", "Too many queries run at the moment. Ask again later.")
        try:
            running = self._threads.submit(read)
        except BaseException:
            self._places.release()
            raise
        running.add_done_callback(lambda _: self._places.release())
        try:
            return running.result(self._seconds)
        except TooLong as error:
            if running.done():
                raise
            raise Problem(
                503, "too-slow", f"The query takes longer than {self._seconds:g} s. Ask for fewer keys or a range."
            ) from error
