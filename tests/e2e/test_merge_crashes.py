"""Drivers killed right after a merge, and between two merges: what they leave is repaired by the next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.processes import engines, rows

from kappa.delta import tables
from kappa.record.merge_on_read import MERGED

if TYPE_CHECKING:
    from support.processes import Rig

pytestmark = pytest.mark.e2e

START_MS = 1_700_000_000_000


@pytest.mark.parametrize("settings", [{}, {"merge_bytes": 0}], ids=["by the driver", "by Spark"])
def test_a_driver_killed_after_a_merge_or_between_merges_loses_and_repeats_nothing(
    machine: Rig, settings: dict[str, int]
) -> None:
    machine.config = replace(machine.config, **settings)
    never, always, soon = (
        replace(machine.config, merge_seconds=seconds, savepoint_minutes=1e8) for seconds in (3600.0, 0.0, 0.5)
    )
    machine.config = always
    machine.produce(rows(12))
    epoch = machine.start("merge@1")
    # Killed after a merge; the next one would not merge, and finds it done. Then killed with changes not yet merged.
    for seq, (config, point) in enumerate(
        [(never, "apply@2"), (never, "commit@3"), (always, "merge@4"), (soon, "merge.between")], start=1
    ):
        machine.await_death(epoch)
        machine.produce(rows(12, first=12 * seq), start_ms=START_MS + 60_000 * seq)
        machine.config = config
        machine.run(epoch, point)
    machine.await_death(epoch)
    commits = {row.seq: row for row in machine.ledger(epoch).state().commits}
    assert MERGED not in commits[1].detail, "the merge of the attempt that died counts"
    assert commits[3].detail[MERGED]["balances"]["seq"] == 1
    assert MERGED not in commits[4].detail
    last = machine.ledger(epoch).state().seq
    assert tables.merged(machine.paths(epoch).table("balances"))[1] == last, "merged, and no row says so"
    machine.config = never
    machine.produce(rows(12, first=60), start_ms=START_MS + 300_000)
    machine.run(epoch)
    machine.settle(epoch)
    assert machine.prove({epoch: 1}) == 72
    assert ("Apache-Spark" in engines(machine, epoch, "tables/balances")) == bool(settings)
