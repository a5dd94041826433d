"""Work for callers in threads of its own, limited in number and time, so that no other route waits for it.

The application may be part of a larger one, such as Airflow's server. Routes that are plain functions share its forty
threads: that many waiting callers would also block the heartbeats of tasks and the UI. So routes wait without a thread,
and their work has its own threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from kappa_web.problems import Problem

T = TypeVar("T")
P = ParamSpec("P")


class Bounded:
    """Runs calls in threads of its own.

    Args:
        at_once: largest number of calls at a time.
        waiting: largest number of calls that wait for one of them to end; a further call is refused immediately.
        wait_seconds: how long a call waits for that.
        seconds: how long a call may take; the engine cannot be stopped, so a longer call keeps its place until it ends.
    """

    def __init__(
        self, at_once: int = 8, *, waiting: int = 16, wait_seconds: float = 5.0, seconds: float = 20.0
    ) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="query")
        self._most = at_once + waiting
        self._wait, self._seconds = wait_seconds, seconds
        self._lock = threading.Lock()
        self._open = 0

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call.

        Raises:
            Problem: 503, too many calls run or wait, or this one takes too long.
        """
        loop = asyncio.get_running_loop()
        start = loop.create_future()

        def work() -> T:
            loop.call_soon_threadsafe(_settle, start)
            return call()

        running = self._submitted(work)
        answer = asyncio.wrap_future(running)
        await asyncio.wait({start, answer}, timeout=self._wait, return_when=asyncio.FIRST_COMPLETED)
        if running.cancel():
            raise Problem(503, "busy", "Too many queries are running. Try again later.")
        await asyncio.wait({answer}, timeout=self._seconds)
        if not answer.done():
            answer.add_done_callback(_forget)
            raise Problem(
                503,
                "too-slow",
                f"The query takes longer than {self._seconds:g} s. Ask for fewer keys or a range, or let Spark read "
                "the path and Delta version that are in: GET /metadata/<topology>?epoch=<epoch>",
            )
        return answer.result()

    def route(self, endpoint: Callable[P, T]) -> Callable[P, Awaitable[T]]:
        """A route whose function runs in these threads."""

        @wraps(endpoint)
        async def handled(*args: P.args, **named: P.kwargs) -> T:
            return await self.run(partial(endpoint, *args, **named))

        return handled

    def _submitted(self, work: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._open >= self._most:
                raise Problem(503, "busy", "Too many queries are running and waiting. Try again later.")
            self._open += 1
        try:
            running = self._threads.submit(work)
        except BaseException:
            self._closed(None)
            raise
        running.add_done_callback(self._closed)
        return running

    def _closed(self, _: object) -> None:
        with self._lock:
            self._open -= 1


def _settle(start: asyncio.Future[None]) -> None:
    if not start.done():
        start.set_result(None)


def _forget(answer: asyncio.Future[Any]) -> None:
    """Read the error of an answer that has no more waiters: asyncio would log an error that was never read."""
    if not answer.cancelled():
        answer.exception()
