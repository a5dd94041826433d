"""Avro in and out on a real broker, with Confluent's own serializers on both ends and a registry that goes away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.epochs import Lab, lab

from kappa import control
from kappa.delta import queries
from kappa.presence import heartbeat
from kappa.record.schemas import load
from kappa.replay.stages import Stage
from kappa.topology.registry import load_apart
from kappa.verify.recount import recount
from kappa.verify.topic_recount import recount_topics
from kappa.verify.trial import Trial, trial
from kappa_local import registry
from kappa_local.kafka import free_port

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TOPOLOGY = '''
"""Running balances of Avro records, version {version}: each amount counts {factor} times."""

from kappa.operators import running_total
from kappa.topology import Append, Source, Topic, Topology

MOVES = Source(
    topic="{topic}",
    format="avro",
    schema="id STRING NOT NULL, amount BIGINT NOT NULL, at TIMESTAMP, price DECIMAL(10,2)",
)
totals = running_total(
    MOVES, rows="id STRING, counted BIGINT", key="id", amount="counted", total="total", table="balances"
)

def step(slice):
    """Moves with their running totals, and the balance of each account."""
    counted = slice["{topic}"].selectExpr("*", "CAST(amount * {factor} AS BIGINT) AS counted")
    return {{"moves": totals(slice, counted).rows}}


MOVE = "id STRING NOT NULL, at TIMESTAMP, price DECIMAL(10,2), counted BIGINT, total BIGINT"

balances = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[totals],
    outputs=[
        Append(name="moves", schema=MOVE),
        Topic(name="{topic}.moves", of="moves", key="id", format="avro"),
        Topic(name="{topic}.story", of="moves", key="id", format="avro", on_replay="versioned"),
        Topic(name="{topic}.totals", of="balances", key="id", format="avro", on_replay="reconcile"),
    ],
    step=step,
)
'''

READER = '''
"""The story of {of}, told again."""

from kappa.topology import Append, Source, Topology

told = Topology(
    name="{name}",
    version="1",
    sources=[
        Source(topic="{topic}", of="{of}", format="avro", schema="id STRING NOT NULL, counted BIGINT, total BIGINT")
    ],
    outputs=[Append(name="told", schema="id STRING NOT NULL, counted BIGINT, total BIGINT")],
    step=lambda slice: {{"told": slice["{topic}"]}},
)
'''

FIRST = """{"type": "record", "name": "Amount", "fields": [
    {"name": "id", "type": "string"}, {"name": "amount", "type": "int"}]}"""
SECOND = """{"type": "record", "name": "Amount", "fields": [
    {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}],
     "default": null},
    {"name": "id", "type": "string"},
    {"name": "amount", "type": "long"}]}"""


class Site(Lab):
    """A lab with a schema registry beside it."""

    template: ClassVar[str] = TOPOLOGY
    served: ThreadingHTTPServer | None = None

    def open_registry(self) -> None:
        self.served = registry.server(self.config.home, int(self.config.schema_registry.rpartition(":")[2]))
        threading.Thread(target=self.served.serve_forever, daemon=True).start()

    def close_registry(self) -> None:
        if self.served is not None:
            self.served.shutdown()
            self.served.server_close()
            self.served = None

    @property
    def client(self) -> SchemaRegistryClient:
        return SchemaRegistryClient({"url": self.config.schema_registry})

    def values(self, schema: str, rows: Sequence[dict[str, Any]]) -> list[bytes]:
        """Rows as Confluent's serializer writes them, registered by it."""
        serialize = AvroSerializer(self.client, schema)
        at = SerializationContext(self.topic, MessageField.VALUE)
        return [serialize(row, at) for row in rows]

    def send(self, values: Sequence[bytes | None], key: bytes = b"k") -> None:
        producer = Producer({"bootstrap.servers": self.config.bootstrap_servers, "linger.ms": 60_000})
        for value in values:
            producer.produce(self.topic, key=key, value=value)
        assert producer.flush(30) == 0

    def read_back(self, topic: str) -> list[dict[str, Any]]:
        """What a consumer with Confluent's deserializer gets."""
        deserialize = AvroDeserializer(self.client)
        return [deserialize(value, SerializationContext(topic, MessageField.VALUE)) for value in self.values_of(topic)]

    def says(self, epoch: int) -> str:
        beat = heartbeat.read(self.paths(epoch).heartbeat)
        return "" if beat is None else beat.message


