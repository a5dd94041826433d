"""A topology whose lake is on S3, behind a proxy: one stream of real drivers, which each test goes on with.

Drivers have the settings of a user. What comes out is checked by plain Python, a plain consumer and a plain reader of
Delta.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.processes import Rig, engines, rows
from support.s3_lake import IDLE, await_puts, check_plain_readers, entries, excess, keys, s3_rig
from support.s3_proxy import Proxy, s3_proxy
from support.s3_server import S3Server, create_bucket

from kappa import control
from kappa.kafka.broker import Broker
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import RunningBroker

    from kappa_local.kafka import KafkaProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

START_MS = 1_700_000_000_000
#: Of this process alone: a rig ends all drivers of its topology on this host, whose name follows from the topic.
TOPIC = f"on.s3.{os.getpid()}"
#: Settings of a user, without merges and upkeep that would come at their own time; Spark writes what is large.
SETTINGS = {
    "trigger_seconds": 1.0,
    "heartbeat_seconds": 0.0,
    "merge_seconds": 3_600.0,
    "maintain_minutes": 60.0,
    "arrow_rows": 20_000,
}
LARGE, SLICES, BEATS, OUTAGE_SECONDS = 60_000, 10, 5, 20.0


@pytest.fixture(scope="module")
def s3(s3_process: S3Server) -> S3Server:
    """A bucket of these tests."""
    return create_bucket(s3_process, "stream")


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[Proxy]:
    """A proxy in front of it, for drivers."""
    with s3_proxy(s3) as listening:
        yield listening


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory, broker: KafkaProcess | RunningBroker, s3: S3Server, proxy: Proxy
) -> Iterator[Rig]:
    """The topology, version 1 deployed."""
    with Broker(broker.bootstrap_servers) as kafka:
        kafka.create_topic(TOPIC, 2, {"retention.ms": "-1"}, exists_ok=False)
        with s3_rig(tmp_path_factory.mktemp("on-s3"), kafka, TOPIC, s3, proxy, **SETTINGS) as machine:
            yield machine
        kafka.delete_topics([TOPIC])


def live(machine: Rig) -> int:
    """The live epoch, which the first test starts."""
    if not machine.started:
        machine.produce(rows(12))
        machine.start_live()
    return int(machine.record().live)


def test_a_driver_killed_before_its_commit_repeats_nothing_and_the_next_one_writes_large_slices(
    machine: Rig, s3: S3Server
) -> None:
    machine.produce(rows(12))
    epoch = machine.start_live("send@2")
    machine.produce(rows(12, first=12), start_ms=START_MS + 60_000)
    machine.await_death(epoch)
    machine.produce(rows(LARGE, first=24), start_ms=START_MS + 120_000)
    machine.run(epoch)
    machine.settle(epoch)
    assert max(row.rows_read for row in machine.ledger(epoch).state().commits) > machine.config.small_slice
    assert "Apache-Spark" in engines(machine, epoch, "outputs/moves")
    assert machine.prove({epoch: 1}) == LARGE + 24
    check_plain_readers(machine, s3)


def test_an_idle_epoch_and_small_slices_make_no_more_requests_than_measured(machine: Rig, proxy: Proxy) -> None:
    epoch = live(machine)
    # Once a minute the driver may open a log anew: at least one of three windows has no such look.
    windows = (idle(machine, proxy) for _ in range(3))
    quiet = next((window for window in windows if not window["LIST"]), None)
    assert quiet is not None, "the driver lists objects all the time"
    assert excess(quiet, "a second without records") == {}
    since, ledger = len(proxy.requests), entries(machine.paths(epoch).ledger)
    for number in range(1, SLICES + 1):
        machine.produce([("account-1", number)], start_ms=START_MS + 600_000 + 1_000 * number)
        await_puts(machine, proxy, ledger, 3 * number, since)
    counts = {kind: count / SLICES for kind, count in proxy.counts(since).items()}
    assert excess(counts, "a small slice") == {}
    machine.settle(epoch)


def idle(machine: Rig, proxy: Proxy) -> dict[str, float]:
    """Requests of each kind in a second, from one heartbeat to the fifth after it."""
    await_puts(machine, proxy, r"/heartbeat\.json$", 1, len(proxy.requests))
    since, started = len(proxy.requests), time.monotonic()
    await_puts(machine, proxy, r"/heartbeat\.json$", BEATS, since)
    seconds = time.monotonic() - started
    return {kind: proxy.counts(since)[kind] / seconds for kind in IDLE}


def test_a_store_that_answers_503_in_a_live_stream_is_waited_for(machine: Rig, s3: S3Server, proxy: Proxy) -> None:
    epoch = live(machine)
    driver = machine.beat(epoch).pid
    with machine.feeding():
        before = machine.ledger(epoch).state().seq
        machine.wait(lambda: machine.ledger(epoch).state().seq > before, "the stream flows")
        refused = proxy.refuse()
        start = time.monotonic()
        machine.wait(
            lambda: "lake unreachable" in machine.driver_log(epoch) and time.monotonic() - start > OUTAGE_SECONDS,
            "the driver waits for the store",
        )
        refused.release()
    machine.settle(epoch)
    assert machine.beat(epoch).pid == driver
    assert machine.prove({epoch: 1}) > 500
    check_plain_readers(machine, s3)


def test_a_replay_is_moved_over_certified_rolled_back_and_removed_without_a_trace(machine: Rig, s3: S3Server) -> None:
    first = live(machine)
    machine.deploy(2)
    second = machine.plan_replay()
    machine.await_stage(second, Stage.VERIFIED)
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    machine.await_live(second)
    machine.produce(rows(12), start_ms=START_MS + 3_000_000)
    machine.settle(second)
    machine.prove({first: 1, second: 2})
    check_plain_readers(machine, s3)
    certificate = machine.output_of("certify", machine.name, "--deep")
    assert "complete: each offset was sent by exactly one epoch" in certificate
    assert f"Epoch {second} is as its ledger says." in certificate

    control.rollback(machine.config, machine.name, actor="test", reason="test")
    machine.await_stage(first, Stage.CAUGHT_UP)
    control.cut_over(machine.config, machine.name, first, actor="test", reason="test")
    machine.await_live(first)
    machine.produce(rows(12), start_ms=START_MS + 3_060_000)
    machine.settle(first)
    machine.prove({first: 1, second: 2})

    assert keys(machine, s3, second)
    control.retire(machine.config, machine.name, second, actor="test", reason="test")
    assert keys(machine, s3, second) == []
    machine.produce(rows(12), start_ms=START_MS + 3_120_000)
    machine.settle(first)
    check_plain_readers(machine, s3)
