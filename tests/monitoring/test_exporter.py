"""Metrics of a driver's endpoint, none of which can stop a slice."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kappa import clock
from kappa.config import Config
from kappa.errors import BrokerUnreachableError
from kappa.monitoring.exporter import Exporter
from kappa.monitoring.metrics import LINES, STATES, Metrics
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record.ledger_rows import LedgerRow
from kappa.topology import Append, Source, Topology

TOPOLOGY = Topology(
    name="shop.sums",
    version="1",
    sources=[Source(topic="orders", schema="id STRING, at BIGINT", time="at", grace="5 seconds")],
    outputs=[Append(name="sums", schema="id STRING")],
    step=lambda slice: {},
)
AT = {"topology": "shop.sums", "epoch": "2"}


class Ticks:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def metrics(ticks: Ticks) -> Metrics:
    start, end = Offsets({"orders": {0: 10, 1: 0}}), Offsets({"orders": {0: 110, 1: 100}})
    return Metrics(TOPOLOGY, 2, bound={}, start=start, end=end, clock=ticks)


def commit(seq: int, ends: tuple[int, int], **values: Any) -> LedgerRow:
    ranges = tuple(OffsetRange(topic="orders", partition=p, start=0, end=end) for p, end in enumerate(ends))
    return LedgerRow(kind="commit", seq=seq, writer="me", at=clock.now(), ranges=ranges, **values)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {**AT, **labels})


def test_a_slice_is_counted_by_line_when_it_is_committed(metrics: Metrics, ticks: Ticks) -> None:
    for line, seconds in (
        ("plan", 0.5),
        ("effects of slice 3", 7),
        ("send of slice 3", 1),
        ("commit of slice 3", 0.25),
    ):
        metrics.begin(line)
        ticks.now += seconds
    assert value(metrics, "kappa_slice_seconds_count", line="effects") == 0
    metrics.committed(commit(3, (60, 50), rows_read=90, rows_dead=2, rows_late=1, sends="live"), 8.75)
    sums = {line: value(metrics, "kappa_slice_seconds_sum", line=line) for line in LINES}
    assert sums == {"plan": 0.5, "effects": 7, "send": 1, "apply": 0, "commit": 0.25}
    assert value(metrics, "kappa_slice_duration_seconds_sum") == 8.75
    counts = [value(metrics, f"kappa_{name}_total") for name in ("records", "dead_letters", "late_records")]
    assert counts == [90, 2, 1]
    assert [value(metrics, f"kappa_{name}") for name in ("committed_seq", "is_live", "replay_progress_ratio")] == [
        3,
        1,
        0.5,
    ]


def test_every_series_names_the_owner_where_there_is_one(metrics: Metrics) -> None:
    def owners(one: Metrics) -> set[str | None]:
        return {sample.labels.get("owner") for family in one.registry.collect() for sample in family.samples}

    start = Offsets({"orders": {0: 10}})
    owned = Metrics(replace(TOPOLOGY, owner="team-a"), 2, bound={}, start=start, end=start)
    assert (owners(owned), owners(metrics)) == ({"team-a"}, {None})


def test_the_time_of_a_failed_slice_is_not_counted(metrics: Metrics, ticks: Ticks) -> None:
    metrics.begin("plan")
    ticks.now += 100
    metrics.failed("failure", 1)
    metrics.begin("effects of slice 3")  # it is finished by its plan, which is there
    ticks.now += 2
    metrics.committed(commit(3, (60, 50)), 2)
    sums = [value(metrics, f"kappa_slice_seconds_{name}", line="plan") for name in ("count", "sum")]
    assert sums == [0, 0] and value(metrics, "kappa_slice_seconds_sum", line="effects") == 2
    assert (value(metrics, "kappa_failures_total", kind="failure"), value(metrics, "kappa_failures_in_a_row")) == (1, 0)


def test_time_between_slices_belongs_to_no_line(metrics: Metrics, ticks: Ticks) -> None:
    metrics.begin("replacement 4")
    ticks.now += 10
    metrics.begin("commit of slice 4")
    ticks.now += 1
    metrics.committed(commit(4, (60, 50)), 11)
    assert {value(metrics, "kappa_slice_seconds_sum", line=line) for line in LINES} == {0, 1}


def test_metrics_of_commits_have_no_value_before_the_first(metrics: Metrics) -> None:
    metrics.started(None, is_live=False)
    names = ("kappa_committed_seq", "kappa_replay_progress_ratio", "kappa_lag_records")
    assert [value(metrics, name) for name in names] == [None, None, None]
    metrics.started(commit(7, (110, 100)), is_live=True)
    assert [value(metrics, name) for name in names] == [7, 1, None]


def test_the_frontier_is_that_of_the_slowest_partition_less_the_grace(metrics: Metrics) -> None:
    metrics.committed(commit(1, (11, 0), stream_times={"orders": {0: 100_000}}), 1)
    assert value(metrics, "kappa_frontier_timestamp_seconds", source="orders") is None
    assert value(metrics, "kappa_event_time_skew_seconds", source="orders") == math.inf
    metrics.committed(commit(2, (12, 1), stream_times={"orders": {0: 100_000, 1: 40_000}}), 1)
    assert value(metrics, "kappa_frontier_timestamp_seconds", source="orders") == 35
    assert value(metrics, "kappa_stream_time_seconds", source="orders") == 100
    assert value(metrics, "kappa_event_time_skew_seconds", source="orders") == 60


def test_a_longer_grace_takes_no_frontier_back() -> None:
    start = Offsets({"orders": {0: 10, 1: 0}})
    floors = {"orders": {0: {0: 99_000}, 1: {0: 39_000}}}
    longer = Metrics(TOPOLOGY, 2, bound={}, start=start, end=start, floors=lambda: floors)
    longer.committed(commit(2, (12, 1), stream_times={"orders": {0: 100_000, 1: 40_000}}), 1)
    assert value(longer, "kappa_frontier_timestamp_seconds", source="orders") == 39


class Truncated:
    """A broker whose log ends before what was read."""

    def __init__(self, *_: Any) -> None:
        pass

    def stable_offsets(self, topics: Any) -> Offsets:
        return Offsets({"orders": {0: 5, 1: 5}})

    def close(self) -> None:
        pass


def test_the_lag_of_another_log_has_no_series(
    config: Config, opened: Open, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.monitoring.exporter.Broker", Truncated)
    metrics.committed(commit(3, (60, 50)), 1)
    metrics.lag(0)
    opened(config)
    while value(metrics, "kappa_lag_records") is not None:
        pass
    assert value(metrics, "kappa_unmeasured_total") == 0


def test_an_unknown_lag_has_no_series(metrics: Metrics) -> None:
    metrics.lag(5)
    assert value(metrics, "kappa_lag_records") == 5
    metrics.lag(None)
    assert value(metrics, "kappa_lag_records") is None


def behind(metrics: Metrics, kind: str) -> float | None:
    """How far published table ``sums`` is behind."""
    labels = {**AT, "kind": kind, "name": "sums"}
    return metrics.registry.get_sample_value("kappa_published_behind_seconds", labels)


def test_a_published_table_that_lacks_a_commit_is_ever_further_behind(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = clock.now()
    metrics.published("output", "sums", None)
    assert behind(metrics, "output") == 0
    metrics.published("output", "sums", begin)
    for seconds in (30, 60):
        monkeypatch.setattr(clock, "now", lambda seconds=seconds: begin + timedelta(seconds=seconds))
        assert behind(metrics, "output") == seconds
    monkeypatch.setattr(clock, "now", lambda: begin - timedelta(hours=1))
    assert math.isnan(behind(metrics, "output") or 0.0), "by a clock that was set back it is not known"
    metrics.unpublished()
    assert behind(metrics, "output") is None


def test_a_place_is_measured_by_its_kind_and_not_at_all_without_an_endpoint(config: Config, opened: Open) -> None:
    exporter = opened(config)
    exporter.published("tables/sums", lambda: None)
    assert (behind(opened.metrics, "table"), behind(opened.metrics, "output")) == (0, None)
    exporter.unpublished()
    assert behind(opened.metrics, "table") is None
    Exporter(replace(config, metrics=""), exporter._paths).published("tables/sums", lambda: pytest.fail("a look"))


def test_the_number_of_series_does_not_grow_with_the_stream(metrics: Metrics) -> None:
    def slices(first: int) -> int:
        for seq in range(first, first + 50):
            for line in ("plan", "effects", "send", "apply", "commit"):
                metrics.begin(f"{line} of slice {seq}")
            metrics.committed(commit(seq, (60, 50), stream_times={"orders": dict.fromkeys(range(seq), seq)}), 1)
            metrics.failed("failure", seq)
            metrics.written("output", "sums", seq)
            metrics.lag(seq)
        return sum(len(family.samples) for family in metrics.registry.collect())

    assert slices(1) == slices(1000)


# The endpoint


@pytest.fixture
def config(tmp_path: Path) -> Config:
    # Nothing listens there: port 1 is reserved.
    return replace(
        Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}), metrics="0"
    )


class Open:
    """Opens exporters and closes them."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.state = "running"
        self.opened: list[Exporter] = []

    def __call__(self, config: Config, metrics: Any = None) -> Exporter:
        exporter = Exporter(config, EpochPaths(lake=config.lake, topology="shop.sums", epoch=2))
        self.opened.append(exporter)
        exporter.open(metrics or (lambda: self.metrics), lambda: self.state, None, is_live=False)
        return exporter


