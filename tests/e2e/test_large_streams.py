"""Live streams of real processes whose slices are larger than what a driver takes into its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from confluent_kafka import Producer
from support.processes import QUICK_JVM, Rig

from kappa.config import Config
from kappa.delta import queries

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e

TOPOLOGY = '''
"""Readings as they are."""

from kappa.topology import Append, Source, Topology

SCHEMA = "id STRING NOT NULL, at TIMESTAMP NOT NULL"

readings = Topology(
    name="{name}",
    version="1",
    sources=[Source(topic="{topic}", schema=SCHEMA)],
    outputs=[Append(name="readings", schema=SCHEMA)],
    step=lambda slice: {{"readings": slice["{topic}"]}},
)
'''


@dataclass(kw_only=True)
class Readings(Rig):
    """Times as ISO text, as they are."""

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        (self.config.topologies / "readings.py").write_text(TOPOLOGY.format(name=self.name, topic=self.topic))


@pytest.fixture
def readings(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[Readings]:
    (tmp_path / "topologies").mkdir()
    name = topic(partitions=2)
    config = Config(
        lake=str(tmp_path / "lake"),
        bootstrap_servers=kafka.bootstrap_servers,
        topologies=tmp_path / "topologies",
        home=tmp_path / "home",
        cache=Path.home() / ".cache" / "kappa",
        spark_master="local[2]",
        spark_conf=QUICK_JVM,
        trigger_seconds=0.1,
        heartbeat_seconds=0.5,
    )
    readings = Readings(config=config, kafka=kafka, topic=name, name="readings", session=None)  # type: ignore[arg-type]  # Spark is elsewhere
    readings.deploy(1)
    try:
        yield readings
    finally:
        readings.close()


def test_a_stream_goes_on_over_large_slices_of_a_source_with_times(readings: Readings) -> None:
    fill(readings, 0, 60_000)
    epoch = readings.start_live()
    fill(readings, 60_000, 60_000)
    readings.settle(epoch)
    commits = readings.ledger(epoch).state().commits
    assert max(row.rows_read for row in commits) > readings.config.small_slice
    table = queries.query(readings.paths(epoch).output("readings"), None, select="id, at", order_by="at")
    assert table["id"].to_pylist() == [str(n) for n in range(120_000)]
    assert table["at"][59_999].as_py().isoformat() == "2026-03-01T00:00:59.999000+00:00"


def fill(readings: Readings, first: int, count: int) -> None:
    """Readings, one a millisecond."""
    producer = Producer({"bootstrap.servers": readings.config.bootstrap_servers, "linger.ms": 100})
    for n in range(first, first + count):
        minute, millis = divmod(n, 60_000)
        at = f"2026-03-01T00:{minute:02d}:{millis // 1000:02d}.{millis % 1000:03d}+00:00"
        value = orjson.dumps({"id": str(n), "at": at})
        producer.produce(readings.topic, value=value, partition=n % 2, timestamp=1_772_323_200_000 + n)
        producer.poll(0)
    assert producer.flush(60) == 0
