"""How long a small live slice takes on S3, beside one on a disk: two topologies in one run, slice by slice in turn."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest
from support.processes import Rig, rig, rows
from support.s3_lake import s3_rig
from support.s3_proxy import Proxy
from support.s3_server import S3Server

from kappa.kafka.broker import Broker
from kappa.record.ledger import Ledger

if TYPE_CHECKING:
    from conftest import RunningBroker

    from kappa_local.kafka import KafkaProcess

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.timeout(600)]

WARM_UP, COUNTED = 5, 15
#: How long each request to the store waits: a store in the same region takes 10 to 30 ms for a small object.
DELAY_MS = 30.0
#: Without merges and upkeep, which would come at their own time.
SETTINGS = {"merge_seconds": 3_600.0, "maintain_minutes": 60.0, "heartbeat_seconds": 0.0}
START_MS = 1_700_000_000_000
MOST_SECONDS = 0.5


def test_a_small_slice_on_s3_is_at_most_half_a_second_longer_than_on_a_disk(
    tmp_path: Path, broker: KafkaProcess | RunningBroker, s3: S3Server, proxy: Proxy
) -> None:
    topics = {place: f"latency.{place}.{os.getpid()}" for place in ("disk", "s3")}
    with Broker(broker.bootstrap_servers) as kafka:
        for topic in topics.values():
            kafka.create_topic(topic, 2, {"retention.ms": "-1"}, exists_ok=False)
        with (
            rig(tmp_path / "disk", kafka, topics["disk"], **SETTINGS) as disk,
            s3_rig(tmp_path, kafka, topics["s3"], s3, proxy, **SETTINGS) as remote,
        ):
            seconds = measured({"disk": disk, "s3": remote}, proxy)
        kafka.delete_topics(list(topics.values()))
    assert seconds["s3"] - seconds["disk"] <= MOST_SECONDS


def measured(machines: dict[str, Rig], proxy: Proxy) -> dict[str, float]:
    """Median seconds from plan to commit of slices of one record; printed, with the shares of the lines."""
    epochs = {}
    for place, machine in machines.items():
        machine.produce(rows(12))
        epochs[place] = machine.start_live()
        machine.settle(epochs[place])
    proxy.delay_ms = DELAY_MS
    for number in range(WARM_UP + COUNTED):
        for place, machine in machines.items():
            machine.produce([("account-1", number)], start_ms=START_MS + 60_000 + 1_000 * number)
            machine.settle(epochs[place])
    proxy.delay_ms = 0.0
    medians = {}
    for place, machine in machines.items():
        commits = Ledger(machine.paths(epochs[place]).ledger).state().commits[-COUNTED:]
        assert [commit.rows_read for commit in commits] == [1] * COUNTED
        seconds = [(row.at - datetime.fromisoformat(row.detail["started_at"])).total_seconds() for row in commits]
        lines = {line: median(row.detail["seconds"][line] for row in commits) for line in commits[-1].detail["seconds"]}
        medians[place] = median(seconds)
        print(json.dumps({"place": place, "p50": round(medians[place], 3), "most": round(max(seconds), 3), **lines}))
    return medians
