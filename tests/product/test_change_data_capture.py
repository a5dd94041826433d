"""A table of changes on a real broker: it is replayed, compared, moved and reconciled like any table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import orjson
import pytest
from confluent_kafka import Producer
from support.epochs import Lab, lab
from support.recorded_changes import Recording, stored

from kappa import control, serving
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TOPOLOGY = '''
"""Customers as a database has them, and all that they were, version {version}."""

from kappa import Source, Topic, Topology
from kappa.operators import cdc_table

changes = Source(
    topic="{topic}",
    schema="name STRING NOT NULL, note STRING, balance DECIMAL(12,2), tags ARRAY<STRING>, extra STRING",
    key_schema="id BIGINT",
    envelope="debezium",
)
customers = cdc_table(changes, key="id", table="customers")
past = cdc_table(changes, key="id", table="past", history=True)
shop = Topology(
    name="{name}",
    version="{version}",
    sources=[changes],
    operators=[customers, past],
    outputs=[Topic(name="{topic}.customers", of="customers", key="id", on_replay="reconcile")],
)
'''
COLUMNS = ("id", "name", "note", "balance", "tags", "extra")


class Shop(Lab):
    """A lab whose topology keeps a table of changes."""

    template: ClassVar[str] = TOPOLOGY

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        producer = Producer({"bootstrap.servers": self.config.bootstrap_servers, "partitioner": "murmur2_random"})
        for record in records:
            producer.produce(self.topic, key=record["key"], value=record["value"])
        assert producer.flush(30) == 0

    def rows(self, table: str, epoch: int | None = None) -> list[dict[str, Any]]:
        """The rows of a table that an epoch serves."""
        rows: list[dict[str, Any]] = serving.snapshot(self.config, self.name, epoch=epoch).rows(table).to_pylist()
        return rows


def selected(recording: Recording) -> dict[int, tuple[Any, ...]]:
    """The rows of the database, but for the large column that a changed key loses."""
    rows = {row["id"]: row for row in recording.rows("customers")}
    rows[50]["note"] = None
    return {key: tuple(row[name] for name in COLUMNS) for key, row in rows.items()}


def test_a_table_of_changes_is_replayed_compared_moved_and_reconciled(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession
) -> None:
    recording = stored("plain")
    records = [one for one in recording.records if str(one["topic"]).endswith("customers")]
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Shop, small_slice=5) as shop:
        shop.deploy(1)
        shop.send(records[:10])
        first = shop.start_live()
        shop.send(records[10:25])
        shop.settle(first)
        shop.send(records[25:])
        shop.settle(first)
        second = shop.plan_replay()
        shop.run(second)
        shop.await_stage(second, Stage.VERIFIED)
        for epoch in (first, second):
            customers = {row["id"]: tuple(row[name] for name in COLUMNS) for row in shop.rows("customers", epoch)}
            assert customers == selected(recording)
            assert {row["id"] for row in shop.rows("past", epoch) if row["is_current"]} == set(customers)
        assert shop.rows("past", first) == shop.rows("past", second)

        control.cut_over(shop.config, shop.name, second, actor="test", reason="test")
        shop.await_live(second)
        shop.send(records[-5:])  # they come again
        shop.settle(second)
        sent = [None if value is None else orjson.loads(value) for value in shop.values_of(f"{shop.topic}.customers")]
        assert {row["id"]: row["name"] for row in sent if row is not None}.items() >= {
            (key, row[1]) for key, row in selected(recording).items()
        }
        certificate = control.certify(shop.config, shop.name)
        assert certificate.complete, certificate.problems
