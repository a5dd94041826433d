"""JSON Schema in and out on a real broker, with Confluent's own serializers on both ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.epochs import TOPOLOGY, Lab, lab

from kappa.delta import queries
from kappa.record.schemas import load
from kappa.replay.stages import Stage
from kappa.verify.topic_recount import recount_topics
from kappa_local import registry
from kappa_local.kafka import free_port

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

AMOUNT = {
    "title": "Amount",
    "type": "object",
    "properties": {"id": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["id", "amount"],
}


class Registered(Lab):
    """The lab's topology, with JSON Schema on both ends."""

    template = TOPOLOGY.replace('Source(topic="{topic}", ', 'Source(topic="{topic}", format="json_schema", ').replace(
        'of="moves", key="id")', 'of="moves", key="id", format="json_schema")'
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, ThreadingHTTPServer]]:
    port = free_port()
    with registry.server(tmp_path, port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{registry.HOST}:{port}", server
        server.shutdown()


def test_json_schema_output_suits_confluents_reader_and_replays_without_a_registry(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession, served: tuple[str, ThreadingHTTPServer]
) -> None:
    url, server = served
    client = SchemaRegistryClient({"url": url})
    with lab(tmp_path / "lab", kafka, spark, topic(), kind=Registered, schema_registry=url) as stream:
        stream.deploy(1)
        serialize = JSONSerializer(json.dumps(AMOUNT), client)
        at = SerializationContext(stream.topic, MessageField.VALUE)
        rows = [{"id": f"a{n % 3}", "amount": n} for n in range(9)]
        producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers})
        for value in [*(serialize(row, at) for row in rows), b'{"id": "a0", "amount": 1}', b"\0\0\0\3\xe7{}"]:
            producer.produce(stream.topic, key=b"k", value=value)
        assert producer.flush(30) == 0
        first = stream.start_live()
        assert stream.balances() == {f"a{k}": sum(range(k, 9, 3)) for k in range(3)}
        letters = queries.query(stream.paths(first).dead_letters, None).to_pylist()
        assert sorted(letter["reason"] for letter in letters) == [
            "schema 999 is not in the schema registry",
            "the value does not begin with zero and the id of a schema",
        ]
        out = f"{stream.topic}.moves"
        deserialize: Any = JSONDeserializer(None, from_dict=None, schema_registry_client=client)
        at = SerializationContext(out, MessageField.VALUE)
        sent = [deserialize(value, at) for value in stream.values_of(out)]
        assert [(row["id"], row["counted"]) for row in sent] == [(row["id"], row["amount"]) for row in rows]
        assert {one.kind for one in load(stream.config.lake, out).values()} == {"JSON"}
        server.shutdown()
        server.server_close()
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        assert stream.balances(second) == stream.balances(first)
        counted = recount_topics(stream.config, stream.paths(first), kafka)
        assert (counted.problems, counted.unread) == ((), ())