@pytest.fixture
def opened(metrics: Metrics) -> Iterator[Open]:
    opener = Open(metrics)
    yield opener
    for exporter in opener.opened:
        exporter.close()


def shown(exporter: Exporter) -> dict[tuple[str, str], float]:
    """Samples of an endpoint by name and the last of their own labels."""
    with urlopen(f"http://{exporter.address}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {(s.name, s.labels.get("state", "")): s.value for family in families for s in family.samples}


def test_the_endpoint_answers_with_the_current_state_until_it_is_closed(config: Config, opened: Open) -> None:
    exporter = opened(config)
    host, _, port = exporter.address.rpartition(":")
    assert host == "127.0.0.1"
    assert [shown(exporter)["kappa_driver_state", state] for state in STATES] == [1, 0, 0, 0]
    opened.state = "stuck"
    assert [shown(exporter)["kappa_driver_state", state] for state in STATES] == [0, 0, 1, 0]
    exporter.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10)


def test_without_the_setting_nothing_listens_and_nothing_is_measured(config: Config, opened: Open) -> None:
    exporter = opened(replace(config, metrics=""))
    exporter.begin("plan")
    exporter.committed(commit(1, (11, 1)), 1.0)
    assert (exporter.address, exporter.metrics) == ("", None)


def test_two_drivers_configured_with_one_port_get_two(config: Config, opened: Open) -> None:
    first = opened(config)
    port = int(first.address.rpartition(":")[2])
    second = opened(replace(config, metrics=str(port)))
    assert second.address and second.address != first.address
    assert ("kappa_driver_state", "running") in shown(second)


