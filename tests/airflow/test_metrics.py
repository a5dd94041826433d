"""What a trigger exports through Airflow's metrics, received by a real OpenTelemetry collector's protocol."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from support.live_lake import NAME, live_lake

from kappa.config import Config
from kappa.control import DriverStatus
from kappa_airflow import metrics
from kappa_airflow.metrics import Measures

TESTS = Path(__file__).parents[1]
#: In a process of its own, since the exporter belongs to the process: a look, two slices, another look.
SCRIPT = f"""
from datetime import datetime, UTC, timedelta
from support.live_lake import further_slices
from kappa.config import Config
from kappa_airflow import metrics
from kappa_airflow.patience import Patience
from kappa_airflow.triggers import StreamTrigger

metrics.EVERY = timedelta(0)
config = Config.from_env()
until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
trigger = StreamTrigger(topology="{NAME}", epoch=1, until=until)
trigger.look(config, Patience())
further_slices(config, 2)
trigger.look(config, Patience())
"""


class Collector:
    """An OTLP collector on loopback: data points by name, with their tags."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[dict[str, str], Any]]] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request: Any) -> None:
        """Keep what a request says; what came before is replaced."""
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    points = getattr(metric, kind).data_points
                    self.found[metric.name] = [
                        ({item.key: item.value.string_value for item in point.attributes}, _value(kind, point))
                        for point in points
                    ]


def _value(kind: str, point: Any) -> Any:
    return point.count if "histogram" in kind.lower() else point.as_int or point.as_double


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_collector_gets_what_a_stream_did_since_the_trigger_looked_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    config = live_lake(tmp_path / "home", monkeypatch)
    environment = {
        **os.environ,
        **config.to_env(),
        "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1",  # nothing listens there: no lag is told
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "AIRFLOW__METRICS__OTEL_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__OTEL_PORT": str(collector.server.server_port),
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", str(TESTS.parent / "include"))]),
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    tags = {"topology": NAME, "epoch": "1"}
    found = {name.removeprefix("airflow.kappa."): points for name, points in collector.found.items()}
    assert found["committed_seq"] == [(tags, 4)]
    assert found["records"] == [(tags, 6)]
    assert found["slice"] == [(tags, 2)]
    assert found["driver_up"] == [(tags, 0)]  # no driver has beaten in this lake
    assert "lag" not in found and {"dead_letters", "late_records"} <= set(found)


def test_names_have_topology_and_epoch_where_the_backend_drops_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Measures("retail.loyalty", 7)
    assert one._named("lag") == {"stat": "kappa.lag", "tags": {"topology": "retail.loyalty", "epoch": "7"}}
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    assert one._named("lag") == {"stat": "kappa.retail__loyalty.e0007.lag"}
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")
    assert "tags" in one._named("lag")


def test_an_error_of_the_metrics_ends_no_trigger_and_nothing_is_looked_at_while_they_are_off(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def broken(*_: object) -> None:
        looks.append(1)
        raise ValueError("no metrics")

    monkeypatch.setattr(Measures, "_emit", broken)
    driver = DriverStatus(topology="demo.watched", epoch=1, state="running")
    one = Measures("demo.watched", 1)
    one.emit(config, driver)
    assert looks == []
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    monkeypatch.setattr(metrics, "_initialize", lambda: None)
    one.emit(config, driver)
    one.emit(config, driver)  # a moment later
    assert looks == [1]
