"""Slices whose records Spark keeps and whose effects Spark writes, by processes that die in them at every line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.deaths import ENDLESS
from support.kill_matrix import walk
from support.processes import QUICK_JVM, SLICE_POINTS, Rig, engines, rows

pytestmark = pytest.mark.e2e

LATER_MS = 1_700_000_000_000
#: Every slice is a large one, and none of its rows come into the driver's memory.
LARGE = {"small_slice": 0, "arrow_rows": 0}


def die_everywhere(machine: Rig, points: tuple[str, ...], seq: int = 1) -> int:
    machine.produce(rows(12))
    epoch = machine.start(f"{points[0]}@{seq}")
    for number, following in enumerate([*points[1:], ""], start=1):
        machine.await_death(epoch)
        machine.produce(rows(12, first=12 * number), start_ms=LATER_MS + 60_000 * number)
        machine.run(epoch, following)
    machine.settle(epoch)
    return epoch


@pytest.mark.parametrize(
    "points",
    [("effects.outputs", "effects.changes", "send.open", "apply"), pytest.param(SLICE_POINTS, marks=pytest.mark.soak)],
    ids=["some", "all"],
)
def test_a_driver_killed_in_large_slices_of_spark_loses_and_repeats_nothing(
    machine: Rig, points: tuple[str, ...]
) -> None:
    machine.config = replace(machine.config, merge_seconds=0.0, attempts=ENDLESS, **LARGE)
    epoch = die_everywhere(machine, points)
    assert machine.prove({epoch: 1}) == 12 * (len(points) + 1)
    assert engines(machine, epoch, "outputs/moves") == {"Apache-Spark"}
    assert engines(machine, epoch, "changes/balances") == {"Apache-Spark"}
    assert "Apache-Spark" in engines(machine, epoch, "tables/balances"), "upkeep by deltalake aside"


def test_a_driver_with_rows_too_large_for_its_memory_lets_spark_write_them_or_dies(machine: Rig) -> None:
    tight = {**QUICK_JVM, "spark.driver.maxResultSize": "200k"}
    machine.config = replace(machine.config, small_slice=0, slice_records=50_000, spark_conf=tight)
    good = [(f"account-{n % 7}", n + 1) for n in range(20_000)]
    machine.produce(good, step_ms=0)
    epoch = machine.start("effects.outputs@1")
    machine.await_death(epoch)
    machine.run(epoch, "effects.changes@1")
    machine.await_death(epoch)
    machine.run(epoch)
    machine.settle(epoch)
    assert "Apache-Spark" in engines(machine, epoch, "outputs/moves")
    assert machine.prove({epoch: 1}) == 20_000


@pytest.mark.parametrize("kind", ["to-earliest", "from-savepoint-seq"])
@pytest.mark.soak
def test_a_replay_in_large_slices_killed_after_every_effect_ends_as_if_undisturbed(machine: Rig, kind: str) -> None:
    machine.config = replace(machine.config, **LARGE)
    cases: list[str] = []
    walk(machine, kind, cases.append)
