"""Adopted tables on a real broker: rows that an epoch cannot hold, jobs that run on, groups, outputs, topics."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable, write_deltalake
from support.epochs import TOPOLOGY, Lab, lab, plain_settings

from kappa import control
from kappa.delta import queries
from kappa.errors import RefusedError, UnknownGroupError
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

BEFORE: Sequence[tuple[str, int]] = [("a", 1), ("b", 2), ("a", 3)]
AFTER: Sequence[tuple[str, int]] = [("b", 5), ("c", 7)]
ROWS = pa.table({"id": ["a", "b"], "total": pa.array([4, 2], pa.int64())})


@dataclass(kw_only=True)
class Adopting(Lab):
    """A lab whose stream is adopted, by the command."""

    @property
    def table(self) -> str:
        """The table of the old job."""
        return str(self.config.home.parent / "old")

    def offsets(self) -> str:
        """A file with where the topic ends."""
        file = self.config.home.parent / "offsets.csv"
        ends = self.kafka.stable_offsets([self.topic])
        file.write_text("".join(f"{topic},{part},{offset}\n" for (topic, part), offset in ends.items()))
        return str(file)

    def adopt(self, *words: str) -> str:
        """Plan the adoption at the end of the topic; with ``--execute`` put it on record."""
        position = () if "--group" in words else ("--from-file", self.offsets())
        return self.output_of("adopt", self.name, "--table", f"balances={self.table}", *position, *words, "--detach")

    def await_stuck(self, epoch: int) -> str:
        """Wait until an epoch is stuck; why it is."""

        def reasons() -> list[str]:
            assert self.record().live is None
            return [e.reason for e in self.record().events if e.event == "stuck" and e.epoch == epoch]

        return str(self.wait(reasons, "the epoch is stuck")[-1])

    def go_on(self, epoch: int = 1) -> None:
        """Run the driver until the epoch is live, and read more records."""
        self.run(epoch)
        self.await_live(epoch)
        self.produce(AFTER)
        self.settle(epoch)


@dataclass(kw_only=True)
class Reconciling(Adopting):
    """The same with a topic that is reconciled with the table."""

    template = TOPOLOGY.replace('of="moves", key="id"', 'of="balances", key="id", on_replay="reconcile"')

    def held(self) -> dict[str, int]:
        """The topic, folded."""
        return {row["id"]: row["total"] for row in map(orjson.loads, self.sent_values())}


@dataclass(kw_only=True)
class Requiring(Adopting):
    """The same with a table whose columns may not be null."""

    template = TOPOLOGY.replace('rows="id STRING, counted BIGINT"', 'rows="id STRING NOT NULL, counted BIGINT"')


@pytest.fixture
def kind() -> type[Adopting]:
    return Adopting


@pytest.fixture
def stream(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession, kind: type[Adopting]
) -> Iterator[Adopting]:
    """A topology that no epoch was made of, whose topic has records that the old job has read."""
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=kind) as stream:
        stream.deploy(1)
        stream.produce(BEFORE)
        yield stream


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [None, "b"], "total": pa.array([4, 2], pa.int64())}, "1 rows have null in column 'id'"),
        ({"id": ["a", "a", "b", "b", "c"], "total": pa.array([1, 2, 3, 4, 5], pa.int64())}, "2 keys (id) have several"),
        ({"id": ["a", "b"], "total": [4.5, 2.0]}, "1 rows have a value in column 'total' that does not fit BIGINT"),
    ],
)
def test_rows_that_the_table_cannot_hold_stop_the_epoch(
    stream: Adopting, columns: dict[str, Any], message: str
) -> None:
    write_deltalake(stream.table, pa.table(columns))
    stream.adopt("--execute")
    stream.run(1)
    reason = stream.await_stuck(1)
    assert message in reason and "4.5" not in reason
    assert stream.record().live is None
    assert not list(stream.sent_values())


def test_a_job_that_wrote_on_is_noticed_and_its_table_adopted_again(stream: Adopting) -> None:
    write_deltalake(stream.table, ROWS.slice(0, 1))
    stream.adopt("--execute")
    write_deltalake(stream.table, ROWS.slice(1, 1), mode="append")
    stream.run(1)
    assert "moved on: it is at version 1, and was at 0" in stream.await_stuck(1)
    stream.stop(1)
    stream.output_of("abort", stream.name, "1", "--execute")
    stream.adopt("--execute")
    stream.go_on(2)
    assert stream.balances() == {"a": 4, "b": 7, "c": 7} == stream.folded(2)


@pytest.mark.parametrize(
    ("commits", "message"),
    [(2, "is not the table that was adopted: another table is there"), (1, "moved on: it is at version 0, and was at")],
)
def test_a_table_made_anew_is_not_taken_for_the_adopted_one(stream: Adopting, commits: int, message: str) -> None:
    def write(rows: pa.Table, count: int) -> None:
        for _ in range(count):
            write_deltalake(stream.table, rows, mode="overwrite")

    write(ROWS, 2)
    stream.adopt("--execute")
    shutil.rmtree(stream.table)
    write(ROWS.slice(0, 1), commits)
    with pytest.raises(RefusedError, match="has epoch 1, adopted from"):
        stream.adopt()
    stream.run(1)
    assert message in stream.await_stuck(1)


@pytest.mark.parametrize("kind", [Requiring])
def test_numbers_that_fit_are_cast_and_other_columns_left_out(stream: Adopting) -> None:
    write_deltalake(stream.table, pa.table({"total": [4.0, 2.0], "mail": ["x", "y"], "id": ["a", "b"]}))
    write_deltalake(stream.table, pa.table({"total": [9.0], "mail": ["z"], "id": ["c"]}), mode="append")
    DeltaTable(stream.table).restore(0)
    shown = stream.adopt("--execute")
    assert "Columns ['mail'] of" in shown
    DeltaTable(stream.table).optimize.compact()  # moves no rows
    DeltaTable(stream.table).create_checkpoint()
    stream.go_on()
    assert stream.balances() == {"a": 4, "b": 7, "c": 7}
    assert sorted(stream.sent()) == sorted(AFTER)


def test_rows_of_an_output_belong_to_no_slice(stream: Adopting) -> None:
    write_deltalake(stream.table, ROWS)
    moves = f"{stream.table}_moves"
    write_deltalake(moves, pa.table({"id": ["a", "b"], "counted": pa.array([4, 2], pa.int64())}))
    shown = stream.adopt("--output", f"moves={moves}", "--execute")
    assert "has no columns ['total'] of 'moves': they are null in its rows" in shown
    stream.go_on()
    rows = queries.query(stream.paths(1).output("moves"), None).to_pylist()
    adopted = [(row["id"], row["counted"], row["total"]) for row in rows if row["_seq"] == 0]
    assert sorted(adopted) == [("a", 4, None), ("b", 2, None)]
    assert all(row["_offset"] is None for row in rows if row["_seq"] == 0)
    assert sorted(row["counted"] for row in rows if row["_seq"] > 0) == [5, 7]


def test_a_topology_is_adopted_once(stream: Adopting) -> None:
    write_deltalake(stream.table, ROWS)
    stream.adopt("--execute")
    stream.go_on()
    with pytest.raises(RefusedError, match=r"has epoch 1, adopted from .* at version 0 .*, at the offsets of"):
        stream.adopt()  # the topic has more records now
    other = f"{stream.table}_2"
    write_deltalake(other, ROWS)
    with pytest.raises(RefusedError, match="a stream is adopted as the first one, once"):
        stream.output_of("adopt", stream.name, "--table", f"balances={other}", "--from-file", stream.offsets())


def test_another_position_is_not_taken_for_the_one_on_record(stream: Adopting) -> None:
    write_deltalake(stream.table, ROWS)
    stream.adopt("--execute")
    stream.adopt("--execute")
    file = stream.config.home.parent / "right.csv"
    file.write_text("".join(f"{stream.topic},{partition},0\n" for partition in (0, 1)))
    with pytest.raises(RefusedError, match=rf"kappa abort {stream.name} 1 --execute"):
        stream.output_of("adopt", stream.name, "--table", f"balances={stream.table}", "--from-file", str(file))


@pytest.mark.parametrize("kind", [Reconciling])
def test_a_topic_that_reconciles_gets_nothing_of_the_adopted_rows(stream: Adopting) -> None:
    write_deltalake(stream.table, ROWS)
    stream.adopt("--execute")
    stream.go_on()
    values = b" ".join(stream.sent_values())
    assert b'"b"' in values and b'"c"' in values and b'"a"' not in values
    stream.deploy(2)
    assert stream.plan_replay() == 2
    stream.run(2)
    stream.await_stage(2, Stage.VERIFIED)
    control.cut_over(stream.config, stream.name, 2, actor="test", reason="test")
    stream.await_live(2)
    assert stream.held() == stream.balances() == {"a": 8, "b": 14, "c": 14}
    stream.stop(1)
    control.rollback(stream.config, stream.name, actor="test", reason="back")
    stream.run(1)
    stream.wait(lambda: control.progress(stream.config, stream.name, 1).is_caught_up, "the adopted epoch is back")
    control.cut_over(stream.config, stream.name, 1, actor="test", reason="back")
    stream.await_live(1)
    assert stream.held() == stream.balances() == {"a": 4, "b": 7, "c": 7}


class TestGroups:
    """The offsets of a consumer group."""

    def consumer(self, stream: Adopting) -> Consumer:
        settings = {"group.id": f"{stream.name}.old", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return Consumer({**plain_settings(stream.config.bootstrap_servers), **settings})

    def commit(self, stream: Adopting, offsets: dict[int, int], topic: str = "") -> None:
        consumer = self.consumer(stream)
        at = [TopicPartition(topic or stream.topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=at, asynchronous=False)
        consumer.close()

    def test_an_unknown_group_is_refused(self, stream: Adopting) -> None:
        write_deltalake(stream.table, ROWS)
        with pytest.raises(UnknownGroupError, match="has no offsets in"):
            stream.adopt("--group", f"{stream.name}.old")

    def test_a_group_with_members_or_without_an_offset_is_refused(self, stream: Adopting) -> None:
        write_deltalake(stream.table, ROWS)
        self.commit(stream, {0: 0})
        message = rf"has no offset for .*\[1\], and none is guessed.* {stream.topic},1,0: --from-file"
        with pytest.raises(RefusedError, match=message):
            stream.adopt("--group", f"{stream.name}.old")
        consumer = self.consumer(stream)
        consumer.subscribe([stream.topic])
        stream.wait(lambda: consumer.poll(0.1) is not None and consumer.assignment(), "the old job reads")
        with pytest.raises(RefusedError, match="the old job still runs"):
            stream.adopt("--group", f"{stream.name}.old")
        consumer.close()

    def test_a_stream_goes_on_where_a_group_stood(self, stream: Adopting, topic: TopicFactory) -> None:
        write_deltalake(stream.table, ROWS)
        ends = stream.kafka.stable_offsets([stream.topic])
        self.commit(stream, {partition: offset for (_, partition), offset in ends.items()})
        other = topic(partitions=1)
        self.commit(stream, {0: 0}, other)
        assert f"(its offsets in {other} are left out)" in stream.adopt("--group", f"{stream.name}.old", "--execute")
        assert stream.plan(1).start == ends
        stream.go_on()
        assert stream.balances() == {"a": 4, "b": 7, "c": 7}
