"""A store on S3 that refuses or cuts all requests for five minutes: ``kappa drivers`` brings every epoch through it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes import rows
from support.programs import program
from support.s3_lake import S3Rig, check_plain_readers, entries, s3_rig
from support.s3_proxy import CUT, Proxy
from support.s3_server import S3Server

from kappa import control
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1400)]

SECONDS = 300.0
RECORD = r"^lake/_kappa/epochs/_delta_log/\d+\.json$"


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server, proxy: Proxy) -> Iterator[S3Rig]:
    """A topology on S3 whose drivers a host starts."""
    settings = {"launcher": "elsewhere", "slice_records": 20}
    with s3_rig(tmp_path, kafka, topic(partitions=2), s3, proxy, **settings) as machine:
        environ = {**os.environ, **machine.config.to_env(), "KAPPA_LAKE_CLIENT_FILE": machine.proxied}
        with program([sys.executable, "-m", "kappa", "drivers"], tmp_path / "drivers.log", environ):
            yield machine


def first_claim(machine: S3Rig) -> tuple[str, Callable[[], object]]:
    """A driver is claiming its epoch; the entry that it writes, and what brings it there."""
    epoch = control.start(machine.config, machine.name, actor="test", reason="before an outage")
    return entries(machine.paths(epoch).ledger), lambda: None


def commit_of_live_and_candidate(machine: S3Rig) -> tuple[str, Callable[[], object]]:
    """The live epoch is committing a slice, and a candidate replays."""
    epoch = started(machine)
    machine.produce(rows(400, first=12), start_ms=1_700_000_060_000)
    machine.settle(epoch)
    machine.deploy(2)
    candidate = machine.plan_replay()
    machine.wait(lambda: machine.ledger(candidate).state().seq > 2, "the candidate replays")
    return entries(machine.paths(epoch).ledger), lambda: machine.produce(
        rows(12, first=500), start_ms=1_700_000_900_000
    )


def move_of_readers(machine: S3Rig) -> tuple[str, Callable[[], object]]:
    """The driver of a verified candidate is moving the pointer."""
    started(machine)
    machine.deploy(2)
    candidate = machine.plan_replay()
    machine.await_stage(candidate, Stage.VERIFIED)
    return RECORD, lambda: control.cut_over(machine.config, machine.name, candidate, actor="test", reason="test")


def started(machine: S3Rig) -> int:
    """A live epoch."""
    machine.produce(rows(12))
    epoch = control.start(machine.config, machine.name, actor="test", reason="before an outage")
    machine.await_live(epoch)
    machine.settle(epoch)
    return epoch


@pytest.mark.parametrize(
    ("arrive", "status"),
    [(first_claim, 503), (commit_of_live_and_candidate, CUT), (move_of_readers, 503)],
    ids=["claim, 503", "commit, cut", "move, 503"],
)
def test_five_minutes_without_a_store_are_survived_at_any_point(
    machine: S3Rig,
    s3: S3Server,
    proxy: Proxy,
    arrive: Callable[[S3Rig], tuple[str, Callable[[], object]]],
    status: int | None,
    case: Callable[[str, str], None],
) -> None:
    key, go_on = arrive(machine)
    held = proxy.hold(key)
    go_on()
    held.await_arrival(seconds=120)
    refused = proxy.refuse(status=status)
    held.release()
    time.sleep(SECONDS)
    refused.release()
    case("S3 fault", f"five minutes without a store: {arrive.__name__}")
    machine.wait(lambda: machine.record().live is not None, "an epoch is live")
    if (candidate := machine.record().candidate) is not None:
        machine.await_stage(candidate.epoch, Stage.VERIFIED)
        control.cut_over(machine.config, machine.name, candidate.epoch, actor="test", reason="test")
        machine.await_live(candidate.epoch)
    live = int(machine.record().live)
    machine.produce(rows(12, first=1_000), start_ms=1_700_009_000_000)
    machine.settle(live)
    machine.prove({epoch: epoch for epoch in range(1, live + 1)})
    check_plain_readers(machine, s3)
