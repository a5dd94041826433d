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


def is_lost(broker: KafkaProcess) -> bool:
    """Whether a broker ended that no test ended.

    Asked from another thread than the test's: a broker is looked at before and after it is asked whether it may end, or
    one that a test ends or restarts in between would count as lost.
    """
    if broker.is_running() or broker in MORTAL or broker not in WATCHED:
        return False
    return not broker.is_running()


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
