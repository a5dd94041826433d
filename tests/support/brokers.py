"""Brokers whose end ends the run: each further test would wait for one that is gone until its own limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kappa_local.kafka import KafkaProcess

#: Brokers to which the run is held, and those of them that the test at hand may end.
WATCHED: list[KafkaProcess] = []
MORTAL: list[KafkaProcess] = []


@contextlib.contextmanager
def watched(broker: KafkaProcess) -> Iterator[KafkaProcess]:
    """Within, the run is held to this broker's life; it is stopped at the end."""
    WATCHED.append(broker)
    try:
        yield broker
    finally:
        WATCHED.remove(broker)
        broker.stop()


@contextlib.contextmanager
def mortal(broker: KafkaProcess) -> Iterator[KafkaProcess]:
    """Within, a test may end the broker; it runs again afterwards."""
    MORTAL.append(broker)
    try:
        yield broker
        if not broker.is_running():
            broker.restart()
    finally:
        MORTAL.remove(broker)
