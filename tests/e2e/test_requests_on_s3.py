"""Requests of a replay and of an archive, counted by a proxy: docs/cost.md has the numbers.

Those of small slices and of an idle epoch are counted in test_lake_on_s3.py, those of a merge and of readers without
drivers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes import rows
from support.s3_lake import S3Rig, excess, s3_rig
from support.s3_proxy import Proxy
from support.s3_server import S3Server

from kappa.kafka.broker import Broker
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

#: Settings of a user, without upkeep that would come at its own time.
SETTINGS = {"trigger_seconds": 1.0, "heartbeat_seconds": 0.0, "merge_seconds": 120.0, "maintain_minutes": 60.0}
RECORDS = 60_000


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server, proxy: Proxy) -> Iterator[S3Rig]:
    """A live epoch that has read all records, and whose driver has ended."""
    with s3_rig(tmp_path, kafka, topic(partitions=2), s3, proxy, **SETTINGS) as machine:
        machine.produce(rows(RECORDS))
        epoch = machine.start_live()
        machine.settle(epoch)
        machine.kill(epoch)
        yield machine


def archive(machine: S3Rig) -> None:
    """Archive what is there, in a process that reaches the store through the proxy."""
    environ = {**os.environ, **machine.config.to_env(), "KAPPA_LAKE_CLIENT_FILE": machine.proxied}
    command = [sys.executable, "-m", "kappa", "archive", "start", machine.topic, "--execute"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_replay_and_an_archive_make_no_more_requests_than_the_page_says(machine: S3Rig, proxy: Proxy) -> None:
    machine.deploy(2)
    since = len(proxy.requests)
    candidate = machine.plan_replay()
    machine.await_stage(candidate, Stage.VERIFIED)
    assert excess(proxy.counts(since), "a replay of 60,000 records") == {}
    machine.kill(candidate)

    since = len(proxy.requests)
    archive(machine)
    assert excess(proxy.counts(since), "a run of an archiver, 60,000 records") == {}
    machine.produce(rows(12))
    since = len(proxy.requests)
    archive(machine)
    assert excess(proxy.counts(since), "a run of an archiver, 12 records") == {}
