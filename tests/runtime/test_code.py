"""Code by content hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa import registry
from kappa.errors import CodeError, UnknownTopologyError
from kappa.runtime import code

FILE = """
from kappa.topology import Append, Source, Topology
t = Topology(name="{name}", version="1", sources=[Source(topic="in", schema="a STRING")], outputs=[Append(name="rows", schema="a STRING")], step=lambda s: {{}})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "topologies"
    made.mkdir()
    (made / "mine.py").write_text(FILE.format(name="a.mine"))
    return made


def test_equal_content_gives_an_equal_hash_and_any_change_another(folder: Path) -> None:
    first, _ = code.snapshot(folder, "a.mine")
    assert code.snapshot(folder, "a.mine")[0] == first
    (folder / "other.py").write_text(FILE.format(name="a.other"))
    assert code.snapshot(folder, "a.mine")[0] == first, "another topology is none of its business"
    (folder / "shared.py").write_text("LIMIT = 3")
    assert code.snapshot(folder, "a.mine")[0] != first, "a module that it may import is"


def test_what_is_stored_is_what_is_unpacked(folder: Path, tmp_path: Path) -> None:
    stored = code.store(str(tmp_path / "lake"), folder, "a.mine")
    assert code.store(str(tmp_path / "lake"), folder, "a.mine") == stored
    (folder / "mine.py").write_text("changed = True")
    root = code.extract(str(tmp_path / "lake"), stored, tmp_path / "home")
    assert code.extract(str(tmp_path / "lake"), stored, tmp_path / "home") == root
    assert registry.load(root / "topologies", "a.mine").version == "1"
    assert (root / "include" / "kappa" / "driver.py").is_file()
    assert (root / "jobs" / "run_epoch.py").is_file()


def test_unknown_topologies_and_unknown_code_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopologyError, match=r"a\.yours"):
        code.snapshot(folder, "a.yours")
    with pytest.raises(CodeError, match="feed"):
        code.extract(str(tmp_path), "feed", tmp_path / "home")
