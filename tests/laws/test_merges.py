"""Law 3 and law 8 while changes of several slices wait to be merged: every reader of a commit finds its rows."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from support.epochs import DEADLINE_SECONDS, Lab, lab
from support.slices import TABLE, Epoch, as_rows, merged

from kappa import control, serving
from kappa.delta import queries, tables
from kappa.driver.maintenance import maintain
from kappa.record import merge_on_read
from kappa.record.merge_on_read import MERGED
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint
from kappa.slices.run import EpochRun
from kappa.slices.state import TableState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4)]
LATER = 1_700_000_100_000


@pytest.fixture
def slow(tmp_path: Path, kafka: Any, spark: Any, topic: Any) -> Iterator[Lab]:
    """A deployed topology whose tables are not merged by themselves."""
    with lab(
        tmp_path / "lab", kafka, spark, topic(partitions=2), merge_seconds=3600.0, savepoint_minutes=1e8
    ) as stream:
        stream.deploy(1)
        yield stream


def live(stream: Lab, *, slices: int = 3) -> int:
    """A first epoch that read everything, the last slices of it one by one."""
    stream.produce(ROWS)
    epoch = stream.start_live()
    for number in range(slices):
        more(stream, number)
    return epoch


def more(stream: Lab, number: int) -> None:
    """One more slice of the live epoch: one batch of one partition, since records of two may come in two slices."""
    stream.produce([("a", 10), (f"new-{number}", number)], partition=0, start_ms=LATER + 60_000 * number)
    stream.settle(stream.record().live)


def after(slices: int) -> dict[str, int]:
    return {"a": 4 + 10 * slices, "b": 2, "c": 4, **{f"new-{number}": number for number in range(slices)}}


def in_table(stream: Lab, epoch: int) -> dict[str, int]:
    """The balances for a reader who knows only the path."""
    return {row["id"]: row["total"] for row in queries.query(stream.paths(epoch).table("balances"), None).to_pylist()}


def test_readers_of_a_commit_get_unmerged_rows_and_a_stop_merges_the_table(slow: Lab) -> None:
    epoch = live(slow)
    commits = slow.ledger(epoch).state().commits
    assert MERGED in commits[-1].detail and in_table(slow, epoch) == {}, "nothing was merged"
    assert slow.balances() == after(3)
    for commit in commits[-4:]:
        then = serving.snapshot(slow.config, slow.name, seq=commit.seq)
        totals = {row["id"]: row["total"] for row in then.rows("balances").to_pylist()}
        assert totals["a"] + 10 * (commits[-1].seq - commit.seq) == after(3)["a"], "each slice added ten"
        counted = Counter[str]()
        for row in then.rows("moves").to_pylist():
            counted[row["id"]] += row["counted"]
        assert totals == counted, "a commit has the moves of its slices and no others"
    now = serving.snapshot(slow.config, slow.name)
    assert now.rows("balances", "total = 4 AND id = 'a'").num_rows == 0, "an older row of a key is not a row"
    assert now.rows("balances", "id LIKE 'new%'", order_by="total DESC", limit=1).to_pylist()[0]["total"] == 2
    assert now.merged("balances") == 0 < now.seq
    assert slow.stop(epoch) == []
    assert in_table(slow, epoch) == after(3)
    assert slow.balances() == after(3)


def test_a_driver_restarted_between_two_merges_goes_on_from_the_changes(slow: Lab) -> None:
    epoch = live(slow)
    driver, thread, _ = slow.running[epoch]
    driver.merges.merge = lambda **_: None  # type: ignore[method-assign]  # as one that is killed: it merges nothing at its end
    assert slow.stop(epoch) == [] and not thread.is_alive()
    assert in_table(slow, epoch) == {}
    slow.run(epoch)
    more(slow, 3)
    assert slow.balances() == after(4)
    slow.hold(totals=after(4), moves=None, sent=_moves(4))
    assert slow.ledger(epoch).state().commits[-1].detail[MERGED]["balances"]["seq"] == 0


def test_a_driver_that_is_stopped_leaves_a_merge_of_spark_to_the_next(slow: Lab) -> None:
    config = slow.config
    slow.config = replace(config, merge_bytes=0)
    epoch = live(slow)
    assert slow.stop(epoch) == []
    assert in_table(slow, epoch) == {}
    slow.config = config
    slow.run(epoch)
    more(slow, 3)
    assert slow.stop(epoch) == []
    assert in_table(slow, epoch) == after(4)


def _moves(slices: int) -> list[tuple[str, int, int]]:
    moves = [("a", 1, 1), ("b", 2, 2), ("a", 3, 4), ("c", 4, 4)]
    for number in range(slices):
        moves += [("a", 10, 14 + 10 * number), (f"new-{number}", number, number)]
    return moves


def test_waiting_changes_are_merged_whether_or_not_the_stream_idles(
    tmp_path: Path, kafka: Any, spark: Any, topic: Any
) -> None:
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), merge_seconds=0.5) as stream:
        stream.deploy(1)
        epoch = live(stream)
        stream.wait(lambda: in_table(stream, epoch) == after(3), "an idle stream is merged")
        rows = len(stream.ledger(epoch).rows())
        more(stream, 3)
        stream.wait(lambda: in_table(stream, epoch) == after(4), "and again")
        assert stream.balances() == after(4)
        # A merge between two slices puts the files that it wrote on record, with a row of its own.
        kinds = [row.kind for row in stream.ledger(epoch).rows()[rows:] if row.kind != "files"]
        assert kinds == ["plan", "effects", "commit"]


def test_an_epoch_that_never_merges_equals_one_that_merges_every_slice(slow: Lab) -> None:
    first = live(slow)
    keeper, slow.config = slow.config, replace(slow.config, merge_seconds=0.0)
    second = slow.plan_replay(slice_records=3)
    slow.run(second)
    slow.await_stage(second, Stage.VERIFIED)
    slow.config = keeper
    report = control.diff(slow.config, slow.name, second)
    assert report.verdict == "same"
    assert (report.tables[0].rows_live, report.tables[0].rows_candidate) == (6, 6)
    theirs = slow.ledger(second).state().commits
    assert all(MERGED not in row.detail for row in theirs), "it merged every slice"
    assert in_table(slow, first) == {} and in_table(slow, second) == after(3)
    control.cut_over(slow.config, slow.name, second, actor="test", reason="test")
    slow.await_live(second)
    more(slow, 3)
    assert slow.balances() == after(4)
    assert slow.stop(first) == []
    control.rollback(slow.config, slow.name, actor="test", reason="test")
    slow.run(first)
    slow.wait(lambda: control.progress(slow.config, slow.name, first).is_caught_up, "the old epoch is back")
    control.cut_over(slow.config, slow.name, first, actor="test", reason="test")
    slow.await_live(first)
    assert slow.balances() == after(4)
    assert control.certify(slow.config, slow.name).complete


def test_an_epoch_is_seeded_from_a_savepoint_between_two_merges(slow: Lab) -> None:
    epoch = live(slow, slices=2)
    seq = slow.ledger(epoch).state().commits[-1].seq
    more(slow, 2)
    assert MERGED in slow.ledger(epoch).state().commits[-2].detail
    second = slow.plan_replay(FromSavepoint(seq=seq))
    slow.run(second)
    slow.await_stage(second, Stage.VERIFIED)
    seed = slow.ledger(second).state().commits[0]
    assert MERGED not in seed.detail and seed.detail["of_seq"] == seq
    rows = serving.snapshot(slow.config, slow.name, epoch=second, seq=0).rows("balances").to_pylist()
    assert {row["id"]: row["total"] for row in rows} == after(2)
    assert control.diff(slow.config, slow.name, second).verdict == "same"


def test_a_snapshot_is_consistent_while_the_driver_merges_and_maintains_files(
    tmp_path: Path, kafka: Any, spark: Any, topic: Any
) -> None:
    with lab(
        tmp_path / "lab",
        kafka,
        spark,
        topic(partitions=2),
        merge_seconds=0.2,
        maintain_minutes=0.0,
        savepoint_hours=0.0,
    ) as stream:
        stream.deploy(1)
        epoch = live(stream, slices=0)
        torn: list[str] = []
        errors: list[BaseException] = []
        reads = 0
        ended = threading.Event()

        def read() -> None:
            try:
                poll()
            except BaseException as error:
                errors.append(error)

        def poll() -> None:
            nonlocal reads
            snapshots = []
            while not ended.is_set():
                reads += 1
                snapshots = [*snapshots[-5:], serving.snapshot(stream.config, stream.name)]
                for snapshot in snapshots:  # also those of some slices ago, whose merges may have gone
                    total = snapshot.rows("balances", select="SUM(total) AS total").to_pylist()[0]["total"]
                    counted = snapshot.rows("moves", select="SUM(counted) AS total").to_pylist()[0]["total"]
                    if total != counted:
                        torn.append(f"slice {snapshot.seq}: balances {total}, moves {counted}")

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            for number in range(12):
                more(stream, number)
        finally:
            ended.set()
            reader.join(DEADLINE_SECONDS)
        assert not reader.is_alive() and errors == [] and torn == []
        assert reads > 1
        state = stream.ledger(epoch).state()
        assert state.maintained is not None and stream.balances() == after(12)


@pytest.mark.parametrize("is_held", [True, False], ids=["merged from memory", "merged by an engine"])
@pytest.mark.parametrize("small_rows", [queries.SMALL_ROWS, 0], ids=["memory", "files"])
def test_spark_arrow_and_the_step_read_the_same_rows_of_every_commit(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, small_rows: int, is_held: bool
) -> None:
    monkeypatch.setattr(queries, "SMALL_ROWS", small_rows)
    chance = random.Random(24)
    epoch = Epoch(tmp_path, merge_seconds=3600.0)
    held = TableState(spark, TABLE)
    if is_held:
        epoch.run.scratch.states[TABLE.name] = held
    now: dict[Any, int] = {}
    before = epoch.run.ledger.state().commits[-1]
    for number in range(8):
        changes = {(id, 0): chance.choice([None, number]) for id in chance.sample(["a", "b", "c'", 'd"'], 2)}
        epoch.run.engines = replace(
            epoch.run.engines,
            session=spark,
            merge_seconds=chance.choice([0.0, 3600.0]),
            arrow_rows=chance.choice([0, 500_000]),  # 0: Spark merges
        )
        held.frame(epoch.at(before))
        row, now = epoch.slice(changes), merged(now, changes)
        read = merge_on_read.frame(spark, epoch.at(row)).toArrow()
        assert as_rows(read) == epoch.table(row) == now
        if number == 5:
            maintain(epoch.run, _config(tmp_path), row.at)
        if not is_held:
            held.advance(_changes(epoch, row.seq), epoch.at(before), epoch.at(row))
        assert as_rows(held.frame(epoch.at(row)).toArrow()) == now, "kept in memory"
        assert as_rows(TableState(spark, TABLE).frame(epoch.at(row)).toArrow()) == now, "read anew"
        before = row
    history = DeltaTable(epoch.paths.table("sums")).history()
    merges = [entry for entry in history if entry["operation"] == "MERGE"]
    engines = {entry["engineInfo"].split("/")[0].split(":")[0] for entry in merges}
    assert engines == (set() if is_held else {"Apache-Spark", "delta-rs"})


def _config(base: Path) -> Any:
    from kappa.config import Config

    return Config(lake=str(base), bootstrap_servers="", topologies=base, home=base, cache=base)


def _changes(epoch: Epoch, seq: int) -> Any:
    run: EpochRun = epoch.run
    return queries.rows_of(run.paths.changes("sums"), tables.version(run.paths.changes("sums")), seq)
