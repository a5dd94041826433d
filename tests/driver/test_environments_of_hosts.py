"""``kappa drivers`` says in the lake which environments its host has, as long as it runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from support.live_lake import live_lake

from kappa.driver.processes import host, process
from kappa.environments import interpreters, launchers


def test_a_host_says_what_it_has_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, stopping = live_lake(tmp_path, monkeypatch), threading.Event()
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(process, "ensure_driver", lambda *_: None)
    thread = threading.Thread(target=host.host, args=(config, stopping))
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not (hosts := launchers.read(config.lake)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        stopping.set()
        thread.join()
    assert hosts[0].own == interpreters.own(config).environment.id
    assert hosts[0].own in hosts[0].environments
    assert launchers.read(config.lake) == ()
