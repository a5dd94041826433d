"""New code with another shape: each change works through a replay, or is refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import orjson
import pytest

from kappa import control, serving
from kappa.delta import queries
from kappa.errors import RefusedError
from kappa.offsets.vector import ranges_end
from kappa.replay.proof.verdict import Verdict
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint, Start, ToEarliest
from kappa.verify.topic_recount import recount_topics

if TYPE_CHECKING:
    from conftest import TopicFactory
    from support.epochs import Lab

    from kappa.replay.proof.verdict import DiffReport, OutputDiff, TableDiff

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]

#: The balances are a table of the author's own, of any shape, beside the sums that an operator keeps.
TEXT = """
from pyspark.sql import functions as F

from kappa.operators import newest, running_total
from kappa.topology import Append, Source, Table, Topic, Topology

MOVES = Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")
totals = running_total(MOVES, rows="id STRING, counted BIGINT", key="id", amount="counted", total="total", table="sums")


def step(slice):
    moves = totals(slice, slice["{topic}"].withColumn("counted", F.col("amount"))).rows
    moves = moves.withColumn("doubled", F.col("total") * 2).withColumn("initial", F.col("id").substr(1, 1))
    {step}


balances = Topology(
    name="{name}",
    version="{version}",
    sources=[MOVES],
    operators=[totals],
    tables=[{tables}],
    outputs=[{outputs}],
    step=step,
)
"""
BALANCES = 'Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT")'
MOVES = (
    'Append(name="moves", schema="id STRING NOT NULL, counted BIGINT, total BIGINT"), Topic(name="{topic}.moves", '
    'of="moves", key="id")'
)
STEP = 'return {"moves": moves, "balances": newest(moves, key="id")}'


def evolve(stream: Lab, *, version: int = 2, step: str = STEP, tables: str = BALANCES, outputs: str = MOVES) -> None:
    """Deploy a second version of another shape."""
    parts = {"version": version, "step": step, "tables": tables, "outputs": outputs.format(topic=stream.topic)}
    (stream.config.topologies / "balances.py").write_text(TEXT.format(topic=stream.topic, name=stream.name, **parts))


#: Readers were told that a column, a type or a key changes.
ALLOWANCE: Any = {"allow": frozenset({"reader-schema-changed"})}


def live(stream: Lab) -> int:
    """A first epoch that has read everything and goes on."""
    evolve(stream, version=1)
    stream.produce(ROWS)
    return stream.start_live()


def replayed(stream: Lab, start: Start | None = None, **request: Any) -> tuple[int, DiffReport]:
    """The new epoch once it is live, and how it differed."""
    epoch = stream.plan_replay(start, **request)
    stream.run(epoch)
    stream.await_stage(epoch, Stage.VERIFIED)
    report = control.diff(stream.config, stream.name, epoch)
    control.cut_over(stream.config, stream.name, epoch, actor="test", reason="test")
    stream.await_live(epoch)
    stream.produce([("a", 10), ("d", 20)], start_ms=1_700_000_100_000)
    stream.settle(epoch)
    assert control.certify(stream.config, stream.name).complete
    return epoch, report


def served(stream: Lab, name: str = "balances", key: str = "id") -> dict[Any, Mapping[str, Any]]:
    """Rows of a served table by key."""
    return {row[key]: row for row in serving.snapshot(stream.config, stream.name).rows(name).to_pylist()}


def table(report: DiffReport, name: str) -> TableDiff:
    """How a table differs."""
    return next(diff for diff in report.tables if diff.name == name)


def output(report: DiffReport, name: str) -> OutputDiff:
    """How an append output differs."""
    return next(diff for diff in report.outputs if diff.name == name)


def refusal(stream: Lab, start: Start) -> str:
    """The reason why a replay is refused; nothing of it is recorded."""
    before = stream.record().events
    with pytest.raises(RefusedError) as refused:
        stream.plan_replay(start)
    assert stream.record().events == before
    return str(refused.value)


WIDER = 'Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT, doubled BIGINT")'


def test_a_new_column_is_computed_for_all_history(stream: Lab) -> None:
    live(stream)
    evolve(stream, tables=WIDER)
    _, report = replayed(stream)
    assert table(report, "balances").columns_added == ("doubled",)
    assert {key: row["doubled"] for key, row in served(stream).items()} == {"a": 28, "b": 14, "c": 8, "d": 40}


def test_a_new_column_is_null_in_the_rows_of_a_savepoint_and_the_plan_says_so(stream: Lab) -> None:
    first = live(stream)
    evolve(stream, tables=WIDER)
    seq = stream.ledger(first).state().seq
    epoch, _ = replayed(stream, FromSavepoint(seq=seq))
    (finding,) = [f for f in stream.plan(epoch).warnings if f.code == "seed-lacks-column"]
    assert finding.numbers["columns"] == ["doubled"]
    assert {key: row["doubled"] for key, row in served(stream).items()} == {"a": 28, "b": None, "c": None, "d": 40}


def test_a_new_column_that_may_not_be_null_cannot_come_from_a_savepoint(stream: Lab) -> None:
    first = live(stream)
    evolve(stream, tables=WIDER.replace("doubled BIGINT", "doubled BIGINT NOT NULL"))
    message = refusal(stream, FromSavepoint(seq=stream.ledger(first).state().seq))
    assert "doubled" in message and "--to-earliest" in message
    replayed(stream)
    assert served(stream)["c"]["doubled"] == 8


def test_a_column_of_another_type_cannot_come_from_a_savepoint(stream: Lab) -> None:
    first = live(stream)
    wide = 'Table(name="balances", key=["id"], schema="id STRING NOT NULL, total STRING")'
    evolve(
        stream,
        step='return {"moves": moves, "balances": newest(moves, key="id").withColumn("total", '
        'F.col("total").cast("string"))}',
        tables=wide,
    )
    assert "total" in refusal(stream, FromSavepoint(seq=stream.ledger(first).state().seq))


def test_a_dropped_column_is_gone_in_a_replay_and_from_a_savepoint(stream: Lab) -> None:
    first = live(stream)
    step = 'return {"moves": moves, "balances": newest(moves, key="id")}'
    evolve(stream, step=step, outputs=MOVES.replace("counted BIGINT, ", ""))
    savepoint = FromSavepoint(seq=stream.ledger(first).state().seq)
    assert "lacks the columns ['counted']: readers of live epoch" in refusal(stream, savepoint)
    _, report = replayed(stream, savepoint, **ALLOWANCE)
    assert output(report, "moves").columns_removed == ("counted",)
    rows = queries.query(stream.paths(stream.record().live).output("moves"), None).to_pylist()
    assert [row["id"] for row in rows if "counted" not in row] == [row["id"] for row in rows]
    assert sorted(row["id"] for row in rows) == ["a", "a", "a", "b", "b", "c", "d"]


def test_records_of_a_dropped_column_stay_in_a_topic_that_reconciles(stream: Lab) -> None:
    outputs = MOVES + ', Topic(name="{topic}.balances", of="balances", key="id", on_replay="reconcile")'
    evolve(stream, version=1, tables=WIDER, outputs=outputs)
    stream.produce(ROWS)
    stream.start_live()
    step = STEP.replace(
        'newest(moves, key="id")', 'newest(moves, key="id").withColumn("total", F.col("total").cast("decimal(20,2)"))'
    )
    evolve(stream, step=step, tables=BALANCES.replace("BIGINT", "DECIMAL(20,2)"), outputs=outputs)
    epoch, _ = replayed(stream, **ALLOWANCE)
    values = [orjson.loads(value) for value in stream.values_of(f"{stream.topic}.balances")]
    assert {"id": "c", "total": 4, "doubled": 8} in values, "an equal row is not sent again"
    assert [value["id"] for value in values if "doubled" not in value] == ["a", "d"], "what changed after the cutover"
    report = recount_topics(stream.config, stream.paths(epoch), stream.kafka)
    assert report.problems == () and any(f"{stream.topic}.balances" in line for line in report.read)


def test_a_topic_that_reconciles_gets_each_row_in_the_new_type_of_a_column(stream: Lab) -> None:
    outputs = MOVES + ', Topic(name="{topic}.balances", of="balances", key="id", on_replay="reconcile")'
    evolve(stream, version=1, outputs=outputs)
    stream.produce([*ROWS, ("h", 100)])
    stream.start_live()
    step = STEP.replace(
        'newest(moves, key="id")', 'newest(moves, key="id").withColumn("total", F.col("total").cast("string"))'
    )
    evolve(stream, step=step, tables=BALANCES.replace("BIGINT", "STRING"), outputs=outputs)
    epoch, report = replayed(stream, **ALLOWANCE)
    assert table(report, "balances").keys_changed == 0
    (finding,) = [f for f in stream.plan(epoch).warnings if f.code == "reconcile-sends-everything"]
    assert "sends total as BIGINT" in finding.message
    newest = {row["id"]: row for row in map(orjson.loads, stream.values_of(f"{stream.topic}.balances"))}
    assert newest == served(stream)
    assert recount_topics(stream.config, stream.paths(epoch), stream.kafka).problems == ()


def test_rows_of_a_key_of_another_type_are_not_compared(stream: Lab) -> None:
    schema = 'Table(name="balances", key=["k"], schema="k {kind} NOT NULL, total BIGINT")'
    step = STEP.replace('newest(moves, key="id")', 'newest(moves.withColumn("k", F.expr("{key}")), key="k")')
    evolve(stream, version=1, step=step.replace("{key}", "ascii(id) * 1L"), tables=schema.format(kind="BIGINT"))
    stream.produce(ROWS)
    stream.start_live()
    evolve(stream, step=step.replace("{key}", "concat('n', id)"), tables=schema.format(kind="STRING"))
    assert "is keyed by k STRING, not by k BIGINT" in refusal(stream, ToEarliest())
    _, report = replayed(stream, **ALLOWANCE)
    assert table(report, "balances").rows_live is None
    assert "The key of balances was k BIGINT: its rows are not compared." in report.notes
    assert set(served(stream, key="k")) == {"na", "nb", "nc", "nd"}


def test_a_changed_key_is_computed_anew_and_cannot_come_from_a_savepoint(stream: Lab) -> None:
    first = live(stream)
    evolve(
        stream,
        step='return {"moves": moves, "balances": newest(moves, key="id"), "newest": newest(moves, '
        'key="initial").select("initial", "id")}',
        tables=f'{BALANCES}, Table(name="newest", key=["initial"], schema="initial STRING NOT NULL, id STRING")',
    )
    replayed(stream)
    second = stream.record().live
    evolve(
        stream,
        step='return {"moves": moves, "balances": newest(moves, key="id"), "newest": newest(moves, '
        'key="id").select("initial", "id")}',
        tables=f'{BALANCES}, Table(name="newest", key=["id"], schema="initial STRING, id STRING NOT NULL")',
    )
    assert "key" in refusal(stream, FromSavepoint(seq=stream.ledger(second).state().seq))
    assert "is keyed by id STRING, not by initial STRING" in refusal(stream, ToEarliest())
    _, report = replayed(stream, ToEarliest(), **ALLOWANCE)
    assert first < second
    assert table(report, "newest").rows_live is None
    assert "The key of newest was initial STRING: its rows are not compared." in report.notes
    assert set(served(stream, "newest")) == {"a", "b", "c", "d"}


def test_a_new_table_has_all_history_and_cannot_come_from_a_savepoint(stream: Lab) -> None:
    first = live(stream)
    evolve(
        stream,
        step='return {"moves": moves, "balances": newest(moves, key="id"), "initials": newest(moves, '
        'key="initial").select("initial", "id")}',
        tables=f'{BALANCES}, Table(name="initials", key=["initial"], schema="initial STRING NOT NULL, id STRING")',
    )
    assert "no table 'initials'" in refusal(stream, FromSavepoint(seq=stream.ledger(first).state().seq))
    _, report = replayed(stream)
    assert table(report, "initials").rows_live is None
    assert set(served(stream, "initials", "initial")) == {"a", "b", "c", "d"}


NEW_OUTPUT = f'{MOVES}, Append(name="doubles", schema="id STRING NOT NULL, doubled BIGINT")'
NEW_STEP = (
    'return {"moves": moves, "balances": newest(moves, key="id"), "doubles": moves.select("id", "doubled", *[c '
    'for c in moves.columns if c.startswith("_")])}'
)


def test_a_new_output_has_all_history(stream: Lab) -> None:
    live(stream)
    evolve(stream, step=NEW_STEP, outputs=NEW_OUTPUT)
    epoch, _ = replayed(stream)
    assert len(queries.query(stream.paths(epoch).output("doubles"), None)) == len(ROWS) + 2


def test_a_new_output_begins_at_the_savepoint_and_the_plan_says_so(stream: Lab) -> None:
    first = live(stream)
    evolve(stream, step=NEW_STEP, outputs=NEW_OUTPUT)
    epoch, _ = replayed(stream, FromSavepoint(seq=stream.ledger(first).state().seq))
    (finding,) = [f for f in stream.plan(epoch).warnings if f.code == "seed-lacks-output"]
    assert finding.numbers == {"output": "doubles"}
    assert len(queries.query(stream.paths(epoch).output("doubles"), None)) == 2


def test_the_live_epoch_reads_an_added_partition(stream: Lab) -> None:
    first = live(stream)
    add_partition(stream)
    stream.produce([("e", 7)], partition=2, start_ms=1_700_000_050_000)
    stream.settle(first)
    assert stream.balances()["e"] == 7
    assert control.certify(stream.config, stream.name).complete


def test_a_partition_added_while_no_driver_ran_is_read_from_its_beginning(stream: Lab) -> None:
    first = live(stream)
    assert stream.stop(first) == []
    add_partition(stream)
    stream.produce([("e", 7), ("e", 8)], partition=2, start_ms=1_700_000_050_000)
    driver = stream.run(first)
    driver._live._has_served = True  # no bounded slice first: it begins with the stream itself
    stream.settle(first)
    assert stream.balances()["e"] == 15
    assert control.certify(stream.config, stream.name).complete
    assert sorted(stream.sent()) == sorted([*ROWS, ("e", 7), ("e", 8)])


def test_a_replay_of_a_topic_with_more_partitions_is_refused_unless_allowed(stream: Lab) -> None:
    live(stream)
    add_partition(stream)
    evolve(stream)
    assert "partition-count-changed" in refusal(stream, ToEarliest())
    replayed(stream, allow=frozenset({"partition-count-changed"}))
    assert stream.balances() == {"a": 14, "b": 7, "c": 4, "d": 20}


def add_partition(stream: Lab) -> None:
    """One partition more, as `kafka-topics --alter` makes it."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": stream.config.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(stream.topic, 3)]).values():
        future.result(30)


