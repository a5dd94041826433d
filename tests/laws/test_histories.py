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
