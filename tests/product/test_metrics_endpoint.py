"""The endpoint of a driver on a real broker agrees with its ledger and its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from support.epochs import lab
from support.metrics import BEGIN, OWNER, MeasuredLab, value

from kappa.delta import queries

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def stream(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[MeasuredLab]:
    settings = {"metrics": "0", "heartbeat_seconds": 0.5}
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=MeasuredLab, **settings) as stream:
        stream.deploy(1)
        yield stream


def test_the_endpoint_of_a_live_driver_agrees_with_its_ledger(stream: MeasuredLab) -> None:
    stream.moves(0, [1, 2, 30], b"no JSON")
    stream.moves(1, [1, 28])
    live = stream.start_live()
    stream.moves(0, [3, 40])  # the first of them is late: its window ended before 30 - 5
    stream.settle(live)
    paths, commits = stream.paths(live), list(stream.ledger(live).state().commits)
    slices = commits[1:]
    rows = {name: queries.query(paths.output(name), None).num_rows for name in ("sums", "late_records")}
    changes = queries.query(paths.changes("open_windows"), None).num_rows

    def counts() -> list[float | None]:
        now = stream.samples(live)
        written = [value(now, "kappa_rows_total", kind="output", name=name) for name in rows]
        return [*written, value(now, "kappa_rows_total", kind="table", name="open_windows")]

    stream.wait(lambda: counts() == [*rows.values(), changes], "rows are counted")
    samples = stream.samples(live)
    counted = {name: value(samples, f"kappa_{name}_total") for name in ("records", "dead_letters", "late_records")}
    assert counted == {"records": 8, "dead_letters": 1, "late_records": 1}
    assert counted["records"] == sum(row.rows_read for row in slices)
    assert value(samples, "kappa_committed_seq") == commits[-1].seq == len(slices)
    assert value(samples, "kappa_committed_timestamp_seconds") == pytest.approx(commits[-1].at.timestamp())
    assert (value(samples, "kappa_is_live"), value(samples, "kappa_driver_state", state="running")) == (1, 1)
    assert value(samples, "kappa_frontier_timestamp_seconds", source=stream.topic) == BEGIN / 1000 + 28 - 5
    assert value(samples, "kappa_stream_time_seconds", source=stream.topic) == BEGIN / 1000 + 40
    assert rows == {"sums": 1, "late_records": 1} and changes > 0
    for line in ("plan", "effects", "send", "apply", "commit"):
        assert value(samples, "kappa_slice_seconds_count", line=line) == len(slices), line
        assert value(samples, "kappa_slice_seconds_sum", line=line) > 0, line
    lines = sum(n for (name, _), n in samples.items() if name == "kappa_slice_seconds_sum")
    assert lines == pytest.approx(value(samples, "kappa_slice_duration_seconds_sum"), rel=0.1)
    stream.wait(lambda: value(stream.samples(live), "kappa_lag_records") == 0, "the lag is looked at")

    (status,) = json.loads(stream.output_of("status", "--json"))
    (shown,) = status["epochs"]
    assert status["owner"] == shown["driver"]["owner"] == OWNER
    endpoint = stream.endpoint(live)
    assert endpoint == f"http://{shown['driver']['metrics']}/metrics"
    assert endpoint in stream.output_of("metrics")

    assert stream.stop(live) == []
    with pytest.raises(URLError, match="refused"):
        urlopen(endpoint, timeout=30)
