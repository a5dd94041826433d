"""The laws of the design, one test or more for each, on a real broker, real Spark and real Delta."""

from __future__ import annotations

import ast
import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from support.epochs import DEADLINE_SECONDS, Lab, lab, read_all

import kappa.cli
from kappa import control, serving
from kappa.delta import queries, tables
from kappa.driver.driven_epoch import DrivenEpoch, claim
from kappa.driver.driver import Driver
from kappa.driver.handovers.handover import Handover
from kappa.errors import (
    DriverAlreadyRunningError,
    IllegalTransitionError,
    MiscountedError,
    MoveRefusedError,
    RefusedError,
    StaleWriterError,
)
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets, joins, ranges_end
from kappa.presence import heartbeat
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event
from kappa.replay.stages import Stage
from kappa.slices import places, protocol, writing
from kappa.slices.folding import fold_into
from kappa.slices.topics import changelog, sending
from kappa.spark.kafka_source import read_log

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4)]


@pytest.fixture
def stream(tmp_path: Path, kafka: Any, topic: Any, spark: Any) -> Iterator[Lab]:
    """A deployed topology, version 1, whose tables are merged in every slice: each line of the protocol does
    something.
    """
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), merge_seconds=0.0) as stream:
        stream.deploy(1)
        yield stream


def claimed(stream: Lab, epoch: int) -> Driver:
    """A driver that has the epoch, to be led by hand."""
    driver = Driver(stream.config, stream.name, epoch, session=stream.session)
    claim(driver.epoch)
    return driver


def live_epoch(stream: Lab) -> int:
    """A first epoch that went live, read everything and was stopped."""
    epoch = stream.start_live()
    assert stream.stop(epoch) == []
    return epoch


def next_ranges(stream: Lab, driver: Driver) -> Any:
    position = driver.epoch.ledger.state().position
    return position.span_to(position.merge(stream.kafka.stable_offsets([stream.topic])))


