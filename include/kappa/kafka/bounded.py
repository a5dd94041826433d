"""Calls into a client library that may never return, whatever their timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def bounded(call: Callable[[], T], seconds: float, name: str) -> T:
    """Make a call in a thread of its own, and return its result or raise its error.

    Args:
        call: a function without arguments. Do not use its objects again if it hangs.
        seconds: how long to wait for it.
        name: name of the thread, for a dump of all stacks.

    Raises:
        TimeoutError: it is still running. It is abandoned and does not keep the process from ending.
    """
    answers: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not answers:
        raise TimeoutError(f"{name} did not end in {seconds:g} s")
    return answers[0]
