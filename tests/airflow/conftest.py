"""What the tests of Airflow's part share: a control that is a file, and a whole Airflow on top of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.airflow_runs import BOTH, ONE, SEVERAL
from support.airflow_stack import FAKES, AirflowStack, running
from support.scripts import load

import kappa
from kappa.config import Config

HERE = Path(__file__).parent

TOPOLOGIES = ("watched", "short", "replayed", "kept", "refused", "killed", "resumed", "asked", "joint_a", "joint_b")
_TOPOLOGY = """
from kappa.topology import Append, Source, Topology

counts = Topology(
    name="demo.{name}",
    version="1",
    sources=[Source(topic="events", format="string")],
    outputs=[Append(name="counts", schema="value STRING")],
    step=lambda slice: {{"counts": slice["events"]}},
)
"""


def config_in(folder: Path) -> Config:
    """A configuration whose lake, home and topologies are below a folder."""
    topologies = folder / "topologies"
    topologies.mkdir(parents=True)
    for name in TOPOLOGIES:
        (topologies / f"{name}.py").write_text(_TOPOLOGY.format(name=name))
    return Config(
        lake=str(folder / "lake"),
        bootstrap_servers="127.0.0.1:1",
        topologies=topologies,
        home=folder / "home",
        cache=folder / "cache",
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration of this test alone."""
    return config_in(tmp_path)


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch, config: Config) -> Any:
    """``fake_control`` in the place of ``kappa.control``; drivers are this process, until a test says otherwise."""
    monkeypatch.syspath_prepend(str(FAKES))
    fake: Any = load("kappa_fake_control", FAKES / "fake_control.py")
    fake.__path__ = [str(Path(kappa.__file__).parent / "control")]  # what lies below it is the real one
    monkeypatch.setitem(sys.modules, "kappa.control", fake)
    monkeypatch.setattr(kappa, "control", fake, raising=False)
    fake.launched = lambda config, topology, epoch: os.getpid()
    for name, value in config.to_env().items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
def no_connection(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    """Tasks get this test's configuration, and ask Airflow for no connection."""
    from kappa_airflow import questions, stream, tasks

    for module in (questions, stream, tasks):
        monkeypatch.setattr(module, "config_with_spark", lambda _: config)


class Pages:
    """Airflow's side of questions: a task instance keeps the text of its first one."""

    def __init__(self) -> None:
        self.shown: dict[Any, Any] = {}
        self.asked: list[dict[str, Any]] = []

    def send(self, msg: Any) -> Any:
        from airflow.sdk.execution_time.comms import HITLDetailRequestResult

        page = self.shown.setdefault(msg.ti_id, msg)
        if page == msg:
            self.asked.append(msg.model_dump())
        return HITLDetailRequestResult.from_api_response(page)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Questions that Airflow shows, once per asking."""
    from airflow.sdk.execution_time import task_runner

    pages = Pages()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", pages, raising=False)
    return pages.asked


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def candidates(control: Any, config: Config) -> Any:
    """The control of two topologies: of each, epoch 1 is live and epoch 2 is verified."""
    with control.changed(config) as now:
        for name in BOTH:
            now["live"][name] = 1
            now["epochs"][f"{name}/1"] = control._epoch("CUT_OVER")
            now["epochs"][f"{name}/2"] = control._epoch("VERIFIED", f"a plan of {name}")
    return control


@pytest.fixture(params=[ONE, SEVERAL], ids=["one", "several"])
def members(request: pytest.FixtureRequest) -> Any:
    """Topologies of a run, and the epoch of each that waits."""
    return request.param


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStack]:
    """A whole Airflow on fakes. Its drivers end with it."""
    config = config_in(tmp_path_factory.mktemp("airflow"))
    extra = {
        "FAKE_STEP_SECONDS": "1.5",
        "FAKE_REPLAY_SECONDS": "4",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": _bundles(kappa=HERE.parents[1] / "dags", tests=HERE / "dags"),
    }
    fake: Any = load("kappa_fake_control", FAKES / "fake_control.py")
    try:
        with running(AirflowStack(config, extra, with_fakes=True)) as started:
            yield started
    finally:
        for _, _, pid, _ in fake.world(config)["starts"]:
            if fake._is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def _bundles(**folders: Path) -> str:
    path = "airflow.dag_processing.bundles.local.LocalDagBundle"
    return json.dumps(
        [
            {"name": name, "classpath": path, "kwargs": {"path": str(folder), "refresh_interval": 30}}
            for name, folder in folders.items()
        ]
    )
