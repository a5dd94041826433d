"""Operators beside Kafka Streams on the same topics: the same rows, live and replayed, key by key.

Where both differ on purpose, the records leave the case out: docs/kafka-streams.md has a table of such cases.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka import Producer
from support.epochs import lab, plain_settings, read_messages
from support.joint_topologies import Member
from support.kafka_streams import Peer, program

from kappa import serving
from kappa.lake import queries
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

Row = dict[str, Any]
BEGIN, PARTITIONS, RECORDS = 1_700_000_000_000, 3, 400
#: Behind the last record by so much that everything closes.
END_MS = 10_000_000
SUMS = '{"rows": agg.count(), "total": agg.sum("n")}'
STREAMS = """
from kappa import Append, Source, Topology
from kappa.operators import agg, aggregate, cogroup, hopping_window, interval_join, session_window
from kappa.operators import sliding_window, tumbling_window

ROW = "id STRING, ref STRING, n BIGINT NOT NULL"
LEFT = Source(topic="{left}", schema=ROW, grace="2 seconds")
RIGHT = Source(topic="{right}", schema=ROW, grace="2 seconds")
SUMS = {sums}
result = {result}
topology = Topology(
    name="{name}",
    version="1",
    sources=[{sources}],
    operators=[result],
    outputs=[{output}],
)
"""
TABLES = """
from kappa import Append, Source, Topology
from kappa.operators import foreign_key_join, newest_by, table_table_join