def reads_both(stream: Lab, more: str) -> None:
    """The deployed file reads another topic as well."""
    file = stream.config.topologies / "balances.py"
    source = f'Source(topic="{more}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")'
    text = (
        file.read_text().replace("sources=[MOVES]", "sources=BOTH").replace("running_total(MOVES", "running_total(BOTH")
    )
    text = text.replace("\ntotals = ", f"\nBOTH = [MOVES, {source}]\ntotals = ")
    both = f'slice["{stream.topic}"].unionByName(slice["{more}"])'
    file.write_text(text.replace(f'slice["{stream.topic}"]', both))


def test_a_new_source_is_read_from_its_beginning_and_a_rollback_drops_it(stream: Lab, topic: TopicFactory) -> None:
    first, more = live(stream), topic()
    produce(stream, more, [("x", 1)])
    evolve(stream)
    reads_both(stream, more)
    second, _ = replayed(stream)
    assert stream.balances() == {"a": 14, "b": 7, "c": 4, "d": 20, "x": 1}
    produce(stream, more, [("x", 2)])
    stream.settle(second)
    stream.go_back_to(first)
    assert stream.balances() == {"a": 14, "b": 7, "c": 4, "d": 20}
    assert control.certify(stream.config, stream.name).complete


@pytest.mark.parametrize("cuts", ["time", "live"])
def test_history_of_a_new_source_is_read_before_the_cutover_and_not_sent(
    stream: Lab, topic: TopicFactory, cuts: Literal["time", "live"]
) -> None:
    live(stream)
    more = topic()
    produce(stream, more, [(f"h{i}", i) for i in range(22)])
    stream.delete_before({0: 2}, more)  # retention has removed records that no epoch has read
    evolve(stream)
    reads_both(stream, more)
    second = stream.plan_replay(slice_records=4, cuts=cuts)
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    assert stream.plan(second).end[more, 0] == 22
    assert stand(stream, second, more) == 22, "nothing arrived meanwhile for the live epoch to commit"
    # The candidate goes on beside the live epoch, whether that has a commit meanwhile or not.
    produce(stream, more, [(f"i{i}", i) for i in range(10)])
    stream.wait(lambda: stand(stream, second, more) == 32, "the candidate reads on")
    stream.produce([("b", 1)], start_ms=1_700_000_100_000)
    produce(stream, more, [(f"j{i}", i) for i in range(10)])
    stream.settle(second, [stream.topic, more])
    commits = stream.ledger(second).state().commits
    assert max(r.count for row in commits for r in row.ranges if r.topic == more) <= 4
    assert stream.sent() == [*ROWS, ("b", 1)], "what the live epoch has sent"
    control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    stream.await_live(second)
    produce(stream, more, [("x", 7)])
    stream.produce([("a", 10)], start_ms=1_700_000_200_000)
    stream.settle(second, [stream.topic, more])
    assert sorted(stream.sent()) == sorted([*ROWS, ("b", 1), ("x", 7), ("a", 10)])
    assert len(stream.balances()) == 3 + 20 + 10 + 10 + 1
    assert control.certify(stream.config, stream.name).complete


