"""The lake's disk fills up under a stream and under a replay: nothing is lost, and it goes on when there is room."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes import Rig, rig, rows

from kappa import control
from kappa.presence import heartbeat
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MB, where the lake will be."""
    place = tmp_path / "rig" / "lake"
    place.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a disk that fills up takes root: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def machine(disk: Path, kafka: Broker, topic: TopicFactory) -> Iterator[Rig]:
    with rig(disk.parent, kafka, topic(partitions=2), slice_records=20, stale_seconds=4.0) as machine:
        yield machine


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Inside the context there is no room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as out, pytest.raises(OSError, match="No space left"):
        while True:
            out.write(b"\0" * (1 << 20))
    yield
    filler.unlink()


def await_wait(machine: Rig, epoch: int) -> int:
    """Wait until the status of an epoch's driver says that there is no room; the id of its process."""
    pid = machine.status(epoch).pid
    machine.wait(lambda: "no room on the disk" in machine.status(epoch).message, f"epoch {epoch} finds no room")
    # For longer than a heartbeat may be old: without one it would count as dead, and another would be started.
    first = machine.beat(epoch).monotonic
    machine.wait(
        lambda: machine.beat(epoch).monotonic - first > machine.config.stale_seconds, f"epoch {epoch} goes on beating"
    )
    status = machine.status(epoch)
    assert (status.state, status.pid) == ("running", pid)
    assert pid is not None
    return pid


def goes_on(machine: Rig, epoch: int, process: int) -> None:
    """It is the same process, which nobody started again; nothing is on record of it, or left in its folder."""
    beat = machine.beat(epoch)
    assert beat.pid == process and heartbeat.is_process(beat.pid, beat.started)
    assert not [event for event in machine.record().events if event.event == "stuck"]
    assert not list(Path(machine.paths(epoch).root).glob("*.tmp"))


def test_a_stream_whose_disk_is_full_goes_on_when_there_is_room(machine: Rig, disk: Path) -> None:
    machine.produce(rows(50))
    epoch = machine.start_live()
    with full(disk):
        machine.produce(rows(50, first=50), start_ms=1_700_000_060_000)
        process = await_wait(machine, epoch)
    machine.settle(epoch)
    goes_on(machine, epoch, process)
    assert machine.prove({epoch: 1}) == 100


def test_a_replay_whose_disk_is_full_goes_on_when_there_is_room(machine: Rig, disk: Path) -> None:
    machine.produce(rows(60))
    first = machine.start_live()
    machine.deploy(2)
    second = machine.plan_replay("plan@2:stop", slice_records=20)
    frozen = machine.await_death(second)
    with full(disk):
        os.kill(frozen, signal.SIGCONT)
        process = await_wait(machine, second)
    machine.await_stage(second, Stage.VERIFIED)
    goes_on(machine, second, process)
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    machine.await_live(second)
    machine.produce(rows(12, first=100), start_ms=1_700_000_900_000)
    machine.settle(second)
    machine.prove({first: 1, second: 2})
