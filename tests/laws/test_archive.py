"""The laws of the archive: every record once, proved ranges, and a replay from it that equals one from Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from deltalake import DeltaTable
from support.deaths import run_to_death
from support.epochs import Lab, lab, read_messages
from support.processes import QUICK_JVM
from support.ways import in_tasks

from kappa import control
from kappa.archive.overview import status as archive_status
from kappa.archive.overview import stop
from kappa.archive.reader import Archive
from kappa.archive.writer import Archiver, run
from kappa.delta import queries, tables
from kappa.errors import DataLossError, DriverAlreadyRunningError, StaleWriterError, TopologyError
from kappa.kafka.producer import Record, append
from kappa.names import ArchivePaths
from kappa.offsets.vector import Offsets, joins
from kappa.presence import heartbeat
from kappa.replay.explain import explain
from kappa.replay.proof.certificate import Certificate
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import ToDatetime, ToEarliest, ToOffset
from kappa.spark.kafka_source import read_log
from kappa.topology import Source
from kappa.verify.certificate import certificate_of

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

SOAK = pytest.mark.soak
#: What comes from an archive is never taken into memory; how Kafka's records are parsed, tests/spark holds in both
#: ways.
IN_MEMORY = pytest.param(50_000, id="in memory", marks=SOAK)


def rows(count: int, first: int = 0) -> list[tuple[str, int] | bytes]:
    """Moves of seven accounts, every eleventh record broken."""
    return [b"{" if n % 11 == 10 else (f"account-{n % 7}", n + 1) for n in range(first, first + count)]


def live(stream: Lab) -> int:
    """A first epoch that went live, read everything and was stopped."""
    epoch = stream.start_live()
    assert stream.stop(epoch) == []
    return epoch


def replayed(stream: Lab, **request: Any) -> int:
    """A replay that was verified; its driver was stopped."""
    epoch = stream.plan_replay(**request)
    stream.run(epoch)
    stream.await_stage(epoch, Stage.VERIFIED)
    assert stream.stop(epoch) == []
    return epoch


def result(stream: Lab, epoch: int) -> dict[str, list[dict[str, Any]]]:
    """All that an epoch computed, in a fixed order, with the cuts of its slices."""
    paths = stream.paths(epoch)
    commits = stream.ledger(epoch).state().commits
    return {
        "moves": queries.query(paths.output("moves"), None, order_by="_partition, _offset").to_pylist(),
        "balances": queries.query(paths.table("balances"), None, order_by="id").to_pylist(),
        "dead": queries.query(paths.dead_letters, None, order_by='"partition", "offset"').to_pylist(),
        "slices": [
            {"ranges": r.ranges, "read": r.rows_read, "dead": r.rows_dead, "newest": r.max_timestamps} for r in commits
        ],
    }


def from_both(stream: Lab, **request: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of a replay from Kafka and of one from the archive, one after the other."""
    results = []
    for archive in (False, True):
        epoch = replayed(stream, archive=archive, **request)
        results.append(result(stream, epoch))
        archived = [row.detail.get("archived") for row in stream.ledger(epoch).state().commits if row.seq > 0]
        assert all(archived) if archive else not any(archived)
        control.abort(stream.config, stream.name, epoch, actor="test", reason="test")
    return results[0], results[1]


def produce_at(stream: Lab, records: list[tuple[int, int, bytes]]) -> None:
    """Records of (partition, timestamp in milliseconds, value)."""
    refused: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:  # a broker takes no time that is more than an hour ahead
            refused.append(error)

    producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers})
    for partition, timestamp, value in records:
        place = {"partition": partition, "timestamp": timestamp, "on_delivery": on_delivery}
        producer.produce(stream.topic, key=b"k", value=value, **place)
    assert producer.flush(30) == 0
    assert not refused


def out_of_order(count: int) -> list[tuple[int, int, bytes]]:
    """Moves in two partitions whose times go back and forth, with some that are months ahead."""
    moves = []
    for n in range(count):
        ahead = 10**10 if n in (3, 57) else 0
        value = b"{" if n % 11 == 10 else b'{"id": "account-%d", "amount": %d}' % (n % 3, n + 1)
        moves.append((n % 2, 1_700_000_000_000 + 1000 * n - 5000 * (n % 7 == 6) + ahead, value))
    return moves


