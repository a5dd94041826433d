"""The spread of records in time, from both ends of a span on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from kappa.kafka.producer import Sender
from kappa.offsets.vector import Offsets
from kappa.slices.input.cuts import spread_of
from kappa.wire.encoding import Record

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.broker

BEGIN = 1_700_000_000_000


def test_the_median_time_at_each_end_counts_and_markers_do_not(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(3)
    with Sender(kafka.bootstrap_servers, f"{name}.sender", name) as sender:
        sender.init()
        for base in (0, 1_000):
            sender.send((Record(name, b"%d" % n, b"", None, BEGIN + base + n) for n in range(500)), None)
    position, end = kafka.low_watermarks([name]), kafka.settled_ends([name])

    spread = spread_of(kafka, position, end)

    assert spread is not None
    assert BEGIN <= spread.first_ms < BEGIN + 30
    assert BEGIN + 1_400 <= spread.last_ms < BEGIN + 1_500
    assert (spread.start, spread.end) == (position, end)


def test_a_record_from_the_future_does_not_distort_the_spread(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, time in enumerate((BEGIN, BEGIN + 5, BEGIN + 10**12)):
        producer.produce(name, b"{}", partition=partition, timestamp=time)
    assert producer.flush(30) == 0

    spread = spread_of(kafka, Offsets(), kafka.stable_offsets([name]))

    assert spread is not None
    assert spread.first_ms == spread.last_ms == BEGIN + 5


def test_an_empty_range_has_no_spread(kafka: Broker, topic: TopicFactory) -> None:
    name = topic(2)
    end = kafka.stable_offsets([name])
    assert spread_of(kafka, end, end) is None
