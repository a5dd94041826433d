"""A lake with one live topology, asked over HTTP by a caller with chosen rights."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from kappa.config import Config
from kappa.offsets.vector import Offsets
from kappa.record.epochs import Epochs
from kappa.record.events import Event, EventKind
from kappa.topology import Topology
from kappa_web.app import build
from support.slices import TOPOLOGY, Epoch


@dataclass
class Rights:
    """What the caller of the next request may do."""

    name: str = "reader"
    has_forms: bool = False
    reads: bool = True
    unmasks: bool = False

    def may_read(self, topology: str) -> bool:
        return self.reads

    def may_unmask(self, topology: str) -> bool:
        return self.unmasks


@dataclass
class Site:
    """A lake with a live epoch of a topology, and its server."""

    base: Path
    topology: Topology = TOPOLOGY
    rights: Rights = field(default_factory=Rights)

    def __post_init__(self) -> None:
        self.config = Config.from_env(
            {
                "KAPPA_HOME": str(self.base),
                "KAPPA_LAKE": str(self.base / "lake"),
                "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1",  # none answers
            }
        )
        self.tell("planned", "rewound", "seeded", "moved")
        self.epoch = Epoch(self.base / "lake", self.topology)
        self.client = TestClient(build(self.config, lambda: self.rights), raise_server_exceptions=True)

    def tell(self, *names: EventKind, epoch: int = 1) -> None:
        """Put events on record."""
        for name in names:
            start = Offsets({"pos": {0: 1}}).to_json()
            detail: dict[str, Any] = {"code": "c0de", "version": "1", "start": start, "from": None, "at": {}}
            row = Event(
                topology=self.topology.name, epoch=epoch, event=name, at=datetime.now(UTC), actor="test", detail=detail
            )
            Epochs(self.config.lake).change(row.topology, lambda _, row=row: [row])  # type: ignore[misc]

    def get(self, path: str, **named: Any) -> Any:
        """The answer to a request."""
        return self.client.get(path, **named)

    def rows(self, path: str, **named: Any) -> list[dict[str, Any]]:
        """The rows of a scan's first page."""
        response = self.get(path, **named)
        assert response.status_code == 200, response.text
        rows: list[dict[str, Any]] = response.json()["rows"]
        return rows

    def problem(self, path: str, **named: Any) -> tuple[int, str]:
        """Status and code of a problem."""
        response = self.get(path, **named)
        assert response.headers["content-type"] == "application/problem+json", response.text
        assert response.json()["status"] == response.status_code
        assert response.json()["detail"]
        return response.status_code, response.json()["type"].rpartition(":")[2]


@contextmanager
def served(site: Site) -> Iterator[str]:
    """The address of ``kappa ui`` for a lake."""
    call = [sys.executable, "-m", "kappa", "ui", "--port", "0"]
    environ = {**os.environ, **site.config.to_env()}
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environ) as server:
        assert server.stdout is not None
        try:
            match = re.search(r"http://\S+", server.stdout.readline())
            assert match is not None
            yield match[0]
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0, "Ctrl-C ends it"
        finally:
            server.kill()
