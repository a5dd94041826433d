"""A Prometheus server with the shipped settings finds a driver by its heartbeat, scrapes it, and sees it go."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from support.environments import ROOT
from support.live_lake import NAME, live_lake
from support.promtool import RULES, promtool

from kappa.config import Config
from kappa.driver.processes.targets import write_targets
from kappa.monitoring.exporter import Exporter
from kappa.monitoring.metrics import Metrics
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record.ledger import Ledger
from kappa.topology import registry
from kappa_local.kafka import free_port


class Server:
    """A Prometheus server on loopback."""

    def __init__(self, folder: Path, targets: Path) -> None:
        settings = yaml.safe_load((ROOT / "docker" / "prometheus" / "prometheus.yaml").read_text())
        (job,) = settings["scrape_configs"]
        settings["rule_files"] = [str(RULES)]
        job["file_sd_configs"][0]["files"] = [str(targets)]
        settings["global"]["scrape_interval"] = "1s"
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            [
                Path(promtool()).with_name("prometheus"),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=(folder / "log").open("wb"),
        )

    def value(self, query: str) -> float | None:
        """The value of a query now; None where it has none, or the server does not answer yet."""
        try:
            with urlopen(f"{self.url}/api/v1/query?{urlencode({'query': query})}", timeout=30) as answer:
                series: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
        except URLError:
            return None
        assert len(series) <= 1, series
        return float(series[0]["value"][1]) if series else None

    def wait(self, query: str, expected: float) -> None:
        """Wait until a query has a value."""
        deadline = time.monotonic() + 120
        while (actual := self.value(query)) != expected:
            assert self.process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, f"{query} is {actual}"
            time.sleep(0.1)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    # Nothing listens there: no lag is known.
    return replace(live_lake(tmp_path / "home", monkeypatch), metrics="0", bootstrap_servers="127.0.0.1:1")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, tmp_path / "targets.json")
    yield server
    server.process.terminate()
    server.process.wait(60)


def test_a_server_with_the_shipped_settings_finds_a_driver_and_notices_its_end(
    config: Config, server: Server, tmp_path: Path
) -> None:
    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    topology, none = registry.load(config.topologies, NAME), Offsets({"pos": {0: 0}})
    exporter = Exporter(config, paths)
    exporter.open(
        lambda: Metrics(topology, 1, bound={}, start=none, end=none),
        lambda: "running",
        Ledger(paths.ledger).state().committed,
        is_live=True,
    )
    heartbeat.write(paths.heartbeat, replace(heartbeat.this_process("w", "code"), metrics=exporter.address))
    write_targets(config, tmp_path / "targets.json")
    labels = f'{{job="kappa", topology="{NAME}", epoch="1"}}'
    server.wait(f"up{labels}", 1)
    server.wait(f"kappa_committed_seq{labels}", 2)
    exporter.close()
    server.wait(f"up{labels}", 0)
