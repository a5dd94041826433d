"""A changelog on a real broker, folded in memory and by Spark: the newest row of each key, whatever its type."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.slices import Epoch

from kappa.delta import queries, tables
from kappa.errors import DataLossError, NewerFormatError
from kappa.kafka import changelogs
from kappa.kafka.producer import Sender
from kappa.slices import folding
from kappa.topology import Source, Table, Topology
from kappa.wire.encoding import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark]

#: What Arrow reads from JSON, and with it what it has no types for.
PLAIN = "id STRING NOT NULL, n INT, total DECIMAL(18,4), ratio DOUBLE, at TIMESTAMP, s STRUCT<a: ARRAY<STRING>>"
ODD = f"{PLAIN}, raw BINARY, named MAP<STRING, INT>"
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)

Rows = dict[str, dict[str, Any]]


class Changelog:
    """A changelog and the epoch that is folded into."""

    def __init__(self, name: str, schema: str, folder: Path, kafka: Broker, session: SparkSession) -> None:
        self.table = Table(name="kept", key=["id"], schema=schema)
        topology = Topology(
            name=f"folding.{name}",
            version="1",
            sources=[Source(topic="pos", schema="id STRING NOT NULL")],
            tables=[self.table],
            step=lambda _: {},
        )
        self.epoch = Epoch(folder / "lake", topology)
        servers = kafka.bootstrap_servers
        engines = replace(self.epoch.run.engines, session=session, broker=kafka, bootstrap_servers=servers)
        self.epoch.run.engines = engines
        self.kafka, self.topic = kafka, self.epoch.paths.changelog("kept")
        kafka.create_topic(self.topic, 3, {"cleanup.policy": "compact"})

    def send(self, rows: list[dict[str, Any]], seq: int) -> None:
        """One transaction: rows, of which those with ``_deleted`` delete their key."""
        schema = pa.schema([*tables.schema_of(self.epoch.paths.table("kept")), ("_deleted", pa.bool_())])
        sent = pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for row in rows], schema=_nullable(schema))
        self.send_records(list(changelogs.changelog_records(self.topic, self.table, sent, seq)))

    def send_records(self, records: list[Record]) -> None:
        with Sender(self.kafka.bootstrap_servers, f"{self.topic}.id", f"{self.topic}.group") as sender:
            sender.init()
            sender.send(records, None)

    def fold(self, upto_seq: int = 99) -> Rows:
        """Fold it, and give the table's rows."""
        folding.fold_into(self.epoch.run, self.epoch.paths, self.table, upto_seq)
        table_rows = queries.query(self.epoch.paths.table("kept"), None).to_pylist()
        rows: Rows = {
            row["id"]: {k: dict(v) if k == "named" and v else v for k, v in row.items()} for row in table_rows
        }
        assert len(rows) == len(table_rows)
        return rows


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


@pytest.fixture
def new_changelog(
    request: pytest.FixtureRequest, tmp_path: Path, kafka: Broker, spark: SparkSession
) -> Iterator[Callable[[str], Changelog]]:
    instances: list[Changelog] = []

    def make(schema: str) -> Changelog:
        name = f"c{random.Random(request.node.nodeid).randrange(10**9)}{len(instances)}"
        instances.append(Changelog(name, schema, tmp_path / name, kafka, spark))
        return instances[-1]

    yield make
    kafka.delete_topics([one.topic for one in instances])


