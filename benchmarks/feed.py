"""A steady stream of invoices, each with the time at which it was produced."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Producer

from benchmarks.site import SOURCE
from kappa.kafka.connection import producer_settings
from kappa_local.generators.invoices import Invoices


class Feed:
    """Produces at a rate from a thread until closed.

    Attributes:
        produced: partition -> offset -> time, in seconds since 1970, at which the record was handed to the producer.
    """

    def __init__(self, bootstrap_servers: str, rate: float, *, first: int) -> None:
        self.produced: dict[int, dict[int, float]] = {}
        self._producer = Producer(
            {**producer_settings(bootstrap_servers), "delivery.report.only.error": False, "linger.ms": 1}
        )
        self._rate = rate
        self._first = first
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def _run(self) -> None:
        start = time.monotonic()
        for number, (key, value, _) in enumerate(Invoices().records(self._first, self._first + 10**9)):
            if self._stopping.is_set():
                break
            ahead = start + number / self._rate - time.monotonic()
            if ahead > 0:
                self._producer.poll(0)
                time.sleep(ahead)
            at = time.time()
            delivered = partial(self._delivered, at)
            self._producer.produce(SOURCE, value, key, timestamp=int(at * 1000), on_delivery=delivered)
        self._producer.flush(30)

    def _delivered(self, at: float, error: Any, message: Any) -> None:
        if error is None:
            self.produced.setdefault(message.partition(), {})[message.offset()] = at

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, when all is delivered."""
        self._stopping.set()
        self._thread.join()


@contextmanager
def feed(bootstrap_servers: str, rate: float, *, first: int) -> Iterator[Feed]:
    """A feed that runs within the block.

    Args:
        bootstrap_servers: the brokers.
        rate: records a second.
        first: index of its first invoice.
    """
    stream = Feed(bootstrap_servers, rate, first=first)
    stream.start()
    try:
        yield stream
    finally:
        stream.close()
