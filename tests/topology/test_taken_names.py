"""A module beside topologies that other code would import instead of its own is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.errors import CodeError
from kappa.topology import registry

TOPOLOGY = """
from kappa import Append, Source, Topology
t = Topology(name="a.b", version="1", sources=[Source(topic="t", format="string")],
             outputs=[Append(name="rows", schema="value STRING")], step=lambda slice: {})
"""


@pytest.mark.parametrize("name", ["calendar.py", "numbers.py", "pyarrow/__init__.py"])
def test_it_is_named_by_each_topology_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a_b.py").write_text(TOPOLOGY)
    assert [topology.name for topology in registry.import_file(tmp_path / "a_b.py")] == ["a.b"]
    taken = tmp_path / name
    taken.parent.mkdir(exist_ok=True)
    taken.write_text("")
    with pytest.raises(CodeError, match=r"has the name of a module that Python or Kappa imports.*Rename it: mv "):
        registry.import_file(tmp_path / "a_b.py")
