"""The group of an epoch, before its first slice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kappa.driver import consumer_group
from kappa.errors import RefusedError
from kappa.offsets.vector import Offsets

START = Offsets({"pos": {0: 0, 1: 7}})


@pytest.mark.parametrize(
    ("position", "is_moved"),
    [
        (START, False),
        (Offsets(), False),  # Kafka has forgotten them: the epoch has waited for days
        (Offsets({"pos": {0: 0, 1: 8}}), True),
        (Offsets({"pos": {0: 0}}), True),
    ],
)
def test_a_group_that_somebody_moved_is_refused_and_one_that_kafka_forgot_is_not(
    position: Offsets, is_moved: bool
) -> None:
    epoch: Any = SimpleNamespace(paths=SimpleNamespace(name="kappa.a.b.e0001"), plan=SimpleNamespace(start=START))
    broker: Any = SimpleNamespace(group_position=lambda *_: position)
    if is_moved:
        with pytest.raises(RefusedError, match="another process moved it"):
            consumer_group.check(epoch, broker)
    else:
        consumer_group.check(epoch, broker)
