"""A lake in which ``retail.loyalty`` is live, as two slices left it: for readers, without Spark or a broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kappa import clock
from kappa.config import Config
from kappa.delta import tables
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.estimates import Estimate
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.starts import ToEarliest
from kappa.slices.places import create_tables
from kappa.slices.protocol import apply_changes, commit_slice
from kappa.slices.run import Engines, EpochRun
from kappa.topology import registry
from support import epoch_record

NAME = "retail.loyalty"
_BEGIN = Offsets({"pos": {0: 0}})
_REWARD = pa.schema(
    {
        "_seq": pa.int64(),
        "_deleted": pa.bool_(),
        "CustomerCardNo": pa.string(),
        "TotalLoyaltyPoints": pa.decimal128(18, 4),
    }
)


def live_lake(base: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Settings of the lake, also in the environment: slice 1 gave customer c1 2 points, slice 2 gave c2 3 points."""
    config = epoch_record.empty_lake(base, monkeypatch)
    fill(config)
    return config


def fill(config: Config) -> None:
    """The same in an empty lake that these settings name."""
    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    run = _begun(config, paths)
    _slice(run, {"c1": Decimal(2)})
    _slice(run, {"c2": Decimal(3)})
    plan = _plan()
    by_event: dict[str, dict[str, Any]] = {
        "planned": {
            "plan_id": plan.id,
            "plan": plan.to_json(),
            "start": _BEGIN.to_json(),
            "version": "2",
            "code": "code",
        },
        "moved": {"from": None, "at": {"pos": {"0": 2}}},
    }
    epoch_record.tell(config, NAME, 1, *epoch_record.FIRST, by_event=by_event)


def further_slices(config: Config, count: int) -> None:
    """Slices behind those of :func:`live_lake`, each of three records, of which one changes a customer."""
    for _ in range(count):
        _slice(open_run(config), {"c3": Decimal(1)}, rows_read=3, rows_parsed=3)


def open_run(config: Config) -> EpochRun:
    """The epoch, as a driver opens it that goes on."""
    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    return _run(config, paths, Ledger(paths.ledger))


def _begun(config: Config, paths: EpochPaths) -> EpochRun:
    """The epoch with empty tables, after its slice 0."""
    topology = registry.load(config.topologies, NAME)
    ledger = Ledger(paths.ledger)
    ledger.create()
    ledger.claim("me", "code", ledger.state())
    create_tables(topology, paths)
    places = ("dead_letters", "outputs/notifications", "changes/rewards", "tables/rewards")
    ledger.append(LedgerRow(kind="commit", seq=0, writer="me", at=clock.now(), delta_versions=dict.fromkeys(places, 0)))
    return _run(config, paths, ledger)


def _run(config: Config, paths: EpochPaths, ledger: Ledger) -> EpochRun:
    none: Any = None  # nothing is computed, read or sent
    engines = Engines(session=none, broker=none, bootstrap_servers="", savepoint_grain=timedelta(days=1))
    topology = registry.load(config.topologies, NAME)
    return EpochRun(
        topology=topology, paths=paths, writer="me", code="code", ledger=ledger, topic_ids={}, engines=engines
    )


def _slice(run: EpochRun, points: dict[str, Decimal], **counts: Any) -> None:
    """One slice that changes these customers' points."""
    state = run.ledger.state()
    seq, changes = state.seq + 1, run.paths.changes("rewards")
    ranges = (OffsetRange(topic="pos", partition=0, start=seq - 1, end=seq),)
    row = LedgerRow(kind="plan", seq=seq, writer="me", at=clock.now(), ranges=ranges)
    plan = run.ledger.append(row)
    rows = [{"_seq": seq, "_deleted": False, "CustomerCardNo": c, "TotalLoyaltyPoints": p} for c, p in points.items()]
    run.scratch.written = {"changes/rewards": pa.Table.from_pylist(rows, _REWARD)}
    tables.append(changes, run.scratch.written["changes/rewards"], seq)
    versions = {"changes/rewards": tables.version(changes), "dead_letters": 0, "outputs/notifications": 0}
    effects = run.ledger.append(replace(row, kind="effects", ranges=(), delta_versions=versions, **counts))
    apply_changes(run, plan, effects)
    commit_slice(run, plan, effects)


def _plan() -> ReplayPlan:
    return ReplayPlan(
        topology=NAME,
        topology_version="2",
        code="code",
        epoch=1,
        live_epoch=None,
        live_seq=None,
        start=_BEGIN,
        end=_BEGIN,
        origin=_BEGIN,
        topic_ids={},
        seed=Seed.EMPTY,
        seed_epoch=None,
        seed_seq=None,
        tables=("rewards",),
        appends=("notifications",),
        topics=("loyalty",),
        stages=(),
        findings=(),
        estimate=Estimate(offsets=0, records=None, seconds=None),
        created_at=clock.now(),
        request=ReplayRequest(topology=NAME, start=ToEarliest(), reason="", actor="test"),
    )