@pytest.fixture
def site(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Site]:
    url = f"http://{registry.HOST}:{free_port()}"
    with lab(
        tmp_path / "lab", kafka, spark, topic(partitions=2), kind=Site, schema_registry=url, small_slice=5
    ) as stream:
        stream.deploy(1)
        stream.open_registry()
        try:
            yield stream
        finally:
            stream.close_registry()


def test_an_avro_stream_waits_for_its_registry_and_a_replay_needs_none(site: Site) -> None:
    rows = [{"id": f"a{n % 3}", "amount": n} for n in range(12)]
    site.send(site.values(FIRST, rows))
    site.send([b'{"id": "a0", "amount": 1}', b"\0\0\0\3\xe7\x02", b"\0\0\0\0\1\x02"])
    first = site.start_live()
    assert site.balances() == {f"a{k}": sum(range(k, 12, 3)) for k in range(3)}
    letters = queries.query(site.paths(first).dead_letters, None).to_pylist()
    assert sorted(letter["reason"] for letter in letters) == [
        "schema 999 is not in the schema registry",
        "the value does not begin with zero and the id of a schema",
        "the value does not decode with schema 1",
    ]
    sent = site.read_back(f"{site.topic}.moves")
    assert sorted((row["id"], row["counted"]) for row in sent) == sorted((row["id"], row["amount"]) for row in rows)

    later = site.values(SECOND, [{"id": "a0", "amount": 100, "price": None}])
    position = site.ledger(first).state().position
    site.close_registry()
    site.send(later)
    site.wait(lambda: "schema registry" in site.says(first), "the driver says what it waits for")
    assert site.ledger(first).state().position == position
    site.open_registry()
    site.settle(first)
    assert site.balances()["a0"] == 118
    assert len(site.dead_letters(first)) == 3
    newest = site.client.get_latest_version(f"{site.topic}-value").schema_id
    assert load(site.config.lake, site.topic).keys() == {1, newest, 999}

    site.close_registry()
    second = site.plan_replay()
    site.run(second)
    site.await_stage(second, Stage.VERIFIED)
    assert site.balances(second) == site.balances(first)
    control.cut_over(site.config, site.name, second, actor="test", reason="test")
    site.await_live(second)
    site.send(later)
    site.settle(second)
    assert site.balances()["a0"] == 218
    certificate = control.certify(site.config, site.name)
    assert certificate.complete, certificate.problems
    counted = recount(site.paths(second)).with_more(recount_topics(site.config, site.paths(second), site.kafka))
    assert (counted.problems, counted.unread) == ((), ())
    assert len([place for place in counted.read if place.startswith("topic ")]) == 3

    # A reader of a versioned topic finds its schemas in the lake, where the sending topology stored them.
    story, name = f"{site.topic}.story", f"{site.name}.told"
    (site.config.topologies / "told.py").write_text(READER.format(name=name, of=site.name, topic=story))
    reader = Site(config=site.config, kafka=site.kafka, topic=story, name=name, session=site.session)
    try:
        epoch = reader.start()
        reader.await_live(epoch)
        reader.settle(epoch, [site.topic])
        table = queries.query(reader.paths(epoch).output("told"), None)
        assert (table.num_rows, queries.query(reader.paths(epoch).dead_letters, None).num_rows) == (14, 0)
        assert sum(table["counted"].to_pylist()) == sum(site.balances().values())
    finally:
        reader.close()

    site.open_registry()
    totals = {row["id"]: row["total"] for row in site.read_back(f"{site.topic}.totals")}
    assert totals == site.balances()
    assert len(site.read_back(f"{site.topic}.story.e0002")) == 14