def stand(stream: Lab, epoch: int, topic: str) -> int | None:
    """Where an epoch stands in a topic of one partition."""
    return ranges_end(stream.ledger(epoch).state().commits[-1].ranges).get(topic, 0)


def test_a_source_that_grows_while_no_live_epoch_reads_it_leaves_moves_and_certificates_whole(
    stream: Lab, topic: TopicFactory
) -> None:
    more = topic()
    evolve(stream, version=1)
    reads_both(stream, more)
    stream.produce(ROWS)
    produce(stream, more, [("x", 1), ("y", 2)])
    first = stream.start_live()
    stream.settle(first, topics=[stream.topic, more])
    evolve(stream)
    second, _ = replayed(stream)
    produce(stream, more, [("x", 3), ("y", 4)])
    stream.produce([("e", 5)], start_ms=1_700_000_200_000)
    stream.settle(second)
    stream.go_back_to(first)
    produce(stream, more, [("x", 5)])
    stream.settle(first, topics=[stream.topic, more])
    assert control.certify(stream.config, stream.name).problems == ()
    stream.go_back_to(second)  # its certificate comes before the move
    control.retire(stream.config, stream.name, first, actor="test", reason="enough")
    certificate = control.certify(stream.config, stream.name)
    assert certificate.problems == ()
    parts = [part for part in certificate.unproved if part.startswith(f"{more}[")]
    own_partitions = [f"{more}[{partition}]" for _, partition in stream.kafka.stable_offsets([more])]
    assert sorted({part.partition(" ")[0] for part in parts}) == sorted(own_partitions)
    assert not [part for part in parts if " from " in part], "where it yielded is on record"


def produce(stream: Lab, topic: str, rows: list[tuple[str, int]]) -> None:
    """Records of another topic."""
    replace(stream, topic=topic).produce(rows)


def test_another_number_of_shuffle_partitions_gives_the_same_tables(stream: Lab) -> None:
    first = live(stream)
    before = stream.session.conf.get("spark.sql.shuffle.partitions")
    evolve(stream)
    try:
        stream.session.conf.set("spark.sql.shuffle.partitions", "7")
        epoch, report = replayed(stream)
    finally:
        stream.session.conf.set("spark.sql.shuffle.partitions", before)
    assert report.verdict == Verdict.SAME
    assert first < epoch and stream.balances() == {"a": 14, "b": 7, "c": 4, "d": 20}
