"""An upgrade whose code the epoch's own interpreter cannot run is withdrawn before the ledger has it."""

from __future__ import annotations

import shutil
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest
from support.epoch_record import CODE
from support.page_lake import TopologyStory, steady

import kappa
from kappa import clock
from kappa.config import Config
from kappa.driver.processes import rehearsals
from kappa.driver.upgrade import switch
from kappa.environments import files, interpreters
from kappa.names import EpochPaths
from kappa.record import code
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.topology import registry

NAME = "a.rehearsed"
TOPOLOGY = f"""
from kappa import Append, Source, Topology

topology = Topology(name="{NAME}", version="2", sources=[Source(topic="pos", schema="id STRING")],
    outputs=[Append(name="rows", schema="id STRING")], step=lambda slice: {{"rows": slice["pos"]}})
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folders = {name: str(tmp_path / name.lower()) for name in ("HOME", "LAKE", "TOPOLOGIES")}
    config = Config.from_env({f"KAPPA_{name}": path for name, path in folders.items()})
    config.topologies.mkdir()
    (config.topologies / "rehearsed.py").write_text(TOPOLOGY)
    return replace(config, environments=f"{tmp_path}/*/bin/python")


def test_an_upgrade_is_withdrawn_that_the_epochs_own_interpreter_cannot_run(config: Config, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    (bare,) = interpreters.others(config)
    story, now = TopologyStory(config=config, name=NAME, partitions=1), clock.now()
    story.begin(1, now, topic_ids={"pos": "id-1"}, code=CODE)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    stored = code.store(config.lake, config.topologies, NAME)
    story.tell(1, "upgrade", now, **{"code": stored, "from": CODE, "version": "2", "history_stands": True})
    epochs, paths = Epochs(config.lake), EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    files.store(paths, bare.environment)
    ledger = Ledger(paths.ledger)
    ledger.claim("driver", CODE, ledger.state(), environment={"environment": bare.environment.id})
    request = epochs.record(NAME).epoch(1).upgrade
    assert request is not None
    rows = len(list(ledger.rows()))

    switch(config, epochs, paths, ledger, "driver", request, registry.load(config.topologies, NAME), {})

    last = epochs.record(NAME).events[-1]
    assert last.event == "upgrade_withdrawn" and epochs.record(NAME).epoch(1).upgrade is None
    assert last.reason.startswith(f"The interpreter {bare.path} of epoch 1 cannot run code {stored[:12]}: ")
    assert "ModuleNotFoundError: No module named" in last.reason
    assert last.reason.endswith(f"kappa start {NAME} --in-this-environment")
    assert len(list(ledger.rows())) == rows and epochs.record(NAME).savepoints == {}


def test_the_first_line_of_what_an_import_raises_is_the_obstacle(config: Config, tmp_path: Path) -> None:
    root = tmp_path / "code"
    shutil.copytree(Path(kappa.__file__).parent, root / "include" / "kappa", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copytree(config.topologies, root / "topologies")
    assert rehearsals.obstacle(sys.executable, root, NAME) == ""
    with (root / "include" / "kappa" / "driver" / "driver.py").open("a") as file:
        file.write('\nraise ImportError("needs pyarrow 99\\nand more")\n')
    assert rehearsals.obstacle(sys.executable, root, NAME) == "ImportError: needs pyarrow 99"
    (root / "include" / "kappa" / "driver" / "driver.py").write_text("import os\nos._exit(7)\n")
    assert rehearsals.obstacle(sys.executable, root, NAME) == "it ended with exit code 7"