@pytest.fixture(params=["in memory", "more keys than fit", "more bytes than fit"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The way a changelog is folded; checks that it was used."""
    name = str(request.param)
    ways: list[str] = []
    overwrite, overwrite_frame = tables.overwrite, tables.overwrite_frame
    monkeypatch.setattr(tables, "overwrite", lambda *args: (ways.append("memory"), overwrite(*args)))
    monkeypatch.setattr(tables, "overwrite_frame", lambda *args: (ways.append("spark"), overwrite_frame(*args)))
    if name == "more keys than fit":
        monkeypatch.setattr(folding, "MOST_KEYS", 40)
    if name == "more bytes than fit":
        monkeypatch.setattr(folding, "MOST_BYTES", 9_000)
    yield name
    assert ways == ["memory" if name == "in memory" else "spark"]


def history(schema: str, day: int) -> tuple[list[list[dict[str, Any]]], Rows]:
    """Slices of changes, and the rows that they lead to."""
    rng, slices, rows = random.Random(day), [], {}
    for seq in range(8):
        slices.append([])
        for key in rng.sample([f"k{n}" for n in range(300)], 100):
            if rng.random() < 0.2:
                rows.pop(key, None)
                slices[-1].append({"id": key, "_deleted": True})
                continue
            row: dict[str, Any] = {
                "id": key,
                "n": rng.choice([None, seq]),
                "total": Decimal(rng.randrange(10**12)).scaleb(-4),
                "ratio": rng.random() - 0.5,
                "at": AT + timedelta(microseconds=rng.randrange(10**12)),
                "s": rng.choice([None, {"a": None}, {"a": ["\n", None, '"}']}]),
            }
            if schema == ODD:
                row |= {"raw": rng.randbytes(3), "named": {"a b": rng.choice([None, 3])}}
            slices[-1].append({**row, "_deleted": False})
            rows[key] = row
    return slices, rows


def test_the_newest_row_of_each_key_is_the_table(new_changelog: Callable[[str], Changelog], way: str) -> None:
    changelog = new_changelog(ODD)
    slices, rows = history(ODD, 7)
    for seq, changes in enumerate(slices, 1):
        changelog.send(changes, seq)
    assert 100 < len(rows) < 300
    assert changelog.fold(upto_seq=8) == rows


def test_a_second_fold_changes_nothing(new_changelog: Callable[[str], Changelog]) -> None:
    changelog = new_changelog(PLAIN)
    changelog.send([{"id": "a", "n": 1}], 1)
    first = changelog.fold()
    version = tables.version(changelog.epoch.paths.table("kept"))
    assert changelog.fold() == first
    assert tables.version(changelog.epoch.paths.table("kept")) == version


def test_an_empty_changelog_is_an_empty_table(new_changelog: Callable[[str], Changelog]) -> None:
    assert new_changelog(PLAIN).fold() == {}


@pytest.mark.parametrize("most", [folding.MOST_KEYS, 0], ids=["in memory", "by Spark"])
def test_records_without_a_marker_are_refused(
    new_changelog: Callable[[str], Changelog], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "MOST_KEYS", most)
    changelog = new_changelog(PLAIN)
    changelog.send([{"id": "a", "n": 1}], 1)
    changelog.send([{"id": "b", "n": 1}, {"id": "a", "n": 2}], 2)
    with pytest.raises(DataLossError, match="has 2 records after slice 1"):
        changelog.fold(upto_seq=1)
    assert tables.version(changelog.epoch.paths.table("kept")) == 0
    assert len(changelog.fold(upto_seq=2)) == 2


@pytest.mark.parametrize("most", [folding.MOST_KEYS, 0], ids=["in memory", "by Spark"])
def test_records_of_newer_code_are_refused(
    new_changelog: Callable[[str], Changelog], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "MOST_KEYS", most)
    changelog = new_changelog(PLAIN)
    changelog.send([{"id": "a", "n": 1}], 1)
    headers = [(changelogs.SEQ, b"1"), (changelogs.FORMAT_HEADER, b"2")]
    changelog.send_records([Record(changelog.topic, b"k", b'{"id":"b"}', headers)])
    with pytest.raises(NewerFormatError, match="has format 2"):
        changelog.fold()
    assert tables.version(changelog.epoch.paths.table("kept")) == 0


def test_an_infinity_survives_a_fold(new_changelog: Callable[[str], Changelog]) -> None:
    changelog = new_changelog(PLAIN)
    changelog.send([{"id": "a", "ratio": float("inf")}, {"id": "b", "ratio": 1.5}], 1)
    assert {key: row["ratio"] for key, row in changelog.fold().items()} == {"a": float("inf"), "b": 1.5}


@pytest.mark.parametrize("most", [folding.MOST_KEYS, 0], ids=["in memory", "by Spark"])
def test_a_value_that_is_not_a_row_of_the_table_is_named(
    new_changelog: Callable[[str], Changelog], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "MOST_KEYS", most)
    changelog = new_changelog(PLAIN)
    changelog.send([{"id": "a", "n": 1}, {"id": "b", "n": 1}], 1)
    changelog.send_records([Record(changelog.topic, b"k", b'{"id":"c","n":"x"}', [(changelogs.SEQ, b"1")])])
    with pytest.raises(Exception, match="A value of a changelog is not a row of its table: n does not fit INT"):
        changelog.fold()
    assert tables.version(changelog.epoch.paths.table("kept")) == 0


@pytest.mark.parametrize("most", [folding.MOST_KEYS, 0], ids=["in memory", "by Spark"])
def test_the_last_slice_of_a_key_counts_in_a_topic_that_got_more_partitions(
    new_changelog: Callable[[str], Changelog], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "MOST_KEYS", most)
    changelog, rng = new_changelog(PLAIN), random.Random(7)
    sent = [(1, n, n) for n in range(20)] + [(seq, rng.randrange(20), rng.choice([None, seq])) for seq in range(2, 90)]
    from confluent_kafka import Producer

    from kappa.kafka.connection import producer_settings

    producer = Producer(producer_settings(changelog.kafka.bootstrap_servers))
    newest: dict[str, int | None] = {}
    for seq, n, value in sent:
        partition = 2 if seq < 60 else n % 2  # a few late records in partitions that are nearly empty
        text = None if value is None else f'{{"id":"k{n}","n":{value}}}'.encode()
        headers = [(changelogs.SEQ, str(seq).encode())]
        producer.produce(changelog.topic, text, f'{{"id":"k{n}"}}'.encode(), partition=partition, headers=headers)
        newest[f"k{n}"] = value
    assert producer.flush(30) == 0
    expected = {name: value for name, value in newest.items() if value is not None}
    assert {name: row["n"] for name, row in changelog.fold().items()} == expected
    assert 0 < len(expected) < len(newest)
