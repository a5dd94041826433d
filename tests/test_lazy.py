"""A value that is made when it is first needed."""

from __future__ import annotations

import threading

import pytest

from kappa.lazy import Lazy


def test_a_value_is_made_once_whichever_thread_needs_it_first() -> None:
    values: list[object] = []
    begun = [threading.Event() for _ in range(4)]

    def make() -> object:
        for event in begun:  # until all of them need it
            assert event.wait(60)
        values.append(object())
        return values[-1]

    lazy, answers = Lazy(make), []
    assert lazy.made is None

    def need(event: threading.Event) -> None:
        event.set()
        answers.append(lazy.get())

    threads = [threading.Thread(target=need, args=(event,)) for event in begun]
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
