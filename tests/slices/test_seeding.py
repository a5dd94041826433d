"""How a rebuild folds changelogs, and what it does not mistake for their end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.slices import Epoch

from kappa import clock
from kappa.errors import BrokerUnreachableError, DataLossError
from kappa.kafka import admin, markers
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.operators import agg, tumbling_window
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.slices import folding, seeding
from kappa.slices.run import Scratch
from kappa.slices.seeding import SeedSource, seed
from kappa.topology import Source, Table, Topology
from kappa.topology.shapes import shapes_as_dict, shapes_of

PATHS = EpochPaths(lake="/lake", topology="a.b", epoch=1)
TABLE = Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT")


class Lagging(Broker):
    """A broker with a transaction in the changelog whose end is not written, as of one that committed elsewhere."""

    def has_topic(self, name: str) -> bool:
        return name in (PATHS.changelog("balances"), PATHS.markers)

    def low_watermarks(self, topics: Any) -> Offsets:
        return Offsets({topic: {0: 0} for topic in topics})

    def high_watermarks(self, topics: Any) -> Offsets:
        return Offsets({topic: {0: 9} for topic in topics})

    def stable_offsets(self, topics: Any) -> Offsets:
        return Offsets({topic: {0: 7} for topic in topics})


def test_a_fold_does_not_stop_before_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "SETTLE_SECONDS", 0.05)
    engines = SimpleNamespace(broker=Lagging("localhost:1"))  # nothing is read
    run: Any = SimpleNamespace(paths=PATHS, engines=engines)
    with pytest.raises(
        BrokerUnreachableError, match=r"a transaction in kappa\.a\.b\.e0001\.balances\.changelog is open"
    ):
        folding.fold_into(run, PATHS, TABLE, 3)


@pytest.mark.parametrize(
    ("start", "is_taken"),
    [({0: 5, 1: 2}, True), ({0: 5, 1: 2, 2: 0}, True), ({0: 5, 1: 2, 2: 1}, False), ({0: 5, 1: 3}, False)],
)
def test_a_partition_added_since_the_marker_begins_at_zero(
    monkeypatch: pytest.MonkeyPatch, start: dict[int, int], is_taken: bool
) -> None:
    marker = SimpleNamespace(
        seq=3,
        end=Offsets({"pos": {0: 5, 1: 2}}),
        max_timestamps={},
        stream_times={},
        shapes={},
        floors={},
        set_aside=(),
        set_aside_count=0,
    )
    monkeypatch.setattr(markers, "read", lambda *_: marker)
    broker = SimpleNamespace(has_topic=lambda _: False)
    topology = SimpleNamespace(tables=(), sources=())
    run: Any = SimpleNamespace(paths=PATHS, engines=SimpleNamespace(broker=broker), topology=topology, bound={})
    source = SeedSource(kind="from-changelog", epoch=1, seq=3)
    if is_taken:
        assert seeding._from_changelog(run, source, Offsets({"pos": start})) == seeding.Times(has_lost_releases=True)
    else:
        with pytest.raises(DataLossError, match="went on in between"):
            seeding._from_changelog(run, source, Offsets({"pos": start}))


def windows_of(grace: str | None) -> Topology:
    """Windows over a topic of another topology, which is followed where there is no grace."""
    story = Source(topic="story", of="a.a", schema="id STRING NOT NULL, at BIGINT NOT NULL", time="at", grace=grace)
    counts = tumbling_window(story, key="id", size="10 seconds", aggregates={"n": agg.count()}, table="counts")
    return Topology(name="a.b", version="1", sources=[story], operators=[counts])


@pytest.mark.parametrize(("grace", "frontier"), [("3 seconds", 5_000), (None, 8_000)])
def test_a_frontier_stays_where_the_epoch_reads_the_topic_of_another_upstream_epoch(
    tmp_path: Path, grace: str | None, frontier: int
) -> None:
    topology = windows_of(grace)
    run = Epoch(tmp_path, topology, epoch=3).run

    def begun(epoch: int) -> tuple[EpochPaths, Ledger]:
        paths = replace(run.paths, epoch=epoch)
        ledger = Ledger(paths.ledger)
        ledger.create()
        ledger.claim("me", "code", ledger.state())
        return paths, ledger

    _, first = begun(1)
    detail = {"shapes": shapes_as_dict(shapes_of(topology)), "bound": {"story": "story.e0001"}}
    first.append(LedgerRow(kind="commit", seq=0, writer="me", at=clock.now(), detail=detail))
    read = [OffsetRange(topic="story.e0001", partition=partition, start=0, end=4) for partition in (0, 1)]
    times = {"story.e0001": {0: 9_000, 1: 8_000}}
    first.append(LedgerRow(kind="commit", seq=1, writer="me", at=clock.now(), ranges=tuple(read), stream_times=times))

    paths, ledger = begun(2)
    second = replace(run, paths=paths, ledger=ledger, bound={"story": "story.e0002"}, scratch=Scratch())
    start = Offsets({"story.e0002": {0: 5, 1: 0, 2: 7}})
    seeded = seed(second, SeedSource(kind="empty", epoch=1, seq=1, times=True), start)
    assert seeded.floors == {"story.e0002": {0: {5: frontier}, 1: {0: frontier}, 2: {7: frontier}}}
