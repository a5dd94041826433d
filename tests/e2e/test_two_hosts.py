"""Two hosts that both believe that an epoch's driver is theirs: each has a network of its own, the lake is on S3."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.network_host import NetworkHost, network_host
from support.processes import Rig, rig, rows
from support.s3_lake import check_plain_readers
from support.s3_options import write_options
from support.s3_server import S3Server

from kappa import control
from kappa.kafka.broker import Broker

if TYPE_CHECKING:
    from conftest import RunningBroker, TopicFactory

    from kappa_local.kafka import KafkaProcess

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

#: So soon a driver that is not heard of counts as dead here.
STALE_SECONDS = 6.0


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server) -> Iterator[Rig]:
    """A topology on S3 whose drivers the hosts start."""
    file = write_options(s3, tmp_path / "lake.properties")
    settings = {"launcher": "elsewhere", "stale_seconds": STALE_SECONDS}
    places = {"lake": f"{s3.url}/lake", "lake_client_file": str(file)}
    with rig(tmp_path, kafka, topic(partitions=2), **places, **settings) as machine:
        yield machine


@pytest.fixture
def hosts(
    machine: Rig, tmp_path: Path, s3: S3Server, broker: KafkaProcess | RunningBroker
) -> Iterator[dict[str, NetworkHost]]:
    """The first host has the driver of a live epoch; the second one would start it if it were dead."""
    ports = {"store": port_of(s3.endpoint), "broker": port_of(broker.bootstrap_servers)}
    machine.produce(rows(12))
    epoch = control.start(machine.config, machine.name, actor="test", reason="on one of two hosts")
    with network_host("first", tmp_path / "first", machine.config, ports) as first:
        machine.await_live(epoch)
        machine.settle(epoch)
        with network_host("second", tmp_path / "second", machine.config, ports) as second:
            yield {"first": first, "second": second}


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def owner(machine: Rig) -> str:
    """Host of the last heartbeat."""
    return machine.beat(machine.record().live).host


@pytest.mark.parametrize("services", [("store",), ("store", "broker")], ids=" and ".join)
def test_a_driver_that_lost_the_store_is_replaced_and_ends_when_it_is_back(
    machine: Rig, hosts: dict[str, NetworkHost], s3: S3Server, services: Sequence[str], tmp_path: Path
) -> None:
    epoch = machine.record().live
    assert owner(machine) == "first"
    with machine.feeding(pause_seconds=0.05):
        machine.wait(lambda: machine.ledger(epoch).state().seq > 3, "the stream flows")
        with hosts["first"].without(*services):
            machine.wait(lambda: owner(machine) == "second", "the second host has the driver")
            since = machine.ledger(epoch).state().seq
            machine.wait(lambda: machine.ledger(epoch).state().seq > since + 3, "the stream flows there")
        log = tmp_path / "first" / "home" / "logs"
        machine.wait(lambda: "StaleWriterError" in text(log), "the first driver ends")
        since = machine.ledger(epoch).state().seq
        machine.wait(lambda: machine.ledger(epoch).state().seq > since + 3, "the stream flows")
        assert owner(machine) == "second"
    machine.settle(epoch)
    machine.prove({epoch: 1})
    check_plain_readers(machine, s3)


def test_a_driver_that_lost_the_broker_alone_keeps_its_epoch(
    machine: Rig, hosts: dict[str, NetworkHost], s3: S3Server
) -> None:
    epoch = machine.record().live
    first = machine.beat(epoch)
    with machine.feeding(pause_seconds=0.05):
        machine.wait(lambda: machine.ledger(epoch).state().seq > 3, "the stream flows")
        with hosts["first"].without("broker"):
            started = os.times().elapsed
            machine.wait(lambda: os.times().elapsed - started > 3 * STALE_SECONDS, "it would count as dead")
            assert owner(machine) == "first"
        since = machine.ledger(epoch).state().seq
        machine.wait(lambda: machine.ledger(epoch).state().seq > since + 3, "the stream flows again")
    machine.settle(epoch)
    last = machine.beat(epoch)
    assert (last.host, last.pid) == (first.host, first.pid)
    machine.prove({epoch: 1})
    check_plain_readers(machine, s3)


def text(folder: Path) -> str:
    """All logs of a folder."""
    return "".join(file.read_text() for file in folder.glob("*.log"))
