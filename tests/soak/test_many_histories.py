"""Two hundred random histories, different ones each day; SEED=20261122 plays that day again.

A few run in CI (tests/laws).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from support.eventful import Eventful
from support.histories import DAY, play

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("seed", [DAY * 1000 + number for number in range(200)])
def test_tables_match_plain_python_after_random_histories(
    world: Callable[[], AbstractContextManager[Eventful]],
    case: Callable[[str], None],
    seed: int,
    request: pytest.FixtureRequest,
) -> None:
    with world() as played:
        play(played, seed, acts=14)
        case(f"history {seed}: {played.deaths} deaths")
        request.node.user_properties += [("event case", name) for name in played.happened.elements()]
