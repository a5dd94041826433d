"""Requests that are made of the OpenAPI document, by schemathesis: a server does what its description says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.web_site import Site, served

from kappa.topology import Source, Table, Topology

#: What a path names: an existing row, or one that may not exist.
PATHS = {
    "what is there": """
"path.topology" = "pages"
"path.table" = "views"
"path.key" = "it's"
"query.epoch" = 1
"query.seq" = 1
""",
    "anything": """
"path.topology" = { dictionary = "topology", probability = 0.9 }
"path.table" = { dictionary = "table", probability = 0.9 }
"path.key" = { dictionary = "key", probability = 0.7 }
"query.epoch" = { dictionary = "epoch", probability = 0.7 }
"query.seq" = { dictionary = "seq", probability = 0.7 }
""",
}
CONFIG = """
[dictionaries]
topology = {{ values = ["sums", "pages", "nope"] }}
table = {{ values = ["sums", "views", "nope"] }}
key = {{ values = ["a", "b", "A", "it's", "", "%"] }}
epoch = {{ values = [1] }}
seq = {{ values = [0, 1, 2, 3] }}
time = {{ values = ["2026-03-01T01:00:00Z", "2030-01-01T00:00:00Z", "2026-03-01"] }}

[parameters]
{paths}
"query.at" = {{ dictionary = "time", probability = 0.7 }}
"query.from" = {{ dictionary = "key", probability = 0.5 }}
"query.to" = {{ dictionary = "key", probability = 0.5 }}
"query.prefix" = {{ dictionary = "key", probability = 0.5 }}
"query.window_from" = {{ dictionary = "time", probability = 0.7 }}
"query.window_to" = {{ dictionary = "time", probability = 0.7 }}

# A value may be well formed and fit no column of the table's key: no description knows the tables of a lake.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "400", "404"]
"""
OPERATIONS = {
    "GET /metadata",
    "GET /metadata/{topology}",
    "GET /tables/{topology}/{table}",
    "GET /tables/{topology}/{table}/{key}",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of two topologies: one has a key of two columns, the other windows and a type of each kind."""
    table = Table(
        name="views",
        key=["page"],
        schema="page STRING NOT NULL, window_start TIMESTAMP NOT NULL, day DATE, views DECIMAL(20,2), share DOUBLE, "
        "card STRING, raw BINARY",
        masked=["card"],
    )
    source = Source(topic="pos", schema="id STRING NOT NULL")
    pages = Topology(name="pages", version="1", sources=[source], tables=[table], step=lambda _: {})
    at = datetime(2026, 3, 1, 1, tzinfo=UTC)
    values = {"window_start": at, "day": at.date(), "views": 10**17, "share": 0.1, "card": "4711", "raw": b"\x00\xff"}
    site = Site(tmp_path_factory.mktemp("described"))
    for total in range(3):
        site.epoch.slice({("a", 0): total, ("b", 1): total})
    Site(site.base, pages).epoch.put(*({"page": page, **values} for page in ("a", "b", "it's")))
    with served(site) as address:
        yield address


@pytest.mark.parametrize("paths", PATHS)
@pytest.mark.parametrize("examples", [20, 500])
def test_schemathesis_finds_nothing(url: str, tmp_path: Path, paths: str, examples: int) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG.format(paths=PATHS[paths]))
    call = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run", f"{url}/openapi.json"),
        *("--max-examples", str(examples), "--seed", str(examples), "--continue-on-failure", "--no-color"),
        *("--report", "ndjson", "--report-ndjson-path", "events.ndjson"),
    ]
    run = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    if paths == "what is there":
        assert reached(tmp_path / "events.ndjson") == OPERATIONS, "each operation has an answer that is a result"


def reached(events: Path) -> set[str]:
    """Operations that answered 200."""
    operations = set()
    for line in events.read_text().splitlines():
        recorded = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for exchange in recorded.get("interactions", {}).values():
            if (exchange.get("response") or {}).get("status_code") == 200:
                operations.add(recorded["label"])
    return operations
