"""The demonstration does not count missing evidence as proof."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import ModuleType

import pytest
from support.environments import ROOT
from support.scripts import script_module

from kappa.config import Config
from kappa.errors import Transient


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return script_module("demo")


def test_a_reader_that_died_is_a_complaint_and_not_a_proof(demo: ModuleType, tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path)})
    reader = demo.Reader(config)
    thread = demo.Watched(lambda: reader.run(Event()))
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and reader.complaints == []
    (complaint,) = demo.unproved(thread, "the reader")
    assert "the reader ended" in complaint and "retail.loyalty" in complaint


def test_a_reader_that_does_not_end_is_a_complaint(demo: ModuleType) -> None:
    ended = Event()
    thread = demo.Watched(ended.wait)
    thread.start()
    assert demo.unproved(thread, "the reader") == ["the reader did not end"]
    ended.set()
    thread.join(60)
    assert demo.unproved(thread, "the reader") == []


def test_a_replay_is_triggered_once_though_the_answer_came_too_late(demo: ModuleType) -> None:
    requests = []

    def call(method: str, path: str, body: object = None) -> object:
        requests.append((method, path))
        if requests.count((method, path)) == 1 and method == "POST":
            raise Transient("Airflow does not answer.", status=None)  # it made the run all the same
        if method == "POST":
            raise Transient("It is there.", status=409)
        return {"dag_run_id": demo.RUN}

    assert demo.until("the run", lambda: demo.triggered(call)) == {"dag_run_id": demo.RUN}
    runs = "/dags/replay__retail.loyalty/dagRuns"
    assert requests == [("POST", runs), ("POST", runs), ("GET", f"{runs}/{demo.RUN}")]
