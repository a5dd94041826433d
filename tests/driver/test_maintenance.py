"""Files that are merged and removed between two slices, while the rows of every commit that is held stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.epochs import Lab, lab

from kappa import control, serving
from kappa.config import Config
from kappa.delta import queries, tables
from kappa.driver.maintenance import maintain
from kappa.errors import LedgerError, UnknownEpochError
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange
from kappa.record import merge_on_read
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import contents_of
from kappa.replay.stages import Stage
from kappa.slices.places import create_tables
from kappa.slices.run import Engines, EpochRun
from kappa.topology import Append, Source, Table, Topology

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
TOPOLOGY = Topology(
    name="sums",
    version="1",
    sources=[Source(topic="pos", schema="id STRING NOT NULL")],
    tables=[Table(name="sums", key=["id"], schema="id STRING NOT NULL, total BIGINT")],
    outputs=[Append(name="moves", schema="id STRING NOT NULL, total BIGINT")],
    step=lambda _: {},
)


class Epoch:
    """An epoch whose slices are written without Spark and Kafka, one a minute."""

    def __init__(self, base: Path) -> None:
        self.config = Config(
            lake=str(base),
            bootstrap_servers="",
            topologies=base,
            home=base,
            cache=base,
            savepoint_minutes=60.0,
            delete_after_hours=0.0,
        )
        self.paths = EpochPaths(lake=str(base), topology="sums", epoch=1)
        self.ledger = Ledger(self.paths.ledger)
        self.ledger.create()
        self.ledger.claim("me", "code", self.ledger.state())
        create_tables(TOPOLOGY, self.paths)
        self.run = EpochRun(
            topology=TOPOLOGY,
            paths=self.paths,
            writer="me",
            code="code",
            ledger=self.ledger,
            topic_ids={},
            engines=Engines(session=None, broker=None, bootstrap_servers=""),  # type: ignore[arg-type]
        )

    def slice(self, seq: int) -> None:
        """One slice: key ``a`` gets the slice's number."""
        keys = {"id": ["a"], "total": [seq], "_seq": pa.array([seq], pa.int64())}
        lineage = {"_topic": ["pos"], "_partition": pa.array([0], pa.int32()), "_offset": pa.array([seq], pa.int64())}
        order = {"_order_timestamp": pa.array([BEGIN], pa.timestamp("us", "UTC"))}
        changes = pa.table({**keys, "_deleted": [False]})
        tables.append(self.paths.output("moves"), pa.table({**keys, **lineage, **order}), seq)
        tables.append(self.paths.changes("sums"), changes, seq)
        tables.merge(self.paths.table("sums"), changes, ["id"], TOPOLOGY.table("sums").columns, seq)
        places = ("dead_letters", "outputs/moves", "changes/sums", "tables/sums")
        self.ledger.append(
            LedgerRow(
                kind="commit",
                seq=seq,
                writer="me",
                at=BEGIN + timedelta(minutes=seq),
                ranges=(OffsetRange(topic="pos", partition=0, start=seq, end=seq + 1),),
                delta_versions={place: tables.version(self.paths.place(place)) for place in places},
            )
        )

    def total(self, seq: int) -> Any:
        """The table's row after a slice."""
        state = self.ledger.state()
        (commit,) = [row for row in state.commits if row.seq == seq]
        return merge_on_read.query(contents_of(self.paths, state.resolved(commit), "sums")).to_pylist()[0]["total"]


@pytest.fixture
def epoch(tmp_path: Path) -> Epoch:
    new_epoch = Epoch(tmp_path)
    for seq in range(100):
        new_epoch.slice(seq)
    return new_epoch


def files(path: str) -> int:
    return len(list(Path(path).glob("*.parquet")))


def test_held_commits_stay_readable_and_the_files_of_the_others_go(epoch: Epoch) -> None:
    row = maintain(epoch.run, epoch.config, BEGIN + timedelta(minutes=100), lambda: {7})

    state = epoch.ledger.state()
    held = [seq for seq in range(100) if state.is_readable(seq)]
    assert held == [0, 7, 60, *range(70, 100)]
    assert (row.kind, row.detail["readable_from"], row.detail["savepoints"]) == ("maintain", 70, [0, 7, 60])
    assert [epoch.total(seq) for seq in held] == held
    with pytest.raises(Exception, match=r"[Nn]ot found|No such file"):
        queries.query(epoch.paths.table("sums"), 31)
    merged_seqs = [0, 7, 60, 70, 90, *range(94, 100)]
    assert row.detail["merges"] == {"sums": {"key": ["id"], "kept": [[seq + 1, seq] for seq in merged_seqs]}}
    assert files(epoch.paths.table("sums")) == len(merged_seqs), "the commits between them are read from these"


