"""An upgrade whose code the epoch's own interpreter cannot run is withdrawn before the ledger has it."""

from __future__ import annotations

import shutil
import sys
import venv
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from support.epoch_record import CODE
from support.page_lake import TopologyStory, steady

import kappa
from kappa import clock
from kappa.config import Config
from kappa.driver.processes.rehearsals import Rehearsal, rehearse
from kappa.driver.upgrade import switch
from kappa.environments import interpreters
from kappa.names import EpochPaths
from kappa.record import code
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.topology import Append, Source, Topology

NAME = "a.rehearsed"
TOPOLOGY = f"""
from kappa import Append, Source, Topology

topology = Topology(name="{NAME}", version="2", sources=[Source(topic="pos", schema="id STRING")],
    outputs=[Append(name="rows", schema="id STRING")], step=lambda slice: {{"rows": slice["pos"]}})
"""
RUNNING = Topology(
    name=NAME,
    version="1",
    sources=[Source(topic="pos", schema="id STRING")],
    outputs=[Append(name="rows", schema="id STRING")],
    step=lambda slice: {"rows": slice["pos"]},
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folders = {name: str(tmp_path / name.lower()) for name in ("HOME", "LAKE", "TOPOLOGIES")}
    config = Config.from_env({f"KAPPA_{name}": path for name, path in folders.items()})
    config.topologies.mkdir()
    (config.topologies / "rehearsed.py").write_text(TOPOLOGY)
    return replace(config, environments=f"{tmp_path}/*/bin/python")


@pytest.fixture
def code_folder(config: Config, tmp_path: Path) -> Path:
    """The code of a release, unpacked, which a test alters."""
    root = tmp_path / "code"
    shutil.copytree(Path(kappa.__file__).parent, root / "include" / "kappa", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copytree(config.topologies, root / "topologies")
    return root


def switched(config: Config, stored: str, environment: str) -> tuple[Epochs, Ledger]:
    """A live epoch in an environment, whose driver was asked to go over to stored code, and tried."""
    story, now = TopologyStory(config=config, name=NAME, partitions=1), clock.now()
    story.begin(1, now, topic_ids={"pos": "id-1"}, code=CODE)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    story.tell(1, "upgrade", now, **{"code": stored, "from": CODE, "version": "2", "history_stands": True})
    epochs, paths = Epochs(config.lake), EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    ledger = Ledger(paths.ledger)
    ledger.claim("driver", CODE, ledger.state(), environment={"environment": environment})
    request = epochs.record(NAME).epoch(1).upgrade
    assert request is not None
    switch(config, epochs, paths, ledger, "driver", request, RUNNING, {})
    return epochs, ledger


def test_an_upgrade_is_withdrawn_that_the_epochs_own_interpreter_cannot_run(config: Config, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    (bare,) = interpreters.others(config)
    stored = code.store(config.lake, config.topologies, NAME)
    epochs, ledger = switched(config, stored, bare.environment.id)
    last = epochs.record(NAME).events[-1]
    assert last.event == "upgrade_withdrawn" and epochs.record(NAME).epoch(1).upgrade is None
    assert last.reason.startswith(f"The interpreter {bare.path} of epoch 1 cannot run code {stored[:12]}: ")
    assert "ModuleNotFoundError: No module named" in last.reason
    assert last.reason.endswith(f"kappa start {NAME} --in-this-environment")
    assert list(ledger.rows())[-1].kind == "claim" and epochs.record(NAME).savepoints == {}


def test_a_file_that_needs_the_new_release_goes_over_without_the_old_one(config: Config, code_folder: Path) -> None:
    (code_folder / "include" / "kappa" / "of_this_release.py").write_text('SCHEMA = "id STRING, at TIMESTAMP"\n')
    text = (config.topologies / "rehearsed.py").read_text()
    text = text.replace("\nfrom kappa", "\nfrom kappa.of_this_release import SCHEMA\nfrom kappa", 1)
    text = text.replace('schema="id STRING")],', 'schema=SCHEMA, time="at", grace="5 minutes")],', 1)
    (config.topologies / "rehearsed.py").write_text(text)
    stored = code.store(config.lake, config.topologies, NAME, platform=code_folder / "include")
    epochs, ledger = switched(config, stored, interpreters.own(config).environment.id)
    row = list(ledger.rows())[-1]
    assert (row.kind, row.code) == ("upgrade", stored), epochs.record(NAME).events[-1].reason
    assert row.detail["times"] == {"pos": {"time": "at", "grace_ms": 300_000}}
    assert epochs.record(NAME).epoch(1).code == stored


def test_the_first_line_of_what_an_import_raises_is_the_obstacle(code_folder: Path) -> None:
    driver = code_folder / "include" / "kappa" / "driver" / "driver.py"
    assert rehearse(sys.executable, code_folder, NAME) == Rehearsal(masked={}, times={})
    with driver.open("a") as file:
        file.write('\nraise ImportError("needs pyarrow 99\\nand more")\n')
    assert rehearse(sys.executable, code_folder, NAME).obstacle == "ImportError: needs pyarrow 99"
    driver.write_text("import os\nos._exit(7)\n")
    assert rehearse(sys.executable, code_folder, NAME).obstacle == "it ended with exit code 7"
    driver.write_text("import os\nos._exit(0)\n")
    assert rehearse(sys.executable, code_folder, NAME).obstacle == "it gave no answer"


def test_a_library_outside_the_releases_range_is_the_obstacle(code_folder: Path) -> None:
    file = code_folder / "include" / "kappa" / "environments" / "requirements.py"
    text = file.read_text()
    assert '"deltalake>=1.6.6,<1.7"' in text
    file.write_text(text.replace('"deltalake>=1.6.6,<1.7"', '"deltalake>=99,<100"'))
    line = f"CodeError: the release needs other libraries: deltalake is {version('deltalake')}, not >=99,<100"
    assert rehearse(sys.executable, code_folder, NAME).obstacle == line


@pytest.mark.parametrize("library", ["deltalake", "fastavro", "authlib"])
def test_a_library_that_drivers_import_late_is_imported(
    library: str, code_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / f"{library}.py").write_text('raise ImportError("built for another machine")\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    assert rehearse(sys.executable, code_folder, NAME).obstacle == "ImportError: built for another machine"
