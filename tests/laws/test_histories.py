"""A few random histories; two hundred are part of ``make soak``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from support.eventful import Eventful
from support.histories import play

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.mark.parametrize("seed", [2, 3])
def test_whatever_happens_the_tables_are_those_of_plain_python(
    world: Callable[[], AbstractContextManager[Eventful]], seed: int
) -> None:
    with world() as made:
        play(made, seed, acts=14)


def test_what_happens_now_and_then_holds_in_one_history(world: Callable[[], AbstractContextManager[Eventful]]) -> None:
    with world() as made:
        made.random.seed(7)
        made.write()
        made.factors[made.start()] = 1
        made.await_live(1)
        for act in (made.take_into_archive, made.back_up, made.write, made.upgrade, made.write, made.lose_broker):
            act()
        made.settle(1)
        made.restore()
        made.finish()
        made.prove()
        assert {"archive", "the lake is copied", "upgrade", "broker killed", "a copied lake is refused"} <= set(
            made.happened
        )