def archived_places(stream: Lab) -> list[tuple[int, int]]:
    """Partition and offset of every record of the archive."""
    path = ArchivePaths(lake=stream.config.lake, topic=stream.topic).records
    table = queries.query(path, None, select='"partition", "offset"', order_by='"partition", "offset"')
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def logged_places(stream: Lab) -> list[tuple[int, int]]:
    """Partition and offset of every committed record of the topic, by a plain consumer."""
    return sorted((m.partition(), m.offset()) for m in read_messages(stream.config.bootstrap_servers, stream.topic))


class TestEquality:
    def test_a_replay_from_the_archive_equals_one_from_kafka(self, stream: Lab) -> None:
        stream.produce(rows(120))
        live(stream)
        assert stream.archive(slice_records=50) == 120
        logged, archived = from_both(stream)
        assert archived == logged
        assert len(archived["dead"]) == 10

    @pytest.mark.parametrize("small", [IN_MEMORY, pytest.param(0, id="by Spark")])
    def test_replays_are_equal_with_times_out_of_order_and_other_slice_ends(self, stream: Lab, small: int) -> None:
        stream.config = replace(stream.config, small_slice=small)
        produce_at(stream, out_of_order(100))
        live(stream)
        assert stream.archive(slice_records=36) == 100
        logged, archived = from_both(stream, slice_records=22)
        assert archived == logged
        assert len(archived["slices"]) > 4

    @pytest.mark.parametrize("small", [IN_MEMORY, pytest.param(0, id="by Spark")])
    def test_replays_are_equal_from_a_start_after_records_months_ahead(self, stream: Lab, small: int) -> None:
        stream.config = replace(stream.config, small_slice=small)
        produce_at(stream, out_of_order(60))
        live(stream)
        stream.archive(slice_records=24)
        start = ToOffset(offsets=Offsets({stream.topic: {0: 9, 1: 4}}), topics={})
        logged, archived = from_both(stream, start=start, slice_records=16)
        assert archived == logged

    @pytest.mark.parametrize("form", [pytest.param("merged files", marks=SOAK), "deletion vectors"])
    def test_replays_are_equal_from_rewritten_archive_files(self, stream: Lab, spark: Any, form: str) -> None:
        produce_at(stream, out_of_order(100))
        live(stream)
        stream.archive(slice_records=36)
        records = Archive(stream.config.lake, stream.topic).paths.records
        if form == "merged files":
            DeltaTable(records).optimize.compact()
            assert sorted(queries.files(records)["partition.partition"].to_pylist()) == [0, 1]
        else:
            spark.sql(f"ALTER TABLE delta.`{records}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
            assert queries.files(records) is None, "its files alone are not the table"
        logged, archived = from_both(stream, slice_records=22)
        assert archived == logged

    def test_replays_are_equal_for_records_archived_before_their_schema(self, stream: Lab) -> None:
        stream.produce(rows(50))
        topologies = stream.config.topologies
        file = (topologies / "balances.py").rename(topologies / "balances.txt")
        stream.archive()
        file.rename(topologies / "balances.py")
        stream.produce(rows(50, first=50), start_ms=1_700_000_100_000)
        stream.archive()
        live(stream)
        assert [len(c.schemas) for c in Archive(stream.config.lake, stream.topic).chunks] == [0, 0, 1, 1]
        logged, archived = from_both(stream)
        assert archived == logged

    def test_the_tail_comes_from_kafka_as_plan_and_certificate_say(self, stream: Lab) -> None:
        produce_at(stream, out_of_order(60))
        stream.archive(slice_records=20)
        produce_at(stream, out_of_order(40))
        live(stream)
        plan = control.plan(
            stream.config, ReplayRequest(topology=stream.name, start=ToEarliest(), reason="r", actor="a")
        )
        assert [(r.partition, r.start, r.end) for r in plan.archived] == [(0, 0, 30), (1, 0, 30)]
        assert f"{stream.topic}[0]=0..30 {stream.topic}[1]=0..30 from the archive, " in "\n".join(explain(plan))
        logged, mixed = from_both(stream)
        assert mixed == logged
        epoch = replayed(stream)
        certificate = certificate_of(stream.config.lake, stream.record(), candidate=epoch)
        assert certificate.complete, certificate.problems
        assert certificate.archived == {1: plan.archived, epoch: plan.archived}  # the first epoch found the archive too
        assert Certificate.from_json(certificate.to_json()) == certificate
        assert any("from the archive, the rest from Kafka" in line for line in certificate.render())

    def test_records_come_back_with_keys_headers_and_times_in_every_format(self, stream: Lab, spark: Any) -> None:
        producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers})
        values = [b'{"id": "a", "amount": 1}', None, b"", b"\xff", b'{"id": "b"}', b'{"id": "c", "amount": 9}', b"text"]
        headers: list[Any] = [
            None,
            [],
            [("h", b"1"), ("h", b"2")],
            [("n", None)],
            [("e", b"")],
            [("\u00e9", b"\xff")],
            None,
        ]
        for n, (value, header) in enumerate(zip(values, headers, strict=True)):
            key = None if n == 0 else b"\xff" if n == 1 else b"key-%d" % n
            producer.produce(stream.topic, key=key, value=value, headers=header, partition=0, timestamp=10**12 - n)
        assert producer.flush(30) == 0
        stream.archive()
        ranges = stream.kafka.low_watermarks([stream.topic]).span_to(stream.kafka.stable_offsets([stream.topic]))
        schema = "id STRING NOT NULL, amount BIGINT NOT NULL"
        for source in (
            Source(topic=stream.topic, schema=schema),
            Source(topic=stream.topic, schema=schema, headers=True),
            Source(topic=stream.topic, schema="id STRING", headers=True),
            Source(topic=stream.topic, format="string", headers=True),
            Source(topic=stream.topic, format="bytes"),
        ):
            raw = read_log(spark, stream.config.bootstrap_servers, stream.topic, ranges, headers=source.headers)
            logged = in_tasks(raw, source).orderBy("_offset")
            low = stream.kafka.low_watermarks([stream.topic])
            archive = Archive(stream.config.lake, stream.topic)
            assert archive.is_parsed(source, archive.chunks) == (source.schema == schema)
            archived = archive.rows(spark, source, ranges, before={}, history_start=low).drop("_seq").orderBy("_offset")
            assert archived.dtypes == logged.dtypes
            good = [row for row in logged.collect() if row["_dead"] is None]
            assert [row for row in archived.collect() if row["_dead"] is None] == good
            letter = ["_key", "_offset", "_timestamp", "_order_timestamp", "_value", "_dead"]
            assert archived.where("_dead IS NOT NULL").select(letter).collect() == (
                logged.where("_dead IS NOT NULL").select(letter).collect()
            )


