"""Drivers that freeze while they look after files, and wake up when their successor has long gone on."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.processes import rows

from kappa.delta import queries
from kappa.presence import heartbeat
from kappa.record import merge_on_read, savepoints
from kappa.record.merge_on_read import contents_of

if TYPE_CHECKING:
    from support.processes import Rig

pytestmark = pytest.mark.e2e

START_MS = 1_700_000_000_000
#: Where a driver freezes; the ones in soak are as the others, at other tables.
POINTS = (
    "maintain@2",
    "vacuum.chosen",
    pytest.param("maintain.dead_letters@2", marks=pytest.mark.soak),
    pytest.param("maintain.outputs@2", marks=pytest.mark.soak),
    pytest.param("maintain.changes@2", marks=pytest.mark.soak),
    pytest.param("merge.between", marks=pytest.mark.soak),
)


@pytest.mark.parametrize("point", POINTS)
def test_commits_of_the_successor_of_a_frozen_driver_stay_readable(machine: Rig, point: str) -> None:
    machine.config = replace(
        machine.config,
        stale_seconds=4.0,
        maintain_minutes=0.0,
        keep_minutes=0.0,
        savepoint_hours=0.0,
        merge_seconds=0.5 if point == "merge.between" else 0.0,
        savepoint_minutes=1e8,
    )
    machine.produce(rows(12))
    epoch = machine.start_live(f"{point}:stop")
    frozen = machine.beat(epoch)
    machine.produce(rows(12, first=12), start_ms=START_MS + 60_000)
    machine.wait(lambda: not machine.status(epoch).is_running, "the heartbeat grows stale")
    assert heartbeat.is_process(frozen.pid, frozen.started), "it is frozen, not dead"
    machine.config = replace(
        machine.config, maintain_minutes=1e6, keep_minutes=30.0, savepoint_hours=24.0, merge_seconds=0.0
    )
    machine.run(epoch)
    machine.settle(epoch)
    for number in (2, 3):
        machine.produce(rows(12, first=12 * number), start_ms=START_MS + 60_000 * number)
        machine.settle(epoch)
    named = savepoints.create(machine.config, machine.name, "kept", actor="test").seq
    machine.produce(rows(12, first=48), start_ms=START_MS + 240_000)
    machine.settle(epoch)
    before = readable(machine, epoch)
    assert named in before
    assert len(before) >= 4
    os.kill(frozen.pid, signal.SIGCONT)
    machine.wait(lambda: not heartbeat.is_process(frozen.pid, frozen.started), "the woken driver stops")
    assert readable(machine, epoch) == before
    machine.produce(rows(12, first=60), start_ms=START_MS + 300_000)
    machine.settle(epoch)
    assert machine.prove({epoch: 1}) == 72


def readable(machine: Rig, epoch: int) -> dict[int, dict[str, int]]:
    """Rows of everything at each commit that the ledger holds, all of them read."""
    paths, state = machine.paths(epoch), machine.ledger(epoch).state()
    counts: dict[int, dict[str, int]] = {}
    for commit in map(state.resolved, state.readable):
        counts[commit.seq] = {"balances": merge_on_read.query(contents_of(paths, commit, "balances")).num_rows}
        for place in ("outputs/moves", "dead_letters", "tables/balances"):
            counts[commit.seq][place] = queries.query(paths.place(place), commit.delta_versions[place]).num_rows
    return counts
