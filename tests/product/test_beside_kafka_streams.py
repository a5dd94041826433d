"""Operators beside Kafka Streams on the same topics: the same rows, live and replayed, key by key.

Where both differ on purpose, random records leave the case out, and records of that case alone show the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.epochs import lab, read_messages
from support.joint_topologies import Member
from support.kafka_streams import Peer, peer
from support.kafka_streams.cases import CASES, Case, Compared
from support.kafka_streams.differences import DIFFERENCES
from support.kafka_streams.histories import (
    BEGIN_MS,
    PARTITIONS,
    Record,
    drawn,
    hold_awkward,
    is_end,
    produced,
    records_of,
)

from kappa import serving
from kappa.delta import queries
from kappa.kafka.broker import Broker
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import RunningBroker, TopicFactory
    from pyspark.sql import SparkSession

    from kappa_local.kafka import KafkaProcess

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.usefixtures("small_slices")]

Rows = Counter[Compared]


@dataclass(frozen=True, kw_only=True)
class Sides:
    """What both made of the same records.

    Attributes:
        theirs: rows of Kafka Streams.
        live: rows of the live epoch.
        replayed: those of a replay in small slices.
        late: how many rows the live epoch has in ``late_records``.
        dead: how many dead letters it has.
    """

    theirs: Rows
    live: Rows
    replayed: Rows
    late: int
    dead: int


@pytest.fixture(scope="module")
def kafka_streams(tmp_path_factory: pytest.TempPathFactory, broker: KafkaProcess | RunningBroker) -> Iterator[Peer]:
    """One process of Kafka Streams for all cases."""
    with (
        Broker(broker.bootstrap_servers) as client,
        peer(tmp_path_factory.mktemp("peer"), Path.home() / ".cache" / "kappa", client) as running,
    ):
        yield running


@pytest.fixture
def both(
    kafka_streams: Peer, tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession
) -> Callable[[Case, Sequence[Record]], Sides]:
    """Sends records, and lets Kafka Streams, a live epoch and a replay read them."""

    def sides(case: Case, records: Sequence[Record]) -> Sides:
        left, right, output = (topic(partitions=PARTITIONS) for _ in range(3))
        produced(kafka.bootstrap_servers, [left, right], records)
        reads = [left, right] if case.right else [left]
        theirs = [left] if case.is_global else reads
        kafka_streams.run(case.peer, [left, right], output, reads=theirs)
        with lab(tmp_path / "lab", kafka, spark, left) as stream:
            name = f"beside.{left.replace('.', '_')}"
            (stream.config.topologies / "one.py").write_text(case.file(name, left, right))
            member = Member(name=name, config=stream.config, kafka=kafka, topic=left, session=spark)
            try:
                member.start_live()
                member.settle(1, reads)
                second = member.plan_replay(slice_records=150)
                member.run(second)
                member.await_stage(second, Stage.VERIFIED)
                late = queries.query(member.paths(1).output("late_records"), None).to_pylist() if has_late(case) else []
                return Sides(
                    theirs=of_peer(kafka, output, case),
                    live=of_epoch(member, 1, case),
                    replayed=of_epoch(member, second, case),
                    late=len(late),
                    dead=len(member.dead_letters(1)),
                )
            finally:
                member.close()

    return sides


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_the_results_of_kafka_streams(
    name: str, seed: int, both: Callable[[Case, Sequence[Record]], Sides]
) -> None:
    case = CASES[name]
    records = drawn(case.history, seed)
    hold_awkward(records, case.history, sides=2 if case.right else 1)

    sides = both(case, records)

    assert len(sides.theirs) >= 3
    assert sides.live == sides.theirs
    assert sides.replayed == sides.theirs
    assert sides.dead == sum(is_dead(case, record) for record in records)
    assert (sides.late > 0) == any(record.is_late for record in records)


@pytest.mark.parametrize("what", DIFFERENCES)
def test_both_differ_where_the_page_documents_it(what: str, both: Callable[[Case, Sequence[Record]], Sides]) -> None:
    difference = DIFFERENCES[what]
    assert Counter(difference.theirs) != Counter(difference.ours)

    sides = both(difference.case, records_of(difference.records))

    assert sides.theirs == Counter(difference.theirs)
    assert sides.live == Counter(difference.ours)
    assert sides.replayed == Counter(difference.ours)


def has_late(case: Case) -> bool:
    """Whether its topology has an output of late records: its left source has event time."""
    return "grace=" in case.left


def is_dead(case: Case, record: Record) -> bool:
    """Whether a topology cannot make a row of the record."""
    schema = (case.left, case.right)[record.side]
    if not schema:
        return False
    is_of_table = "tombstones" in schema
    if record.is_row:
        return is_of_table and record.key is None
    return record.value is not None or not is_of_table


def of_peer(kafka: Broker, output: str, case: Case) -> Rows:
    """The rows that Kafka Streams sent; of a table the newest row per key."""
    rows: list[tuple[str | None, Compared | None]] = []
    for message in read_messages(kafka.bootstrap_servers, output):
        key = None if message.key() is None else message.key().decode()
        value = None if message.value() is None else orjson.loads(message.value())
        if case.form.is_table:
            rows = [(other, row) for other, row in rows if other != key]
        if value is not None and not is_end(key) and value.get("n") != -1 and value.get("left") != -1:
            rows.append((key, case.form.theirs(key, _from_beginning(value), message.partition())))
    return Counter(row for _, row in rows if row is not None)


def _from_beginning(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: part - BEGIN_MS if name in ("start", "end") else part for name, part in value.items()}


def of_epoch(member: Member, epoch: int, case: Case) -> Rows:
    """The same of an epoch."""
    if "Append(" in case.rest:
        rows = queries.query(member.paths(epoch).output("result"), None).to_pylist()
    else:
        rows = serving.snapshot(member.config, member.name, epoch=epoch).rows("result").to_pylist()
    return Counter(case.form.ours(row) for row in rows if not is_end(row.get("id")) and row.get("n") != -1)
