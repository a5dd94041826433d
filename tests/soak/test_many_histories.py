"""Two hundred random histories; a few run in CI (tests/laws)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from histories import World, play

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_the_tables_are_those_of_plain_python(
    world: Callable[[], AbstractContextManager[World]], case: Callable[[str], None], seed: int
) -> None:
    with world() as made:
        play(made, seed, acts=14)
        case(f"history {seed}: {made.deaths} deaths")
