"""Code that is named again while it is removed: whoever names it, or whoever removes it, sees the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.s3_options import config_on

from kappa.config import Config
from kappa.errors import CodeError
from kappa.names import code_file
from kappa.record import code as code_store
from kappa.store.stores import store_of

NAME = "a.b"
TOPOLOGY = """
from kappa import Append, Source, Topology

topology = Topology(name="a.b", version="{version}", sources=[Source(topic="t", schema="id STRING")],
    outputs=[Append(name="rows", schema="id STRING")], step=lambda slice: {{"rows": slice["t"]}})
"""


@pytest.fixture(params=["disk", "s3"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    topologies = str(tmp_path / "topologies")
    if request.param == "s3":
        config = config_on(request.getfixturevalue("s3"), tmp_path, KAPPA_TOPOLOGIES=topologies)
    else:
        disk = {"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake")}
        config = Config.from_env({**disk, "KAPPA_TOPOLOGIES": topologies})
    deploy(config, "1")
    return config


def deploy(config: Config, version: str) -> None:
    config.topologies.mkdir(exist_ok=True)
    (config.topologies / "one.py").write_text(TOPOLOGY.format(version=version))


def removal(config: Config) -> Callable[[str], bool]:
    def remove(path: str) -> bool:
        store_of(config.lake).delete(path)
        return True

    return remove


def test_code_that_is_removed_before_a_record_names_it_is_stored_again(config: Config) -> None:
    code = code_store.store(config.lake, config.topologies, NAME)
    assert code_store.discard(config.lake, code, removal(config), lambda: False)
    code_store.store_again(config.lake, config.topologies, NAME, code)
    code_store.check(config.lake, code)


def test_code_that_a_record_names_before_it_is_removed_is_put_back(config: Config) -> None:
    code = code_store.store(config.lake, config.topologies, NAME)
    assert not code_store.discard(config.lake, code, removal(config), lambda: True)
    code_store.check(config.lake, code)


def test_code_that_is_gone_and_not_deployed_any_more_is_missed(config: Config) -> None:
    code = code_store.store(config.lake, config.topologies, NAME)
    removal(config)(code_file(config.lake, code))
    deploy(config, "2")
    with pytest.raises(CodeError, match="not in the lake"):
        code_store.store_again(config.lake, config.topologies, NAME, code)
