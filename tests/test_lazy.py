"""A value that is made when it is first needed."""

from __future__ import annotations

import threading
import time

import pytest

from kappa.lazy import Lazy


def test_a_value_is_made_once_whichever_thread_needs_it_first() -> None:
    made: list[object] = []

    def make() -> object:
        time.sleep(0.05)  # so long that all of them need it meanwhile
        made.append(object())
        return made[-1]

    lazy, seen = Lazy(make), []
    assert lazy.made is None
    threads = [threading.Thread(target=lambda: seen.append(lazy.get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == made * 4 and lazy.made is made[0]


def test_a_value_that_could_not_be_made_is_made_the_next_time() -> None:
    answers = iter([ValueError("not yet"), "there"])

    def make() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    lazy = Lazy(make)
    with pytest.raises(ValueError, match="not yet"):
        lazy.get()
    assert lazy.made is None
    assert lazy.get() == "there"
