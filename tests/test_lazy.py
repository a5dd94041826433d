"""A value that is made when it is first needed."""

from __future__ import annotations

import threading
import time

import pytest

from kappa.lazy import Lazy


def test_a_value_is_made_once_whichever_thread_needs_it_first() -> None:
    values: list[object] = []

    def make() -> object:
        time.sleep(0.05)  # long enough for all of them to need it meanwhile
        values.append(object())
        return values[-1]

    lazy, answers = Lazy(make), []
    assert lazy.made is None
    threads = [threading.Thread(target=lambda: answers.append(lazy.get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == values * 4 and lazy.made is values[0]


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