def touches_of_a_step(tree: ast.Module) -> set[tuple[str, str]]:
    """Where a module takes the step of a topology: the function, and the expression; called or not."""
    places = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for node in ast.walk(function):
            by_name = isinstance(node, ast.Call) and any(
                isinstance(a, ast.Constant) and a.value == "step" for a in node.args
            )
            if (isinstance(node, ast.Attribute) and node.attr == "step") or by_name:
                places.add((function.name, ast.unparse(node)))
    outside = [
        node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    for node in [inner for outer in outside for inner in ast.walk(outer)]:
        if isinstance(node, ast.Attribute) and node.attr == "step":
            places.add(("", ast.unparse(node)))
    return places


class TestLaw1OneCodePath:
    def test_the_step_is_called_in_one_place(self) -> None:
        root = Path(kappa.__file__).parent
        touches = {
            (file.relative_to(root).as_posix(), where, text)
            for file in root.rglob("*.py")
            for where, text in touches_of_a_step(ast.parse(file.read_text()))
        }
        assert touches == {
            ("slices/step.py", "call_step", "topology.step"),
            # Where there is none, one that calls each operator is made; none is called.
            ("topology/declaration.py", "__post_init__", "self.step"),
            (
                "topology/declaration.py",
                "__post_init__",
                "object.__setattr__(self, 'step', self.step or step_of(self.operators))",
            ),
            ("topology/declaration.py", "_check_own", "topology.step"),  # whether it is a function
            ("topology/declaration.py", "_check_operators", "topology.step"),
            ("replay/building.py", "build_plan", "facts.step"),  # findings about a step, no step
            ("drawing/graph.py", "graph_of", "topology.step"),  # its name and docstring, it is not called
            ("topology/undeclared.py", "undeclared_reads", "topology.step"),  # its source is read, it is not called
            ("drawing/literals.py", "graph_of_literals", "parts.get('step')"),  # its name in a file's text
        }, "whatever holds a step, under any name or as a value, can call it"

    def test_a_replay_with_the_same_code_gives_the_tables_of_the_live_stream(self, stream: Lab) -> None:
        stream.produce(ROWS)
        first = stream.start_live()
        stream.produce([("a", 5), ("d", 6)], start_ms=1_700_000_100_000)
        stream.settle(first)
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        report = control.diff(stream.config, stream.name, second)
        assert report.verdict == "same"
        assert stream.balances(second) == {"a": 9, "b": 2, "c": 4, "d": 6}


class TestLaw2NoGapNoOverlap:
    def test_ranges_join_over_aborted_records_and_markers(self, stream: Lab) -> None:
        producer = Producer({"bootstrap.servers": stream.config.bootstrap_servers, "transactional.id": stream.topic})
        producer.init_transactions(10)
        for ends, amount in ((True, 1), (False, 100), (True, 2), (False, 100)):
            producer.begin_transaction()
            producer.produce(stream.topic, key=b"a", value=b'{"id": "a", "amount": %d}' % amount)
            producer.flush(10)
            producer.commit_transaction(10) if ends else producer.abort_transaction(10)
        epoch = live_epoch(stream)
        commits = stream.ledger(epoch).state().commits
        assert all(joins(a.ranges, b.ranges) for a, b in itertools.pairwise(commits))
        assert sum(row.rows_read for row in commits) == 2
        assert sum(r.count for row in commits for r in row.ranges) > 2
        assert stream.balances() == {"a": 3}
        assert control.certify(stream.config, stream.name).complete


class TestLaw3ExactlyOnceInDelta:
    def test_finishing_a_slice_again_from_any_point_changes_nothing(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.produce([("a", 10)], start_ms=1_700_000_100_000)
        driver = claimed(stream, epoch)
        run = driver.engines.slice_run
        driver.engines.open_sender()
        state = run.ledger.state()
        plan = protocol.plan_slice(run, state, next_ranges(stream, driver), sends="live", logged=True)
        first = writing.write_effects(run, plan, run.ledger.state(), None)
        versions = dict(first.delta_versions)
        run.scratch.written = {}
        again = writing.write_effects(run, plan, run.ledger.state(), None)
        assert dict(again.delta_versions) == versions
        table = run.paths.table("balances")
        merged = [tables.version(table)]
        for _ in range(2):
            run.scratch.written = {}
            sending.send_effects(run, plan, first)
            protocol.apply_changes(run, plan, first)
            merged.append(tables.version(table))
        assert merged == [merged[0], merged[0] + 1, merged[0] + 1], "merged by the first, and not again"
        protocol.commit_slice(run, plan, first)
        assert stream.balances() == {"a": 14, "b": 2, "c": 4}
        assert sorted(stream.sent()) == sorted([*ROWS, ("a", 10)])

    def test_written_effects_are_never_computed_again(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        driver = claimed(stream, epoch)
        run = driver.engines.slice_run
        plan = protocol.plan_slice(run, run.ledger.state(), next_ranges(stream, driver), sends="live", logged=True)
        writing.write_effects(run, plan, run.ledger.state(), None)

        def raises(_: object) -> Any:
            raise AssertionError("the step was called again")

        later = claimed(stream, epoch)
        later.engines.slice_run.topology = replace(later.epoch.topology, step=raises)
        later.engines.open_sender()
        protocol.finish_slice(later.engines.slice_run, plan)
        assert stream.balances()["z"] == 1

    def test_a_slice_whose_topic_was_compacted_between_two_attempts_is_computed_anew(
        self, stream: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its outputs would come from two inputs: those of the first attempt count, and others are missing."""
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.produce([("z", 1), ("z", 2)], partition=0, start_ms=1_700_000_100_000)
        driver = claimed(stream, epoch)
        driver.engines.open_sender()
        run, append, begin = driver.engines.slice_run, tables.append, stream.ledger(epoch).state().position
        ranges = next_ranges(stream, driver)

        def full(path: str, *rest: Any) -> int | None:
            if path == run.paths.changes("balances"):
                raise OSError("no room")
            return append(path, *rest)

        monkeypatch.setattr(tables, "append", full)
        with pytest.raises(OSError, match="no room"):
            protocol.run_slice(run, ranges, sends="live", logged=True)
        monkeypatch.setattr(tables, "append", append)
        plan = run.ledger.state().open_plan
        assert plan is not None
        last = begin.get(stream.topic, 0) or 0
        left = read_log(stream.session, stream.config.bootstrap_servers, stream.topic, ranges).where(
            f"offset != {last} OR partition != 0"
        )
        with pytest.raises(MiscountedError, match=r"computed from read=2 dead=0 aside=0, .* have read=1"):
            protocol.finish_slice(run, plan, raw=left)
        assert run.ledger.state().open_plan is None
        row = protocol.run_slice(run, ranges, sends="live", logged=True, raw=left)
        assert (row.seq, row.rows_read) == (plan.seq + 1, 1)
        moves = queries.query(run.paths.output("moves"), None, where="id = 'z'").to_pylist()
        assert [move["total"] for move in moves] == [2]
        assert stream.balances()["z"] == 2
        assert [(account, amount) for account, amount in stream.sent() if account == "z"] == [("z", 2)]

    def test_effects_of_the_first_attempt_count_and_not_those_of_the_next(self, stream: Lab, monkeypatch: Any) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        driver = claimed(stream, epoch)
        run = driver.engines.slice_run
        driver.engines.open_sender()
        plan = protocol.plan_slice(run, run.ledger.state(), next_ranges(stream, driver), sends="live", logged=True)
        writing.write_effects(run, plan, run.ledger.state(), None)
        honest = driver.epoch.topology.step

        def fickle(records: Any) -> Any:
            return {
                name: frame.selectExpr("* EXCEPT (total)", "total + 7 AS total")
                for name, frame in honest(records).items()
            }

        run.topology = replace(driver.epoch.topology, step=fickle)
        again = writing.write_effects(run, plan, run.ledger.state(), None)
        sending.send_effects(run, plan, again)
        protocol.apply_changes(run, plan, again)
        protocol.commit_slice(run, plan, again)
        sent = [orjson.loads(value) for value in stream.sent_values()]
        assert [row["total"] for row in sent if row["id"] == "z"] == [1]
        assert stream.balances()["z"] == 1


class TestLaw4ExactlyOnceInKafka:
    def test_a_slice_sent_but_not_committed_is_not_sent_again(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        driver = claimed(stream, epoch)
        run = driver.engines.slice_run
        driver.engines.open_sender()
        plan = protocol.plan_slice(run, run.ledger.state(), next_ranges(stream, driver), sends="live", logged=True)
        sending.send_effects(run, plan, writing.write_effects(run, plan, run.ledger.state(), None))
        stream.run(epoch)
        stream.settle(epoch)
        assert sorted(stream.sent()) == sorted([*ROWS, ("z", 1)])
        assert stream.kafka.group_offsets(stream.paths(epoch).name) == stream.ledger(epoch).state().position

    def test_an_open_transaction_of_a_dead_writer_is_never_read(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        driver = claimed(stream, epoch)
        run = driver.engines.slice_run
        driver.engines.open_sender()
        plan = protocol.plan_slice(run, run.ledger.state(), next_ranges(stream, driver), sends="live", logged=True)
        effects = writing.write_effects(run, plan, run.ledger.state(), None)
        assert run.sent.sender is not None
        run.sent.sender.begin()
        run.sent.sender.extend(sending._records(run, plan, effects))
        stream.run(epoch)
        stream.settle(epoch)
        assert sorted(stream.sent()) == sorted([*ROWS, ("z", 1)])
        with pytest.raises(StaleWriterError):
            run.sent.sender.commit(ranges_end(plan.ranges))


class TestLaw5OneWriter:
    def test_a_writer_with_a_superseded_claim_stops_and_changes_nothing(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        stale = claimed(stream, epoch)
        stale.engines.open_sender()
        plan = protocol.plan_slice(
            stale.engines.slice_run, stale.epoch.ledger.state(), next_ranges(stream, stale), sends="live", logged=True
        )
        stream.run(epoch)
        stream.settle(epoch)
        before = [row.n for row in stream.ledger(epoch).rows()]
        paths = map(stale.epoch.paths.place, places.effect_places(stale.epoch.topology))
        versions = {path: tables.version(path) for path in paths}
        with pytest.raises(StaleWriterError):
            protocol.finish_slice(stale.engines.slice_run, plan)
        with pytest.raises(StaleWriterError):
            protocol.plan_slice(
                stale.engines.slice_run,
                stale.epoch.ledger.state(),
                next_ranges(stream, stale),
                sends="live",
                logged=True,
            )
        assert [row.n for row in stream.ledger(epoch).rows()] == before
        assert {path: tables.version(path) for path in versions} == versions
        assert sorted(stream.sent()) == sorted([*ROWS, ("z", 1)])

    def test_one_of_two_drivers_that_claim_at_once_stops(self, stream: Lab, monkeypatch: Any) -> None:
        epoch = live_epoch(stream)
        drivers = [DrivenEpoch(stream.config, stream.name, epoch) for _ in range(2)]
        both, read = threading.Barrier(2, timeout=DEADLINE_SECONDS), heartbeat.read

        def read_at_once(path: str) -> Any:
            both.wait()  # both have read the ledger, and neither has claimed it
            return read(path)

        monkeypatch.setattr(heartbeat, "read", read_at_once)
        raised: list[BaseException] = []

        def claim_at_once(driver: DrivenEpoch) -> None:
            try:
                claim(driver)
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=claim_at_once, args=[driver], daemon=True) for driver in drivers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
        assert [type(error) for error in raised] == [DriverAlreadyRunningError]
        assert sorted(driver.has_claim() for driver in drivers) == [False, True]


class TestLaw6AReplayTouchesNothingLive:
    def test_abort_leaves_lake_and_broker_as_they_were(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        before = everything(stream, but="_kappa/epochs")
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.wait(
            lambda: stream.ledger(second).exists() and stream.ledger(second).state().baseline_seq is not None,
            "all that a candidate writes is written",
        )
        stream.await_stage(second, Stage.VERIFIED)
        assert stream.stop(second) == []
        assert everything(stream, but="_kappa/epochs") != before
        control.abort(stream.config, stream.name, second, actor="test", reason="test")
        assert everything(stream, but="_kappa/epochs") == before
        control.abort(stream.config, stream.name, second, actor="test", reason="again")
        assert everything(stream, but="_kappa/epochs") == before
        with pytest.raises(IllegalTransitionError):
            control.abort(stream.config, stream.name, epoch, actor="test", reason="live")

    def test_a_replay_and_its_abort_do_not_affect_the_live_stream(self, stream: Lab) -> None:
        stream.produce(ROWS, partition=0)
        epoch = stream.start_live()
        theirs = [stream.topic, f"{stream.topic}.moves"]
        configs = stream.kafka.topic_configs(theirs)
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.produce([("a", 10)], partition=0, start_ms=1_700_000_100_000)
        stream.settle(epoch)
        stream.await_stage(second, Stage.VERIFIED)
        control.abort(stream.config, stream.name, second, actor="test", reason="test")
        stream.stop(second)
        stream.produce([("z", 5)], partition=0, start_ms=1_700_000_200_000)
        stream.settle(epoch)
        moves = [("a", 1, 1), ("b", 2, 2), ("a", 3, 4), ("c", 4, 4), ("a", 10, 14), ("z", 5, 5)]
        stream.hold(
            totals={"a": 14, "b": 2, "c": 4, "z": 5},
            moves={(0, offset): move for offset, move in enumerate(moves)},
            sent=moves,
        )
        assert {row.code for row in stream.ledger(epoch).state().commits} == {stream.record().epoch(epoch).code}
        assert stream.kafka.topic_configs(theirs) == configs
        assert not [name for name in stream.kafka.topics() if f"{stream.name}.e{second:04d}" in name]


class TestLaw7OnePointer:
    def test_a_move_that_expects_another_live_epoch_is_refused(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        assert stream.stop(second) == []
        driver = claimed(stream, second)
        stale_record = replace(stream.record(), live=None)
        with pytest.raises(MoveRefusedError):
            own = driver.epoch, driver.engines, driver.voice, driver.merges, driver.publications
            handover = Handover(*own, lambda *_: None)
            handover.go_live_first(stale_record, driver.epoch.ledger.begun())
        assert serving.resolve(stream.config, stream.name) == epoch

    def test_simultaneous_appends_never_build_on_the_same_past(self, stream: Lab) -> None:
        live_epoch(stream)
        counts: list[int] = []

        def append() -> None:
            epochs = Epochs(stream.config.lake)

            def decide(now: Now) -> list[Event]:
                return [now.event("start", 1, actor="test", reason=str(len(now.records.events())))]

            for _ in range(5):
                counts.extend(int(e.reason) for e in epochs.change(stream.name, decide))

        threads = [threading.Thread(target=append) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        assert len(set(counts)) == len(counts) == 20

    def test_the_move_to_an_epoch_that_does_not_take_over_in_time_is_withdrawn(self, stream: Lab) -> None:
        stream.config = replace(stream.config, handover_seconds=1.0)
        stream.produce(ROWS)
        first = stream.start_live()
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        assert stream.stop(second) == []
        control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
        stream.wait(lambda: stream.record().events[-1].event == "withdrawn", "the handover is withdrawn")
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        stream.settle(first)
        assert stream.record().live == first
        assert sorted(stream.sent()) == sorted([*ROWS, ("z", 1)])
        assert [row.kind for row in stream.ledger(first).rows() if row.kind in ("yield", "resume")] == [
            "resume",
            "yield",
            "resume",
        ]


class TestLaw8AConsistentCut:
    def test_a_snapshot_in_the_middle_of_a_slice_shows_the_slice_before(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        before = serving.snapshot(stream.config, stream.name)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        driver = claimed(stream, epoch)
        run = driver.engines.slice_run
        driver.engines.open_sender()
        plan = protocol.plan_slice(run, run.ledger.state(), next_ranges(stream, driver), sends="live", logged=True)
        effects = writing.write_effects(run, plan, run.ledger.state(), None)
        protocol.apply_changes(run, plan, effects)
        ids = {row["id"] for row in queries.query(run.paths.table("balances"), None).to_pylist()}
        assert "z" in ids, "the table is ahead of its last commit"
        middle = serving.snapshot(stream.config, stream.name)
        assert middle == before
        assert middle.rows("moves").num_rows == len(ROWS)
        assert {row["id"] for row in middle.rows("balances").to_pylist()} == {"a", "b", "c"}
        sending.send_effects(run, plan, effects)
        protocol.commit_slice(run, plan, effects)
        after = serving.snapshot(stream.config, stream.name)
        assert after.seq == before.seq + 1
        assert after.rows("moves").num_rows == len(ROWS) + 1
        assert after.rows("balances").num_rows == 4


class TestLaw9APlanNeverClamps:
    def test_a_time_after_the_last_record_is_refused_with_a_remedy(
        self, stream: Lab, capsys: Any, monkeypatch: Any
    ) -> None:
        stream.produce(ROWS)
        live_epoch(stream)
        message = refused(stream, capsys, monkeypatch, "--to-datetime", "2031-01-01T00:00:00Z")
        assert "2031-01-01" in message and f"{stream.topic}[0]" in message

    def test_a_start_below_the_low_watermark_is_refused_with_the_numbers(
        self, stream: Lab, capsys: Any, monkeypatch: Any
    ) -> None:
        stream.produce(ROWS, partition=1)
        live_epoch(stream)
        stream.delete_before({1: 3})
        for start in (["--to-earliest"], ["--from-savepoint", "0"], ["--to-datetime", "2020-01-01T00:00:00Z"]):
            message = refused(stream, capsys, monkeypatch, *start)
            assert f"{stream.topic}[1]" in message and "3" in message and "--" in message

    def test_a_recreated_topic_is_refused(self, stream: Lab, capsys: Any, monkeypatch: Any) -> None:
        stream.produce(ROWS)
        live_epoch(stream)
        (old,) = stream.kafka.topic_ids([stream.topic]).values()
        stream.kafka.delete_topics([stream.topic])
        stream.kafka.create_topic(stream.topic, 2, {"retention.ms": "-1"})
        stream.produce([*ROWS, *ROWS])
        message = refused(stream, capsys, monkeypatch)
        assert old in message
        assert "Deploy the topology under a new name" in message
        assert "was recreated" in stream.output_of("lag", stream.name)
        assert orjson.loads(stream.output_of("lag", stream.name, "--json"))["recreated"][0]["code"] == "recreated-topic"
        problems = control.certify(stream.config, stream.name).problems
        assert [problem for problem in problems if "Deploy the topology under a new name" in problem]

    def test_code_that_does_not_import_is_refused(self, stream: Lab, capsys: Any, monkeypatch: Any) -> None:
        stream.produce(ROWS)
        live_epoch(stream)
        file = stream.config.topologies / "balances.py"
        file.write_text("import a_module_that_nobody_has\n" + file.read_text())
        assert "a_module_that_nobody_has" in refused(stream, capsys, monkeypatch)


def refused(stream: Lab, capsys: Any, monkeypatch: Any, *start: str) -> str:
    """Plan a replay that must be refused and change nothing, by the command line; its message."""
    before = everything(stream)
    for name, value in stream.config.to_env().items():
        monkeypatch.setenv(name, value)
    for arguments in (["plan"], ["replay", "--execute"]):
        monkeypatch.setattr("sys.argv", ["kappa", arguments[0], stream.name, *start, *arguments[1:]])
        with pytest.raises(SystemExit) as ended:
            kappa.cli.main()
        assert ended.value.code == 1
    assert everything(stream) == before
    captured = capsys.readouterr()
    return str(captured.out + captured.err)


def everything(stream: Lab, but: str = "nothing") -> Any:
    """All files of the lake with size and time, and all that the broker has; without those of one folder."""
    files = {
        str(p): (p.stat().st_size, p.stat().st_mtime_ns)
        for p in Path(stream.config.lake).rglob("*")
        if p.is_file() and but not in str(p)
    }
    # Only names that the replay may have touched: the broker still deletes topics of earlier tests.
    groups = {
        group: stream.kafka.group_offsets(group) for group in stream.kafka.groups("kappa.") if stream.name in group
    }
    topics = sorted(name for name in stream.kafka.topics() if stream.topic in name or stream.name in name)
    return (
        files,
        topics,
        groups,
        stream.kafka.low_watermarks(topics),
        stream.kafka.high_watermarks(topics),
        stream.kafka.topic_configs(topics),
    )


class TestLaw10SideEffectsHappenOnce:
    def test_history_is_not_sent_again_and_each_offset_is_sent_by_one_epoch(self, stream: Lab) -> None:
        stream.produce(ROWS)
        first = stream.start_live()
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        stream.wait(lambda: stream.ledger(second).state().baseline_seq is not None, "baseline")
        control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
        stream.await_live(second)
        stream.produce([("a", 10)], start_ms=1_700_000_100_000)
        stream.settle(second)
        assert stream.balances() == {"a": 28, "b": 4, "c": 8}
        assert control.rollback(stream.config, stream.name, actor="test", reason="test") == first
        stream.stop(first)
        stream.run(first)
        stream.wait(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "rollback catches up")
        control.cut_over(stream.config, stream.name, first, actor="test", reason="test")
        stream.await_live(first)
        stream.produce([("a", 100)], start_ms=1_700_000_200_000)
        stream.settle(first)
        assert stream.balances() == {"a": 114, "b": 2, "c": 4}
        assert sorted(stream.sent()) == sorted([*ROWS, ("a", 20), ("a", 100)])
        certificate = control.certify(stream.config, stream.name)
        assert certificate.complete, certificate.problems
        assert certificate.rows_read == 6

    def test_a_redo_obeys_the_plan_row_and_not_the_current_role(self, stream: Lab) -> None:
        stream.produce(ROWS)
        first = stream.start_live()
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        stream.wait(lambda: stream.ledger(second).state().baseline_seq is not None, "baseline")
        stream.stop(second)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        stream.settle(first)
        driver = claimed(stream, second)
        protocol.plan_slice(
            driver.engines.slice_run,
            driver.epoch.ledger.state(),
            next_ranges(stream, driver),
            sends="held",
            logged=True,
        )
        stream.run(second)
        control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
        stream.await_live(second)
        assert sorted(stream.sent()) == sorted([*ROWS, ("z", 1)])


class TestLaw11CodeIsPartOfTheEpoch:
    def test_a_restart_runs_the_code_recorded_by_the_epoch(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        recorded = stream.record().epoch(epoch).code
        stream.deploy(7)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        stream.run(epoch)
        stream.settle(epoch)
        assert stream.balances()["z"] == 1
        assert {row.code for row in stream.ledger(epoch).state().commits} == {recorded}


class TestLaw12NothingIsDroppedInSilence:
    def test_an_unparsable_record_is_a_dead_letter_with_its_reason_and_value(self, stream: Lab) -> None:
        bad = [b"{", b'{"id": "a"}', b'{"id": "a", "amount": "many"}', b"\xff\xfe", b""]
        stream.produce([ROWS[0], *bad, ROWS[1]], partition=0)
        epoch = live_epoch(stream)
        commits = stream.ledger(epoch).state().commits
        assert sum(row.rows_read for row in commits) == 7
        assert sum(row.rows_parsed for row in commits) == 2
        assert sum(row.rows_dead for row in commits) == 5
        letters = queries.query(stream.paths(epoch).dead_letters, None, order_by='"offset"').to_pylist()
        assert [letter["value"] for letter in letters] == bad
        assert [letter["offset"] for letter in letters] == [1, 2, 3, 4, 5]
        assert all(
            letter["reason"] and letter["topic"] == stream.topic and letter["key"] == "bad" for letter in letters
        )
        assert sorted(stream.sent()) == sorted(ROWS[:2])

    def test_a_slice_of_broken_records_only_is_committed(self, stream: Lab) -> None:
        stream.produce([b"{"])
        epoch = live_epoch(stream)
        assert [(row.rows_read, row.rows_dead) for row in stream.ledger(epoch).state().commits[1:]] == [(1, 1)]

    def test_a_slice_whose_counts_do_not_add_up_has_no_effects_and_is_computed_again(
        self, stream: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After an effects row the slice has to be finished: with counts that are off it could never be."""
        from kappa.errors import LedgerError
        from kappa.slices.input.reading import Reading

        stream.produce(ROWS)
        epoch = live_epoch(stream)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        driver = claimed(stream, epoch)
        driver.engines.open_sender()
        run, counts = driver.engines.slice_run, Reading.counts
        ranges, before = next_ranges(stream, driver), run.ledger.state()
        monkeypatch.setattr(Reading, "counts", lambda reading: replace(counts(reading), rows_read=2))
        with pytest.raises(MiscountedError, match="read 2 records; 1 parsed, 0 are dead letters and 0 are set aside"):
            protocol.run_slice(run, ranges, sends="live", logged=True)
        state = run.ledger.state()
        assert (state.open_plan, state.open_effects, state.position) == (None, None, before.position)
        assert "z" not in stream.balances()
        with pytest.raises(LedgerError, match=f"Slice {before.seq + 1} at the same offsets did not add up either"):
            protocol.run_slice(run, ranges, sends="live", logged=True)
        assert run.ledger.state().open_effects is None
        monkeypatch.setattr(Reading, "counts", counts)
        row = protocol.run_slice(run, ranges, sends="live", logged=True)
        assert (row.seq, row.rows_read, row.rows_parsed) == (before.seq + 2, 1, 1)
        assert stream.balances()["z"] == 1
        assert [account for account, _ in stream.sent()].count("z") == 1
        driver.engines.spend_sender()


class TestLaw13EveryMoveIsOnRecord:
    def test_history_tells_who_moved_readers_when_why_and_between_which_epochs(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        events = control.history(stream.config, stream.name)
        assert [e.event for e in events] == ["planned", "rewound", "seeded", "moved"]
        moved = events[-1]
        assert (moved.epoch, moved.detail["from"], moved.reason) == (epoch, None, "start")
        assert moved.detail["plan"] == events[0].detail["plan_id"]
        assert events[0].actor == "test"

    def test_the_record_only_grows_and_has_offsets_difference_and_verdict_of_each_move(self, stream: Lab) -> None:
        stream.produce(ROWS)
        first = stream.start_live()
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        control.cut_over(stream.config, stream.name, second, actor="ada", reason="twice")
        stream.await_live(second)
        stream.deploy(3)
        third = stream.plan_replay()
        control.abort(stream.config, stream.name, third, actor="bob", reason="no")
        path = EpochPaths(lake=stream.config.lake, topology=stream.name, epoch=second)
        record = f"{path.lake}/_kappa/epochs"
        grown: list[Any] = []
        for version in range(tables.version(record) + 1):
            rows = queries.query(record, version, order_by="n").to_pylist()
            assert rows[: len(grown)] == grown, f"version {version} of the record says otherwise what was said before"
            grown = rows
        for file in Path(record, "_delta_log").glob("*.json"):
            removed = [
                action["remove"] for line in file.read_text().splitlines() if "remove" in (action := orjson.loads(line))
            ]
            assert not [action for action in removed if action.get("dataChange", True)], f"{file.name} removes rows"
        events = control.history(stream.config, stream.name)
        (verified,) = [event for event in events if (event.epoch, event.event) == (second, "verified")]
        assert verified.detail["report"], "what differs is on record"
        moved = [event for event in events if event.event == "moved"][-1]
        assert (moved.epoch, moved.detail["from"], moved.actor, moved.reason) == (second, first, "ada", "twice")
        assert Offsets.from_json(moved.detail["at"]) == stream.kafka.stable_offsets([stream.topic])
        entries = [
            one
            for one in control.chronicle(stream.config, stream.name)
            if (one.epoch, one.event) == (second, "verified")
        ]
        assert entries[0].verdict == control.diff(stream.config, stream.name, second).verdict != "same"
        (aborted,) = [event for event in events if event.event == "aborted"]
        assert (aborted.epoch, aborted.actor, aborted.reason) == (third, "bob", "no")


class TestTheChangelog:
    def test_a_rebuild_restores_the_table_after_the_lake_is_lost(self, stream: Lab) -> None:
        import shutil

        stream.produce(ROWS)
        epoch = live_epoch(stream)
        balances, sent = stream.balances(), sorted(stream.sent())
        position = stream.ledger(epoch).state().position
        shutil.rmtree(stream.config.lake)
        request = control.rebuild_request(stream.config, stream.name, actor="test", reason="lost")
        control.supersede(stream.config, control.plan(stream.config, request))
        plan = control.plan(stream.config, request)
        assert plan.start == position
        rebuilt = control.replay(stream.config, plan, actor="test", reason="lost")
        assert rebuilt == epoch + 1
        stream.run(rebuilt)
        stream.await_live(rebuilt)
        assert stream.balances() == balances
        stream.produce([("a", 10)], start_ms=1_700_000_100_000)
        stream.settle(rebuilt)
        assert stream.balances()["a"] == balances["a"] + 10
        assert sorted(stream.sent()) == sorted([*sent, ("a", 10)])

    def test_a_fold_refuses_records_that_no_marker_vouches_for(self, stream: Lab) -> None:
        from kappa.errors import DataLossError

        stream.produce(ROWS)
        epoch = live_epoch(stream)
        driver = claimed(stream, epoch)
        with pytest.raises(DataLossError, match="still writing"):
            fold_into(driver.engines.slice_run, stream.paths(epoch), driver.epoch.topology.tables[0], 0)

    def test_a_baseline_left_without_topics_by_a_crash_is_rewritten(self, stream: Lab) -> None:
        stream.produce(ROWS)
        live_epoch(stream)
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.CAUGHT_UP)
        stream.stop(second)
        driver = claimed(stream, second)
        if driver.epoch.ledger.state().baseline_seq is None:
            changelog.create_topics(stream.kafka, driver.epoch.topology, driver.epoch.paths, 2)
            stream.kafka.delete_topics([driver.epoch.paths.changelog("balances")])
            driver.engines.open_sender()
            changelog.write_baseline(driver.engines.slice_run)
        assert len(list(read_all(stream.config.bootstrap_servers, driver.epoch.paths.changelog("balances")))) == 3

    def test_changelog_and_markers_are_compacted_topics(self, stream: Lab) -> None:
        stream.produce(ROWS)
        epoch = live_epoch(stream)
        names = [stream.paths(epoch).markers, stream.paths(epoch).changelog("balances")]
        assert {config["cleanup.policy"] for config in stream.kafka.topic_configs(names).values()} == {"compact"}
        assert len(list(read_all(stream.config.bootstrap_servers, names[1]))) >= 3


class TestStuckEpoch:
    def test_a_stuck_epoch_waits_and_a_cutover_away_from_it_loses_and_repeats_nothing(self, stream: Lab) -> None:
        stream.config = replace(stream.config, attempts=2)
        stream.produce(ROWS)
        first = stream.start_live()
        driver, *_ = stream.running[first]

        def poisoned(_: object) -> Any:
            raise ValueError("this step is broken")

        driver.engines.slice_run.topology = replace(driver.epoch.topology, step=poisoned)
        stream.produce([("z", 1)], start_ms=1_700_000_100_000)
        stream.wait(lambda: control.driver_status(stream.config, stream.name, first).state == "stuck", "stuck")
        assert control.history(stream.config, stream.name)[-1].event == "stuck"
        stream.deploy(2)
        second = stream.plan_replay()
        stream.run(second)
        stream.await_stage(second, Stage.VERIFIED)
        control.cut_over(stream.config, stream.name, second, actor="test", reason="away")
        stream.await_live(second)
        stream.settle(second)
        assert stream.balances() == {"a": 8, "b": 4, "c": 8, "z": 2}
        assert sorted(stream.sent()) == sorted([*ROWS, ("z", 2)])
        assert control.certify(stream.config, stream.name).complete


class TestRefusals:
    def test_a_second_replay_of_a_topology_is_refused(self, stream: Lab) -> None:
        stream.produce(ROWS)
        live_epoch(stream)
        second = stream.plan_replay()
        with pytest.raises(RefusedError, match=f"Epoch {second}"):
            stream.plan_replay()