@pytest.mark.parametrize("later", [{7, 8}, None], ids=["a name", "a comparison"])
def test_what_is_named_while_a_look_is_put_on_record_stays_readable(epoch: Epoch, later: set[int] | None) -> None:
    looks: list[int] = []

    def named() -> set[int] | None:
        looks.append(epoch.ledger.state().readable_from)
        return {8} if len(looks) == 1 else later

    row = maintain(epoch.run, epoch.config, BEGIN + timedelta(minutes=100), named)
    assert looks[:2] == [0, 70], "it asks again after its row"
    assert epoch.ledger.state().maintained == row
    assert [epoch.total(seq) for seq in (7, 8)] == [7, 8]
    assert epoch.ledger.state().is_readable(30) is (later is None)


def test_small_files_are_merged_and_no_row_changes(epoch: Epoch) -> None:
    maintain(epoch.run, epoch.config, BEGIN + timedelta(days=9))

    assert len(DeltaTable(epoch.paths.output("moves")).file_uris()) == 1
    rows = queries.query(epoch.paths.output("moves"), None).to_pylist()
    assert sorted(row["total"] for row in rows) == list(range(100))
    assert epoch.total(99) == 99
    assert [row["total"] for row in queries.query(epoch.paths.changes("sums"), None).to_pylist()] == [99]
    assert epoch.ledger.state().forgotten("sums") == 98


def test_maintenance_can_be_repeated_and_slices_go_on(epoch: Epoch) -> None:
    for minutes in (100, 100, 200):
        maintain(epoch.run, epoch.config, BEGIN + timedelta(minutes=minutes))
    epoch.slice(100)
    assert not tables.append(epoch.paths.output("moves"), pa.table({"id": ["a"]}), 100), (
        "a slice is written once, still"
    )
    assert epoch.total(100) == 100
    assert [epoch.total(seq) for seq in (0, 60)] == [0, 60]


def test_nothing_goes_while_somebody_compares(epoch: Epoch) -> None:
    maintain(epoch.run, epoch.config, BEGIN + timedelta(minutes=100), lambda: None)

    assert [epoch.total(seq) for seq in range(100)] == list(range(100))
    assert epoch.ledger.state().is_readable(30)


def test_maintenance_is_refused_while_a_slice_is_open(epoch: Epoch) -> None:
    epoch.ledger.append(LedgerRow(kind="plan", seq=100, writer="me", at=BEGIN))

    with pytest.raises(LedgerError, match="between two slices"):
        maintain(epoch.run, epoch.config, BEGIN)


@pytest.mark.spark
@pytest.mark.broker
def test_a_stream_maintained_after_every_slice_is_replayed_compared_and_rolled_back(
    tmp_path: Path, kafka: Any, spark: Any, topic: Any
) -> None:
    with lab(
        tmp_path / "lab", kafka, spark, topic(partitions=2), maintain_minutes=0.0, keep_minutes=0.0, savepoint_hours=0.0
    ) as stream:
        first, second = _two_epochs(stream)
        state = stream.ledger(first).state()
        assert state.maintained is not None and state.readable_from > 1
        with pytest.raises(UnknownEpochError, match="cleaned up"):
            serving.snapshot(stream.config, stream.name, epoch=first, seq=1)
        control.rollback(stream.config, stream.name, actor="test", reason="test")
        stream.run(first)
        stream.wait(lambda: control.progress(stream.config, stream.name, first).is_caught_up, "the old epoch is back")
        control.cut_over(stream.config, stream.name, first, actor="test", reason="test")
        stream.await_live(first)
        stream.produce([("a", 1)], start_ms=1_700_000_900_000)
        stream.settle(first)
        assert stream.balances() == {"a": 6 * 7 + 1, "b": 6 * 7}
        assert control.certify(stream.config, stream.name).complete
        assert second != first


def _two_epochs(stream: Lab) -> tuple[int, int]:
    stream.deploy(1)
    stream.produce([("a", 7), ("b", 7)])
    first = stream.start()
    stream.await_live(first)
    for number in range(1, 6):
        stream.produce([("a", 7), ("b", 7)], start_ms=1_700_000_000_000 + 60_000 * number)
        stream.settle(first)
    second = stream.plan_replay()
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    assert control.diff(stream.config, stream.name, second).verdict == "same"
    control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    stream.await_live(second)
    stream.settle(second)
    stream.stop(first)
    return first, second
