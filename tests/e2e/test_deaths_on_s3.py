"""Drivers of a lake on S3 that die at every line, and commits whose PUT comes late or whose answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.deaths import ENDLESS
from support.kill_matrix import FILE_POINTS, LIVE_POINTS, walk
from support.processes import Rig, engines, rows
from support.s3_lake import COMMITS, entries, s3_rig
from support.s3_proxy import CUT, Proxy
from support.s3_server import S3Server

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1400)]

START_MS = 1_700_000_000_000
#: Who merges each slice, by the settings with which it does.
WRITERS: dict[str, dict[str, Any]] = {"delta-rs": {}, "Apache-Spark": {"small_slice": 0, "arrow_rows": 0}}
#: Where the driver of a replay dies: before it takes over, once it is live, and in merges and upkeep of either.
WALKS: dict[str, dict[str, Any]] = {
    "a candidate": {},
    "a live epoch": {"points": ("claim",), "live": LIVE_POINTS},
    "merges and upkeep": {"points": FILE_POINTS, "live": FILE_POINTS},
}


@pytest.fixture
def machine(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server, proxy: Proxy, settings: dict[str, Any]
) -> Iterator[Rig]:
    """A topology whose slices merge, on a bucket behind the proxy."""
    every = {"slice_records": 20, "merge_seconds": 0.0, "attempts": ENDLESS}
    with s3_rig(tmp_path, kafka, topic(partitions=2), s3, proxy, **every, **settings) as machine:
        yield machine


@pytest.mark.parametrize(
    ("walked", "settings"),
    [(name, {"maintain_minutes": 0.0} if name == "merges and upkeep" else {}) for name in WALKS],
    ids=WALKS,
)
def test_a_replay_on_s3_killed_after_every_effect_ends_as_if_undisturbed(
    machine: Rig, walked: str, case: Callable[[str, str], None]
) -> None:
    walk(machine, "to-earliest", lambda name: case("crash", f"{name} on S3"), **WALKS[walked])


@pytest.mark.parametrize(("writer", "settings"), WRITERS.items(), ids=WRITERS)
def test_a_commit_of_a_dead_driver_that_comes_late_is_refused(
    machine: Rig, proxy: Proxy, writer: str, case: Callable[[str, str], None]
) -> None:
    machine.produce(rows(12))
    epoch = machine.start_live()
    for number, (name, (table, nth)) in enumerate(COMMITS.items(), start=1):
        held = proxy.hold(entries(machine.paths(epoch).place(table)), nth=nth)
        machine.produce(rows(12, first=12 * number), start_ms=START_MS + 60_000 * number)
        held.await_arrival(seconds=60)
        machine.kill(epoch)
        machine.run(epoch)
        machine.settle(epoch)
        held.release()
        held.await_answer()
        assert held.answers == [412], name
        case("S3 fault", f"held {name} of {writer}")
    assert machine.prove({epoch: 1}) == 12 * (len(COMMITS) + 1)
    check_writers(machine, epoch, writer)


@pytest.mark.parametrize("status", [pytest.param(500, id="status 500"), pytest.param(CUT, id="cut")])
@pytest.mark.parametrize(("writer", "settings"), WRITERS.items(), ids=WRITERS)
def test_a_commit_whose_answer_is_lost_counts_once(
    machine: Rig, proxy: Proxy, writer: str, status: int | None, case: Callable[[str, str], None]
) -> None:
    machine.produce(rows(12))
    epoch = machine.start_live()
    driver = machine.beat(epoch).pid
    for number, (name, (table, nth)) in enumerate(COMMITS.items(), start=1):
        lost = proxy.lose_answer(entries(machine.paths(epoch).place(table)), status=status, nth=nth)
        machine.produce(rows(12, first=12 * number), start_ms=START_MS + 60_000 * number)
        machine.settle(epoch)
        assert lost.answers == [200], name
        case("S3 fault", f"lost answer to {name} of {writer}")
    assert machine.beat(epoch).pid == driver
    assert machine.prove({epoch: 1}) == 12 * (len(COMMITS) + 1)
    check_writers(machine, epoch, writer)


def check_writers(machine: Rig, epoch: int, writer: str) -> None:
    """Hold that a writer merges slices, and appends their rows too where it is Spark; otherwise Kappa does."""
    assert writer in engines(machine, epoch, "tables/balances")
    assert ("kappa" if writer == "delta-rs" else writer) in engines(machine, epoch, "outputs/moves")
