"""A few random histories; two hundred are part of ``make soak``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from support.eventful import Eventful
from support.histories import play

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.mark.parametrize("seed", [2, 3])
def test_the_tables_of_a_random_history_match_plain_python(
    world: Callable[[], AbstractContextManager[Eventful]], seed: int
) -> None:
    with world() as history:
        play(history, seed, acts=14)


def test_a_history_of_rare_events_is_proved(world: Callable[[], AbstractContextManager[Eventful]]) -> None:
    with world() as history:
        history.random.seed(7)
        history.write()
        history.factors[history.start()] = 1
        history.await_live(1)
        for act in (
            history.take_into_archive,
            history.back_up,
            history.write,
            history.upgrade,
            history.write,
            history.lose_broker,
        ):
            act()
        history.settle(1)
        history.restore()
        history.finish()
        history.prove()
        assert {"archive", "the lake is copied", "upgrade", "broker killed", "a copied lake is refused"} <= set(
            history.happened
        )