class TestRetention:
    def test_records_removed_from_kafka_are_replayed_from_the_archive(self, stream: Lab) -> None:
        produce_at(stream, out_of_order(100))
        live(stream)
        before = replayed(stream, slice_records=22)
        logged = result(stream, before)
        control.abort(stream.config, stream.name, before, actor="test", reason="test")
        stream.archive(slice_records=36)
        stream.delete_before({0: 40, 1: 50})
        without = control.plan(stream.config, request(stream, archive=False))
        assert {finding.code for finding in without.refusals} == {"start-below-low-watermark"}
        after = replayed(stream, slice_records=22)
        assert result(stream, after) == logged

    def test_a_first_epoch_begins_where_the_archive_does(self, stream: Lab) -> None:
        produce_at(stream, out_of_order(60))
        stream.archive(slice_records=24)
        stream.delete_before({0: 30, 1: 20})
        epoch = control.start(replace(stream.config, slice_records=7), stream.name, actor="test", reason="start")
        stream.run(epoch)
        stream.await_live(epoch)
        stream.settle(epoch)
        produce_at(stream, [(0, 1_720_000_000_000, b'{"id": "late", "amount": 5}')])
        stream.settle(epoch)
        assert stream.balances()["late"] == 5
        assert sum(row.rows_read for row in stream.ledger(epoch).state().commits) == 61
        certificate = control.certify(stream.config, stream.name)
        assert certificate.complete, certificate.problems
        assert stream.stop(epoch) == []

    def test_a_start_by_time_finds_records_that_only_the_archive_has(self, stream: Lab) -> None:
        stream.produce(rows(60))
        live(stream)
        at = ToDatetime(at=datetime.fromtimestamp(1_700_000_000.020, UTC))
        expected = control.plan(stream.config, request(stream, start=at, archive=False)).start
        stream.archive()
        stream.delete_before(dict.fromkeys((0, 1), -1))
        plan = control.plan(stream.config, request(stream, start=at))
        assert not plan.is_refused, plan.refusals
        assert plan.start == expected
        assert control.plan(stream.config, request(stream, start=at, archive=False)).is_refused

    def test_records_in_neither_are_refused_and_a_gap_stays_on_record(self, stream: Lab) -> None:
        produce_at(stream, out_of_order(40))
        live(stream)
        stream.archive()
        produce_at(stream, out_of_order(20))
        stream.delete_before({0: 25, 1: 20})
        before = listing(stream)
        with pytest.raises(DataLossError, match=r"20\.\.25.*--skip-lost"):
            stream.archive()
        assert listing(stream) == before
        plan = control.plan(stream.config, request(stream))
        assert {finding.code for finding in plan.refusals} == {"start-below-low-watermark"}
        assert {finding.code for finding in plan.warnings} == {"archive-behind-log"}
        with Archiver(stream.config, stream.topic, session=stream.session, skip_lost=True) as archiver:
            run([archiver])
        facts = Archive(stream.config.lake, stream.topic).facts()
        assert facts is not None
        assert [(r.partition, r.start, r.end) for r in facts.covered] == [(0, 0, 20), (0, 25, 30), (1, 0, 30)]
        refused = control.plan(stream.config, request(stream))
        assert {finding.code for finding in refused.refusals} == {"start-below-low-watermark"}

    def test_a_planned_slice_with_lost_records_is_closed_only_on_request(
        self, stream: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        produce_at(stream, out_of_order(40))

        def dies(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(tables, "append_frame", dies)
        with pytest.raises(ZeroDivisionError):
            stream.archive(slice_records=16)
        monkeypatch.undo()
        stream.delete_before({0: 5, 1: 5})
        with pytest.raises(DataLossError, match="--skip-lost"):
            stream.archive(slice_records=16)
        assert archived_places(stream) == []
        seal = tables.seal

        def seals_and_dies(*values: Any, **named: Any) -> None:
            seal(*values, **named)
            raise ZeroDivisionError

        monkeypatch.setattr(tables, "seal", seals_and_dies)
        for ends in (pytest.raises(ZeroDivisionError), nullcontext()):
            with ends, Archiver(stream.config, stream.topic, session=stream.session, skip_lost=True) as archiver:
                run([archiver])
            monkeypatch.undo()
        assert archived_places(stream) == logged_places(stream), "the rest of its ranges is not taken for empty"
        facts = Archive(stream.config.lake, stream.topic).facts()
        assert facts is not None
        assert [(r.partition, r.start, r.end) for r in facts.covered] == [(0, 5, 20), (1, 5, 20)]

    def test_a_compacted_source_is_read_only_from_an_archive_without_gaps(
        self, tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: Any
    ) -> None:
        with lab(tmp_path / "lab", kafka, spark, topic(partitions=2, cleanup_policy="compact")) as stream:
            stream.deploy(1)
            stream.produce(rows(30))
            assert {f.code for f in control.plan(stream.config, request(stream)).refusals} == {"compacted-source"}
            stream.archive()
            plan = control.plan(stream.config, request(stream))
            assert (plan.is_refused, [f.code for f in plan.warnings]) == (False, ["compacted-source-archived"])
            producer = Producer(
                {"bootstrap.servers": stream.config.bootstrap_servers, "transactional.id": stream.topic}
            )
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce(stream.topic, key=b"k", value=b'{"id": "a", "amount": 1}', partition=0)
            producer.commit_transaction()
            stream.wait(
                lambda: stream.kafka.stable_offsets([stream.topic]) == stream.kafka.high_watermarks([stream.topic]),
                "it is readable",
            )
            stream.archive()
            assert {f.code for f in control.plan(stream.config, request(stream)).refusals} == {"compacted-source"}


class TestExactlyOnce:
    @pytest.mark.parametrize(
        "point",
        ["claim", "create", pytest.param("plan@2", marks=SOAK), "write@2", pytest.param("commit@2", marks=SOAK)],
    )
    def test_an_archiver_killed_anywhere_loses_and_repeats_nothing(self, stream: Lab, point: str) -> None:
        stream.produce(rows(60))
        config = replace(stream.config, slice_records=25, spark_master="local[1]", spark_conf=QUICK_JVM)
        words = ("-m", "kappa", "archive", "start", stream.topic, "--execute")
        run_to_death(*words, point=f"archive.{point}", environ={**os.environ, **config.to_env()})
        assert stream.archive(slice_records=18) == 60
        assert archived_places(stream) == logged_places(stream)
        state = Archive(stream.config.lake, stream.topic).ledger.state()
        assert all(joins(a.ranges, b.ranges) for a, b in pairwise(state.commits))
        assert state.position == stream.kafka.stable_offsets([stream.topic])

    def test_one_of_two_archivers_stops_and_changes_nothing(self, stream: Lab) -> None:
        stream.produce(rows(40))
        with Archiver(replace(stream.config, slice_records=10), stream.topic, session=stream.session) as first:
            first.advance()
            before = listing(stream)
            with pytest.raises(DriverAlreadyRunningError, match="has an archiver"):
                Archiver(stream.config, stream.topic).open()
            assert listing(stream) == before
            impatient = replace(stream.config, stale_seconds=-1.0)
            with Archiver(impatient, stream.topic, session=stream.session) as second:
                with pytest.raises(StaleWriterError):
                    first.advance()
                run([second])
        assert archived_places(stream) == logged_places(stream)

    def test_an_archiver_waking_between_plan_and_write_writes_nothing_twice(
        self, stream: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream.produce(rows(40))
        first = Archiver(stream.config, stream.topic, session=stream.session)
        first.open()

        def overtaken(*arguments: Any, **options: Any) -> None:
            monkeypatch.undo()
            with Archiver(replace(stream.config, stale_seconds=-1.0), stream.topic, session=stream.session) as second:
                run([second])
            tables.append_frame(*arguments, **options)

        monkeypatch.setattr(tables, "append_frame", overtaken)
        with pytest.raises(StaleWriterError):
            first.advance()
        first.close()
        assert archived_places(stream) == logged_places(stream)
        assert len(archived_places(stream)) == 40

    def test_a_stop_ends_a_following_archiver_and_the_next_goes_on(self, stream: Lab) -> None:
        stream.produce(rows(20))
        assert not stop(stream.config, stream.topic)
        slices: list[int] = []

        def on_slice(_: Archiver, offsets: int) -> None:
            slices.append(offsets)
            if len(slices) == 1:
                stream.produce(rows(20, first=20))
            else:
                assert stop(stream.config, stream.topic)

        with Archiver(stream.config, stream.topic, session=stream.session) as archiver:
            run([archiver], follow=True, every_seconds=0.1, on_slice=on_slice)
        assert sum(slices) == 40
        stream.produce(rows(5))
        assert stream.archive() == 45

    def test_aborted_records_are_not_archived_and_their_offsets_are_covered(self, stream: Lab) -> None:
        producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers, "transactional.id": stream.topic})
        producer.init_transactions()
        for number, is_committed in enumerate([True, False, True, False]):
            producer.begin_transaction()
            for partition in (0, 1):
                value = b'{"id": "a", "amount": %d}' % (number + 1)
                producer.produce(stream.topic, key=b"k", value=value, partition=partition)
            assert producer.flush(30) == 0  # what is not sent yet is not aborted but forgotten
            producer.commit_transaction() if is_committed else producer.abort_transaction()
        stream.wait(
            lambda: sum(offset for _, offset in stream.kafka.stable_offsets([stream.topic]).items()) == 16, "all ended"
        )
        live(stream)
        assert stream.archive(slice_records=3) == 4
        assert archived_places(stream) == logged_places(stream)
        facts = Archive(stream.config.lake, stream.topic).facts()
        assert facts is not None
        assert [(r.partition, r.start, r.end) for r in facts.covered] == [(0, 0, 8), (1, 0, 8)]
        logged, archived = from_both(stream)
        assert archived == logged
        assert archived["balances"] == [{"id": "a", "total": 8}]


class TestSeveralTopics:
    """One topic that cannot be archived keeps none of the others."""

    def test_the_others_are_archived_and_the_lost_one_is_named(self, stream: Lab, topic: TopicFactory) -> None:
        lost = topic()
        stream.produce(rows(20))
        with (
            Archiver(stream.config, lost, session=stream.session) as first,
            Archiver(stream.config, stream.topic, session=stream.session) as second,
        ):
            stream.kafka.delete_topics([lost])
            with pytest.raises(TopologyError, match=lost):
                run([first, second])
        assert archived_places(stream) == logged_places(stream)
        beat = heartbeat.read(ArchivePaths(lake=stream.config.lake, topic=lost).heartbeat)
        assert beat is not None
        assert lost in beat.message

    def test_a_topic_that_fails_while_others_are_followed_is_tried_again(
        self, stream: Lab, topic: TopicFactory
    ) -> None:
        other = topic()
        for name in (other, stream.topic):
            append(stream.config.bootstrap_servers, Record(topic=name, key=b"k", value=b"{}"))
        lines: list[str] = []
        with (
            Archiver(stream.config, other, session=stream.session) as first,
            Archiver(stream.config, stream.topic, session=stream.session) as second,
        ):
            records = Path(first.archive.paths.records)
            records.rename(records.with_name("elsewhere"))

            def on_failure(archiver: Archiver, _: Exception) -> None:
                name = archiver.archive.topic
                lines.append(f"{name} {archive_status(stream.config, name).archiver}")

            def on_slice(archiver: Archiver, offsets: int) -> None:
                lines.append(f"{archiver.archive.topic} {offsets}")
                if archiver is second:
                    records.with_name("elsewhere").rename(records)

            run(
                [first, second],
                follow=True,
                every_seconds=0.0,
                on_slice=on_slice,
                on_failure=on_failure,
                is_over=lambda: f"{other} 1" in lines,
            )
        assert lines == [f"{other} stuck", f"{stream.topic} 1", f"{other} 1"]

    def test_a_command_archives_the_others_and_fails(self, stream: Lab, topic: TopicFactory) -> None:
        lost = topic()
        stream.produce(rows(20))
        stream.kafka.delete_topics([lost])
        words = (sys.executable, "-m", "kappa", "archive", "start", lost, stream.topic, "--execute", "--json")
        config = replace(stream.config, spark_master="local[1]", spark_conf=QUICK_JVM)
        environ = {**os.environ, **config.to_env()}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
        topics = [one["topic"] for one in json.loads(done.stdout)["topics"]]
        assert (done.returncode, done.stderr.count(lost), topics) == (1, 1, [stream.topic]), done
        assert archived_places(stream) == logged_places(stream)


class TestIdentity:
    def test_a_recreated_topic_is_refused_and_nothing_is_read_from_the_old_archive(self, stream: Lab) -> None:
        stream.produce(rows(30))
        stream.archive()
        stream.kafka.delete_topics([stream.topic])
        stream.kafka.create_topic(stream.topic, 2, {"retention.ms": "-1"})
        stream.produce(rows(40))
        before = listing(stream)
        with pytest.raises(DataLossError, match="was recreated"):
            stream.archive()
        assert listing(stream) == before
        plan = control.plan(stream.config, request(stream))
        assert [finding.code for finding in plan.warnings] == ["archive-of-another-topic"]
        assert plan.archived == ()

    def test_an_archive_that_lost_records_is_noticed(self, stream: Lab) -> None:
        stream.produce(rows(30))
        live(stream)
        stream.archive()
        epoch = stream.plan_replay()
        DeltaTable(Archive(stream.config.lake, stream.topic).paths.records).delete('"offset" = 3')
        stream.run(epoch)
        stuck = stream.wait(lambda: [e for e in stream.record().events if e.event == "stuck"], "it is stuck")
        assert "another process changed its table" in stuck[-1].detail["error"]
        assert stream.stop(epoch) == []
        paths = stream.paths(epoch)
        for path in (paths.output("moves"), paths.changes("balances"), paths.dead_letters):
            assert queries.query(path, None).num_rows == 0, "it was noticed before anything was written"

    def test_an_added_partition_is_archived_from_its_beginning(self, stream: Lab) -> None:
        stream.produce(rows(20))
        stream.archive()
        admin = AdminClient({"bootstrap.servers": stream.config.bootstrap_servers})
        admin.create_partitions([NewPartitions(stream.topic, 3)])[stream.topic].result()
        stream.wait(lambda: stream.kafka.partitions(stream.topic) == 3, "the partition is there")
        stream.produce(rows(10), partition=2)
        assert stream.archive() == 30
        assert archived_places(stream) == logged_places(stream)


def request(stream: Lab, **values: Any) -> ReplayRequest:
    return ReplayRequest(**{"topology": stream.name, "start": ToEarliest(), "reason": "r", "actor": "a", **values})


def listing(stream: Lab) -> dict[str, int]:
    """Every file of the archive and its size, but for the heartbeat."""
    root = Path(ArchivePaths(lake=stream.config.lake, topic=stream.topic).root)
    return {str(f): f.stat().st_size for f in root.rglob("*") if f.is_file() and not f.name.startswith("heartbeat")}
