"""A live stream whose lake moves to S3 and back to a disk: real drivers, one of them frozen over the move."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.processes import Rig, is_running, rig, rows
from support.s3_options import write_options
from support.s3_server import S3Server

from kappa import control
from kappa.driver.processes.launcher import launch
from kappa.errors import LakeMovedError, RefusedError
from kappa.presence import liveness

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1400)]

START_MS = 1_700_000_000_000


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server) -> Iterator[Rig]:
    """A topology whose lake is on a disk; the options of a store on S3 are declared."""
    file = write_options(s3, tmp_path / "store.properties")
    places = {"lake": str(tmp_path / "first" / "lake"), "lake_client_file": str(file)}
    with rig(tmp_path, kafka, topic(partitions=2), merge_seconds=0.0, stale_seconds=5.0, **places) as machine:
        yield machine


def move(machine: Rig, target: str) -> None:
    """Move the lake as a user does; what the deep certificate says stays the same."""
    before = deep(machine)
    answer = machine.output_of("lake", "copy", target, "--execute")
    assert f"KAPPA_LAKE={target}" in answer
    with pytest.raises(LakeMovedError, match=target):
        control.start(machine.config, machine.name, actor="test", reason="by mistake")
    machine.config = replace(machine.config, lake=target)
    assert deep(machine) == before
    assert before["recount"]["problems"] == [] and before["certificate"]["complete"]


def deep(machine: Rig) -> dict[str, Any]:
    """The deep certificate, without the paths of the lake that it names."""
    output = machine.output_of("certify", machine.name, "--deep", "--json")
    values: dict[str, Any] = json.loads(output[output.index("{") :])  # after what it says while it reads
    return {name: values[name] for name in ("certificate", "recount")}


def feed(machine: Rig, epoch: int, first: int) -> None:
    """More records, which the epoch reads."""
    machine.produce(rows(12, first=first), start_ms=START_MS + 60_000 * first)
    machine.settle(epoch)


def test_a_stream_goes_on_in_a_bucket_and_on_a_disk_and_a_late_driver_repeats_nothing(
    machine: Rig, s3: S3Server, tmp_path: Path
) -> None:
    machine.produce(rows(12))
    epoch = machine.start_live()
    machine.output_of("savepoint", "create", machine.name, "sale", "--execute")
    bucket, disk = f"{s3.url}/stream", str(tmp_path / "second" / "lake")
    with pytest.raises(RefusedError, match=f"kappa stop {machine.name} --epoch {epoch} --execute"):
        machine.output_of("lake", "copy", bucket, "--execute")
    feed(machine, epoch, 12)
    machine.kill(epoch)
    machine.run(epoch, "plan:stop")
    machine.produce(rows(12, first=24), start_ms=START_MS + 60_000 * 24)
    frozen, old, ledger = machine.await_death(epoch), machine.config, machine.ledger(epoch)
    machine.wait(lambda: not liveness.look(machine.paths(epoch).heartbeat, 5.0).is_alive, "its heart counts as dead")
    move(machine, bucket)
    machine.run(epoch)
    feed(machine, epoch, 36)
    assert machine.prove({epoch: 1}) == 48
    os.kill(frozen, signal.SIGCONT)
    machine.wait(lambda: not is_running(frozen), "the frozen driver ends")
    claims = [row.n for row in ledger.rows() if row.kind == "claim"]  # the last one is the copy's
    late = launch(old, machine.name, epoch, machine.record().epoch(epoch).code, claims[-1])
    machine.wait(lambda: not is_running(late), "a driver that is started in the old lake ends")
    assert f"has moved to {bucket}" in machine.driver_log(epoch)
    feed(machine, epoch, 48)
    assert machine.prove({epoch: 1}) == 60
    machine.output_of("stop", machine.name, "--execute")
    move(machine, disk)
    assert "sale" in machine.output_of("savepoint", "list", machine.name)
    machine.output_of("start", machine.name, "--execute", "--detach")
    feed(machine, epoch, 60)
    assert machine.prove({epoch: 1}) == 72