def test_a_registry_failing_during_a_handover_leaves_the_live_epoch_live(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.config = replace(site.config, handover_seconds=15.0, attempts=100)
    first = site.start_live()
    site.send(site.values(FIRST, [{"id": f"a{n % 3}", "amount": n} for n in range(12)]))
    site.settle(first)
    # Version 2 sends one column more, so that its topics have schemas that no lake has.
    wider = TOPOLOGY.replace('total BIGINT"\n\nbal', 'total BIGINT, note STRING"\n\nbal')
    wider = wider.replace(' AS counted")', ' AS counted", "CAST(NULL AS STRING) AS note")')
    text = wider.format(version=2, factor=1, topic=site.topic, name=site.name)
    (site.config.topologies / "balances.py").write_text(text)
    second = site.plan_replay()
    site.run(second)
    site.await_stage(second, Stage.VERIFIED)
    site.wait(lambda: site.ledger(second).state().baseline_seq is not None, "the candidate is ready to move")
    more = site.values(FIRST, [{"id": "a0", "amount": 100}])

    def live_goes_on(is_met: Callable[[], object]) -> None:
        """A handover begins, meets the registry and is withdrawn, and the live epoch sends on."""
        control.cut_over(site.config, site.name, second, actor="test", reason="v2")
        site.wait(is_met, "the candidate asks the registry")
        site.wait(lambda: site.record().handover is None, "the live epoch takes the handover back")
        site.send(more)
        site.settle(first)
        assert site.record().live == first

    site.close_registry()
    live_goes_on(lambda: "does not answer" in site.says(second))
    site.open_registry()
    refused: list[str] = []

    post = registry.SchemaStore.post

    def refuse(store: registry.SchemaStore, parts: list[str], *schema: str) -> tuple[int, object]:
        if parts[-1] != "versions":
            return post(store, parts, *schema)
        refused.append(parts[1])
        return 409, {"error_code": 409, "message": "Schema being registered is incompatible."}

    with monkeypatch.context() as refusing:
        refusing.setattr(registry.SchemaStore, "post", refuse)
        live_goes_on(lambda: refused)

    def is_moved() -> bool:
        """Asked for again where fifteen seconds were too short for a busy machine."""
        record = site.record()
        if record.handover is None and record.live == first:
            control.cut_over(site.config, site.name, second, actor="test", reason="v2")
        return bool(record.live == second)

    site.wait(is_moved, "the registry takes the schemas, and the candidate goes live")
    site.send(more)
    site.settle(second)
    assert site.balances() == {"a0": 318, "a1": 22, "a2": 26}
    assert site.dead_letters(first) == site.dead_letters(second) == []
    assert sorted(row["counted"] for row in site.read_back(f"{site.topic}.moves")) == [*range(12), 100, 100, 100]
    certificate = control.certify(site.config, site.name)
    assert certificate.complete, certificate.problems


def test_new_code_whose_values_need_another_schema_registers_none_and_is_not_equal(site: Site) -> None:
    site.send(site.values(FIRST, [{"id": "a", "amount": 1}]))
    epoch = site.start_live()
    site.send(site.values(FIRST, [{"id": "b", "amount": 2}]))
    site.settle(epoch)
    running, file = site.record().epoch(epoch).code, site.config.topologies / "balances.py"
    subjects = {name: site.client.get_versions(name) for name in site.client.get_subjects()}

    def tried() -> Trial:
        after = load_apart(file.parent, site.name)
        return trial(site.config, site.session, site.paths(epoch), running, after, 1)

    assert tried().is_equal
    file.write_text(file.read_text().replace('MOVE = "id STRING NOT NULL', 'MOVE = "id STRING'))
    other = tried()
    assert other.report is not None and not other.is_equal and other.findings == ()
    (check,) = other.report.checks
    assert check.name == "schemas of topics" and f"'{site.topic}.moves-value'" in check.detail
    assert {name: site.client.get_versions(name) for name in site.client.get_subjects()} == subjects
