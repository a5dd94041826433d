"""A few records here and there, from the client library's own broker: no JVM.

The real one is in test_broker.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from kappa.kafka.reader import Sampler
from kappa.offsets.vector import Offsets

#: Records of each partition.
COUNTS = (300, 2, 5000, 0)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the broker listens for as long as its producer is there."""
    settings = {"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0, "compression.type": "lz4"}
    producer = Producer(settings)
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for partition, count in enumerate(COUNTS):
        for number in range(count):
            producer.produce("t", b"%d" % number, b"k", partition=partition, timestamp=1000 + number)
    assert producer.flush(10) == 0
    yield f"{broker.host}:{broker.port}"
    del producer


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        ({0: 150, 1: 0, 2: 0, 3: 0}, {0: range(150, 170), 1: range(2), 2: range(20)}),
        ({0: 279, 1: 1, 2: 2500}, {0: range(279, 299), 1: range(1, 2), 2: range(2500, 2520)}),
        ({0: 280}, {0: range(280, 300)}),
        ({0: 281, 2: 4999}, {0: range(281, 300), 2: range(4999, 5000)}),
        ({0: 300, 1: 2}, {}),
        ({}, {}),
    ],
)
def test_each_partition_gives_its_first_records_up_to_the_end(
    address: str, start: dict[int, int], offsets: dict[int, range]
) -> None:
    end = Offsets({"t": dict(enumerate(COUNTS))})
    sampler = Sampler(address)
    try:
        for _ in range(2):  # one consumer looks at several places
            sample = sampler.sample(Offsets({"t": start}) if start else Offsets(), end, 20)
            numbers = {at[1]: [message.offset() for message in messages] for at, messages in sample.items()}
            assert numbers == {partition: list(span) for partition, span in offsets.items()}
    finally:
        sampler.close()


def test_a_sample_ends_before_the_end_of_the_log_if_asked_to(address: str) -> None:
    sampler = Sampler(address)
    try:
        sample = sampler.sample(Offsets({"t": {2: 10}}), Offsets({"t": {2: 13}}), 20)
        assert [message.offset() for message in sample["t", 2]] == [10, 11, 12]
    finally:
        sampler.close()
