"""Each alert is provoked on a real driver; Prometheus evaluates the rules on what the driver answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from support.epochs import lab
from support.metrics import OWNER, MeasuredLab, Samples, value
from support.promtool import RULES, Case, Looks, assert_firing, promtool
from support.receivers import Receiver, receiver

from kappa import control
from kappa.driver.processes.targets import targets
from kappa.kafka.broker import Broker
from kappa.presence import heartbeat

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]

#: What Prometheus adds to the series of a target, beside its labels.
JOB = {"job": "kappa", "instance": "127.0.0.1:9464"}
UP = ("up", frozenset[tuple[str, str]]())


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver(503) as webhook:
        yield webhook


@pytest.fixture
def stream(
    tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession, hook: Receiver
) -> Iterator[MeasuredLab]:
    # Three seconds at one line are slow here.
    settings = {"metrics": "0", "heartbeat_seconds": 0.2, "slow_minutes": 0.05, "attempts": 2, "webhook_url": hook.url}
    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2), kind=MeasuredLab, **settings) as stream:
        stream.deploy(1)
        yield stream


class Provoked:
    """What was scraped for each alert, beside what was scraped before."""

    def __init__(self, stream: MeasuredLab) -> None:
        self.stream = stream
        self.looks: dict[str, tuple[int, Looks]] = {}

    def until(self, epoch: int, condition: Callable[[Samples], Any]) -> Samples:
        """Scrape until a condition holds."""
        samples: Samples = {}

        def holds() -> bool:
            nonlocal samples
            samples = {**self.stream.samples(epoch), UP: 1}
            return bool(condition(samples))

        self.stream.wait(holds, "the driver measures it")
        return samples


def labels(stream: MeasuredLab, epoch: int) -> dict[str, str]:
    """Those by which an alert is routed."""
    return {"topology": stream.name, "epoch": str(epoch), "owner": OWNER}


def poisoned(_: object) -> Any:
    raise ValueError("the disk is full")


def test_each_alert_fires_on_the_metrics_of_a_real_driver_and_not_before(
    stream: MeasuredLab, hook: Receiver, tmp_path: Path
) -> None:
    promtool()
    provoked = Provoked(stream)
    until, looks = provoked.until, provoked.looks
    stream.moves(0, [1, 2, 30])
    stream.moves(1, [1, 28])
    live = stream.start_live()
    driver, _, _ = stream.running[live]
    run = driver.engines.slice_run
    well, metrics = run.topology, driver.voice.exporter.metrics
    assert metrics is not None
    healthy = until(
        live,
        lambda now: value(now, "kappa_lag_records") == 0 and value(now, "kappa_driver_state", state="running") == 1,
    )

    # Records that do not parse, that come too late, and a partition that stays behind.
    stream.moves(0, [3, 8_000], b"no JSON")
    samples = until(  # a scrape may fall between two measures of a slice
        live,
        lambda now: (
            value(now, "kappa_records_total") == 8
            and value(now, "kappa_lag_records") == 0
            and (value(now, "kappa_event_time_skew_seconds", source=stream.topic) or 0) > 3600
        ),
    )
    looks["KappaDeadLetters"] = live, [(5, healthy), (5, samples)]
    looks["KappaLateRecords"] = live, [(5, healthy), (5, samples)]
    looks["KappaFrontierHeld"] = live, [(5, healthy), (20, samples)]

    # An append output that is not published; what is scraped then, and seven minutes later.
    published = driver.epoch.published("outputs/sums")
    publish, published.publish = published.publish, poisoned  # type: ignore[method-assign]
    stream.moves(0, [8_000])
    behind = ("kappa_published_behind_seconds", frozenset({("kind", "output"), ("name", "sums")}))
    samples = until(live, lambda now: now.get(behind, 0) > 0)
    looks["KappaPublishedBehind"] = live, [(5, healthy), (5, {**samples, behind: samples[behind] + 430})]
    published.publish = publish  # type: ignore[method-assign]
    until(live, lambda now: now.get(behind) == 0)

    # A broker that does not answer the exporter.
    broker = driver.voice.exporter._broker
    theirs, broker.made = broker.made, Broker("127.0.0.1:1", timeout_seconds=0.5)
    samples = until(live, lambda now: value(now, "kappa_lag_records") is None)
    looks["KappaLagUnknown"] = live, [(5, healthy), (10, samples)]
    broker.get().close()
    broker.made = theirs
    until(live, lambda now: value(now, "kappa_lag_records") == 0)

    # A step that takes long, while records arrive.
    go_on = threading.Event()

    def held(records: Any) -> Any:
        assert go_on.wait(300)
        return well.step(records)

    run.topology = replace(well, step=held)
    stream.moves(0, [8_001])
    samples = until(live, lambda now: value(now, "kappa_driver_state", state="slow") == 1)
    looks["KappaDriverSlow"] = live, [(5, healthy), (10, samples)]
    lags = [healthy]
    for count in (10_500, 10):
        before = value(lags[-1], "kappa_lag_records") or 0
        stream.moves(0, [8_002] * count)
        lags.append(until(live, lambda now, least=before + count: value(now, "kappa_lag_records") >= least))
    looks["KappaLagGrows"] = live, [(5, lags[0]), (5, lags[1]), (5, lags[2])]

    # A step that fails: twice, then so often that the epoch is stuck. Its measures fail too.
    run.topology = replace(well, step=poisoned)
    written, metrics.failed = metrics.failed, poisoned  # type: ignore[method-assign, assignment]
    go_on.set()
    stream.moves(1, [29])
    samples = until(live, lambda now: (value(now, "kappa_unmeasured_total") or 0) >= 1)
    looks["KappaUnmeasured"] = live, [(5, healthy), (5, samples)]
    metrics.failed = written  # type: ignore[method-assign]
    samples = until(live, lambda now: (value(now, "kappa_failures_in_a_row") or 0) >= 2)
    looks["KappaSliceFails"] = live, [(5, healthy), (5, samples)]
    samples = until(live, lambda now: value(now, "kappa_driver_state", state="stuck") == 1)
    looks["KappaDriverStuck"] = live, [(5, healthy), (5, samples)]
    stream.wait(lambda: hook.taken, "the notice is taken")
    (notice,) = hook.taken
    assert (notice["event"], notice["epoch"], notice["owner"]) == ("STUCK", live, OWNER)
    assert notice["message"].startswith(f"Stuck at slice {stream.ledger(live).state().seq}: the disk is full")
    assert "kappa set-aside" in notice["message"], "one record alone fails, and it is named"
    run.topology = well
    control.start(stream.config, stream.name, actor="ada", reason="mended")

    # A replay whose first slice does not end.
    stream.deploy(2)
    second = stream.plan_replay()
    candidate = stream.run(second)
    stands = threading.Event()
    candidate.engines.slice_run.topology = replace(candidate.epoch.topology, step=lambda records: stands.wait(300))
    stream.wait(lambda: heartbeat.read(stream.paths(second).heartbeat), "the candidate's driver beats")
    samples = until(second, lambda now: value(now, "kappa_replay_progress_ratio") == 0)
    looks["KappaReplayStands"] = second, [(5, samples), (40, samples)]
    stands.set()

    # A driver that does not answer, and none at all.
    endpoint = stream.endpoint(live)
    assert stream.stop(live) == []
    with pytest.raises(URLError, match="refused"):
        urlopen(endpoint, timeout=30)
    target = {"targets": [endpoint.split("/")[2]], "labels": labels(stream, live)}
    assert target in targets(stream.config)  # it is wanted, so Prometheus goes on to ask
    looks["KappaDriverGone"] = live, [(5, healthy), (5, {UP: 0})]
    looks["KappaNoDriver"] = live, [(5, healthy), (30, {})]

    assert set(looks) == {
        rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    }
    cases = [
        Case(
            alert=name,
            looks=series,
            labels={**JOB, **labels(stream, epoch)},
            routed={} if name == "KappaNoDriver" else labels(stream, epoch),
        )
        for name, (epoch, series) in looks.items()
    ]
    assert_firing(tmp_path, cases)