def test_an_endpoint_on_every_interface_is_named_by_its_host(config: Config, opened: Open) -> None:
    exporter = opened(replace(config, metrics="0.0.0.0:0"))
    assert exporter.address.rpartition(":")[0] == socket.gethostname()


@pytest.mark.parametrize("address", ["256.0.0.1", "no host"])
def test_a_driver_runs_even_if_its_endpoint_cannot_be_opened(config: Config, opened: Open, address: str) -> None:
    exporter = opened(replace(config, metrics=f"{address}:0"))
    exporter.begin("plan")
    assert exporter.address == ""


def test_a_failed_measure_is_counted_and_does_not_propagate(
    config: Config, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = opened(config)

    def broken(*_: object) -> None:
        raise ValueError("no measure")

    for name in ("begin", "committed", "failed"):
        monkeypatch.setattr(opened.metrics, name, broken)
    exporter.begin("plan")
    exporter.committed(commit(1, (11, 1)), 1.0)
    exporter.failed(ValueError("x"), 1)
    assert shown(exporter)["kappa_unmeasured_total", ""] == 3


def test_transient_errors_are_counted_separately(config: Config, opened: Open) -> None:
    exporter = opened(config)
    exporter.failed(BrokerUnreachableError("gone"), 0)
    exporter.failed(ValueError("wrong"), 1)
    counts = {kind: value(opened.metrics, "kappa_failures_total", kind=kind) for kind in ("wait", "failure")}
    assert counts == {"wait": 1, "failure": 1}
    assert value(opened.metrics, "kappa_failures_in_a_row") == 1


def test_measuring_a_slice_costs_next_to_nothing(config: Config, opened: Open) -> None:
    exporter = opened(config)
    row = commit(1, (60, 50), rows_read=5, stream_times={"orders": {0: 1, 1: 2}})
    slices = 200
    start = time.thread_time()
    for _ in range(slices):
        for line in ("plan", "effects of slice 1", "send of slice 1", "apply of slice 1", "commit of slice 1"):
            exporter.begin(line)
        exporter.committed(row, 1.0)
    seconds = (time.thread_time() - start) / slices
    print(f"{seconds * 1e6:.0f} microseconds a slice")
    assert seconds < 0.005  # of a core, 0.0002 where it was measured
