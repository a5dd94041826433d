"""A small world for plans: topic ``pos`` with two partitions, live epoch 3 at its end, nothing wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kappa.offsets.vector import Offsets
from kappa.replay.building import build_plan
from kappa.replay.facts import Facts, LiveFacts, LogFacts, MarkerFacts, SavepointFacts, SourceFacts, TopologyFacts
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import ReplayRequest
from kappa.replay.starts import ToEarliest
from kappa.topology.shapes import Shape, tables_only

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

SHAPES = {
    "tables/rewards": Shape(
        columns={"card": "STRING", "points": "BIGINT", "tier": "STRING"}, required=("card",), key=("card",)
    ),
    "outputs/notifications": Shape(columns={"card": "STRING", "text": "STRING"}, required=()),
}
TOPOLOGY = TopologyFacts(
    name="retail.loyalty",
    version="2",
    code="c0ffee" * 10,
    sources=(SourceFacts(topic="pos"),),
    tables=("rewards",),
    appends=("notifications",),
    topics=("loyalty",),
    shapes=SHAPES,
    measures=("rewards.keys_removed", "rewards.keys_changed", "rewards.drift.TotalLoyaltyPoints", "notifications.rows"),
)
LOG = LogFacts(
    low=Offsets({"pos": {0: 0, 1: 0}}),
    high=Offsets({"pos": {0: 100, 1: 80}}),
    stable=Offsets({"pos": {0: 100, 1: 80}}),
    topic_ids={"pos": "id-1"},
    cleanup={"pos": "delete"},
    last_times={("pos", 0): datetime(2026, 2, 28, tzinfo=UTC), ("pos", 1): datetime(2026, 2, 27, tzinfo=UTC)},
)
SAVEPOINT = SavepointFacts(
    seq=5, offsets=Offsets({"pos": {0: 40, 1: 30}}), finished_at=datetime(2026, 2, 20, tzinfo=UTC), shapes=SHAPES
)
LIVE = LiveFacts(
    epoch=3,
    seq=9,
    position=Offsets({"pos": {0: 90, 1: 80}}),
    origin=Offsets({"pos": {0: 0, 1: 0}}),
    version="1",
    code="beef" * 15,
    topic_ids={"pos": "id-1"},
    savepoints=(SAVEPOINT, replace(SAVEPOINT, seq=9, finished_at=datetime(2026, 2, 28, tzinfo=UTC))),
)
MARKER = MarkerFacts(
    epoch=3, seq=9, position=Offsets({"pos": {0: 90, 1: 80}}), topic_ids={"pos": "id-1"}, shapes=tables_only(SHAPES)
)


@pytest.fixture
def facts() -> Facts:
    return Facts(topology=TOPOLOGY, log=LOG, next_epoch=4, live=LIVE, topologies=("retail.loyalty", "retail.shipments"))


@pytest.fixture
def marker() -> MarkerFacts:
    return MARKER


@pytest.fixture
def plan_of() -> Callable[..., ReplayPlan]:
    """Plans a request that differs from a plain ``to_earliest`` only in what is named."""

    def plan(facts: Facts, **changes: Any) -> ReplayPlan:
        fields = {"topology": "retail.loyalty", "start": ToEarliest(), "reason": "v2", "actor": "ana", **changes}
        return build_plan(ReplayRequest(**fields), facts, now=NOW)

    return plan
