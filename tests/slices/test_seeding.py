"""How a rebuild folds changelogs, and what it does not mistake for their end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kappa.errors import BrokerUnreachableError, DataLossError
from kappa.kafka import admin, markers
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.slices import folding, seeding
from kappa.slices.seeding import SeedSource
from kappa.topology import Table

PATHS = EpochPaths(lake="/lake", topology="a.b", epoch=1)
TABLE = Table(name="balances", key=["id"], schema="id STRING NOT NULL, total BIGINT")


class Lagging(Broker):
    """A broker with a transaction in the changelog whose end is not written, as of one that committed elsewhere."""

    def topics(self, prefix: str = "") -> tuple[str, ...]:
        return (PATHS.changelog("balances"), PATHS.markers)

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
    broker = SimpleNamespace(topics=lambda *_: ())
    topology = SimpleNamespace(tables=(), sources=())
    run: Any = SimpleNamespace(paths=PATHS, engines=SimpleNamespace(broker=broker), topology=topology, bound={})
    source = SeedSource(kind="from-changelog", epoch=1, seq=3)
    if is_taken:
        assert seeding._from_changelog(run, source, Offsets({"pos": start})) == seeding.Times(has_lost_releases=True)
    else:
        with pytest.raises(DataLossError, match="went on in between"):
            seeding._from_changelog(run, source, Offsets({"pos": start}))