ROW = "ref STRING, n BIGINT"
LEFT = Source(topic="{left}", schema=ROW, key_schema="id STRING", tombstones=True)
RIGHT = Source(topic="{right}", schema=ROW, key_schema="id STRING", tombstones=True)
lefts, rights = newest_by(LEFT, key="id", table="lefts"), newest_by(RIGHT, key="id", table="rights")
result = {result}
topology = Topology(name="{name}", version="1", sources=[LEFT, RIGHT], operators=[lefts, rights, result])
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An operator of both.

    Attributes:
        result: the operator here.
        rows: its rows in the form in which those of Kafka Streams are compared.
        is_table: whether the newest row of each key counts.
        reads_both: whether it reads both topics.
        late_ms: by how much records come out of order.
        template: the file of the topology.
    """

    result: str
    rows: Callable[[Row], tuple[Any, ...]]
    is_table: bool = False
    reads_both: bool = False
    late_ms: tuple[int, ...] = (0, 0, 0, 500, 1_900)
    template: str = STREAMS


def ms(time: Any) -> int:
    return round(time.timestamp() * 1000)


def window(start: str, end: str) -> Callable[[Row], tuple[Any, ...]]:
    return lambda row: (row["id"], ms(row[start]), ms(row[end]), row["rows"], row["total"])


def pair(row: Row) -> tuple[Any, ...]:
    return (row["n"], row["n_right"])


def pair_of_key(row: Row) -> tuple[Any, ...]:
    return (row["id"], row["n"], row["n_right"])


def sums(row: Row) -> tuple[Any, ...]:
    return (row["id"], row["rows"], row["total"])


def joined(how: str) -> str:
    return f'interval_join(LEFT, RIGHT, key="id", within="4 seconds", how="{how}", tables=("l", "r"))'


def windowed(function: str, **lengths: str) -> str:
    said = ", ".join(f'{name}="{length}"' for name, length in lengths.items())
    return f'{function}(LEFT, key="id", {said}, aggregates=SUMS, table="open")'


FAR = (0, 0, 0, 500, 1_900, 9_000)
CASES: Mapping[str, Case] = {
    "tumbling": Case(
        result=windowed("tumbling_window", size="10 seconds"),
        rows=window("window_start", "window_end"),
        late_ms=(*FAR, 2_500, 14_000),
    ),
    "hopping": Case(
        result=windowed("hopping_window", size="10 seconds", every="5 seconds"),
        rows=window("window_start", "window_end"),
        late_ms=(*FAR, 2_500, 14_000),
    ),
    "session": Case(
        result=windowed("session_window", gap="3 seconds"), rows=window("session_start", "session_end"), late_ms=FAR
    ),
    "sliding": Case(
        result=windowed("sliding_window", size="4 seconds"), rows=window("window_start", "window_end"), late_ms=FAR
    ),
    "aggregate": Case(
        result='aggregate(LEFT, key="id", aggregates=SUMS, table="result")', rows=sums, is_table=True, late_ms=FAR
    ),
    "cogroup": Case(
        result='cogroup({"l": LEFT, "r": RIGHT}, key="id", aggregates={"l": SUMS, "r": SUMS}, table="result")',
        rows=sums,
        is_table=True,
        reads_both=True,
        late_ms=FAR,
    ),
    "inner join": Case(result=joined("inner"), rows=pair, reads_both=True),
    "left join": Case(result=joined("left"), rows=pair, reads_both=True),
    "outer join": Case(result=joined("outer"), rows=pair, reads_both=True),
    **{
        f"{how} join of tables": Case(
            result=f'table_table_join(lefts, rights, key="id", how="{how}", table="result")',
            rows=pair_of_key,
            is_table=True,
            reads_both=True,
            template=TABLES,
        )
        for how in ("inner", "left", "outer")
    },
    "foreign key join": Case(
        result='foreign_key_join(lefts, rights, foreign_key={"ref": "id"}, table="result")',
        rows=pair_of_key,
        is_table=True,
        reads_both=True,
        template=TABLES,
    ),
}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    return program(tmp_path_factory.mktemp("peer"), Path.home() / ".cache" / "kappa")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_what_kafka_streams_gives(
    name: str, seed: int, classes: str, tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession
) -> None:
    case = CASES[name]
    left, right, output = (topic(partitions=PARTITIONS, retention_ms="-1") for _ in range(3))
    produce(kafka, left, right, case, random.Random(seed))
    reads = [left, right] if case.reads_both else [left]
    Peer(classes, tmp_path / "peer", kafka).run(name, [left, right], output, reads=reads)
    expected = of_peer(kafka, output, case)
    assert len(expected) > 10

    with lab(tmp_path / "lab", kafka, spark, left) as made:
        name = f"peer.{left.replace('.', '_').replace('-', '_').lower()}"
        text = case.template.format(
            left=left,
            right=right,
            name=name,
            sums=SUMS,
            result=case.result,
            sources="LEFT, RIGHT" if case.reads_both else "LEFT",
            output="" if case.is_table else f'Append(name="result", of=result.{emitted(case)})',
        )
        (made.config.topologies / "one.py").write_text(text)
        member = Member(name=name, config=made.config, kafka=kafka, topic=left, session=spark)
        try:
            member.start_live()
            member.settle(1, reads)
            assert ours(member, 1, case) == expected
            second = member.plan_replay(slice_records=150)
            member.run(second)
            member.await_stage(second, Stage.VERIFIED)
            assert ours(member, second, case) == expected
        finally:
            member.close()


def emitted(case: Case) -> str:
    return "rows" if case.result.startswith("interval_join") else "final"


def produce(kafka: Broker, left: str, right: str, case: Case, chance: random.Random) -> None:
    """Records of both topics: out of order, some late, with ties, null keys and null values; then some of the end."""
    producer = Producer({**plain_settings(kafka.bootstrap_servers), "partitioner": "murmur2_random"})
    clock = 0
    for number in range(RECORDS):
        clock += chance.choice([0, 0, 100, 250, 700])
        for topic in (left, right):
            key = chance.choice(["a", "b", "c", "d", "e", "f", "g", None])
            at = max(0, clock - chance.choice(case.late_ms))
            value: Row | None = {"id": key, "ref": chance.choice(["a", "c", "x", None]), "n": number}
            if key is not None and chance.random() < 0.1:
                value = None
            place = {} if key is not None else {"partition": chance.randrange(PARTITIONS)}
            # What has no key or no value does not move the time of Kafka Streams' windows: it is in no record ahead.
            at = at if key is not None and value is not None else max(0, clock - 2_000)
            producer.produce(
                topic,
                key=None if key is None else key.encode(),
                value=None if value is None else orjson.dumps(value),
                timestamp=BEGIN + at,
                **place,
            )
    for partition in range(PARTITIONS):
        for topic in (left, right):
            end = {"id": f"z{partition}", "ref": None, "n": -1}
            producer.produce(
                topic,
                key=end["id"].encode(),
                value=orjson.dumps(end),
                partition=partition,
                timestamp=BEGIN + clock + END_MS,
            )
    assert producer.flush(30) == 0


def of_peer(kafka: Broker, output: str, case: Case) -> Counter[tuple[Any, ...]]:
    """What Kafka Streams sent, as it is compared; of a table the newest value of each key."""
    newest: dict[str, tuple[Any, ...]] = {}
    found: Counter[tuple[Any, ...]] = Counter()
    for message in read_messages(kafka.bootstrap_servers, output):
        key, value = message.key(), message.value()
        assert key is not None
        name, row = key.decode(), None if value is None else orjson.loads(value)
        if name.startswith("z"):
            continue
        if case.is_table:
            newest.pop(name, None)
            if row is not None:
                newest[name] = (name, *((row["rows"], row["total"]) if "rows" in row else (row["left"], row["right"])))
        elif row is not None and "rows" in row:
            found[row["id"], row["start"], row["end"], row["rows"], row["total"]] += 1
        elif row is not None:
            found[row["left"], row["right"]] += 1
    return Counter(newest.values()) if case.is_table else found


def ours(member: Member, epoch: int, case: Case) -> Counter[tuple[Any, ...]]:
    """The same of an epoch."""
    return Counter(case.rows(row) for row in rows_of(member, epoch, case) if not str(row["id"]).startswith("z"))


def rows_of(member: Member, epoch: int, case: Case) -> Iterator[Row]:
    if case.is_table:
        yield from serving.snapshot(member.config, member.name, epoch=epoch).rows("result").to_pylist()
    else:
        yield from queries.query(member.paths(epoch).output("result"), None).to_pylist()
