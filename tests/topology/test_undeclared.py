"""A step that reads undeclared names is refused on deployment, not once it is live."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.errors import CodeError, UnknownTableError
from kappa.serving import Snapshot
from kappa.topology import registry

FILE = """
from kappa.topology import Append, Source, Table, Topology

def step(slice):
{body}

t = Topology(
    name="a.b", version="1", sources=[Source(topic="pos", schema="id STRING NOT NULL")],
    tables=[Table(name="kept", key=["id"], schema="id STRING NOT NULL")],
    outputs=[Append(name="rows", schema="id STRING")], step=step,
)
"""


def loaded(folder: Path, *body: str) -> None:
    (folder / "one.py").write_text(FILE.format(body="\n".join(f"    {line}" for line in body)))
    registry.load(folder, "a.b")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('rows = slice["pos"].join(slice.table("keept"), "id")', r"reads table 'keept'.* declared: \['kept'\]"),
        ('rows = slice["poss"]', r"reads topic 'poss'.* declared: \['pos'\]"),
        ('rows = (lambda: slice.table("other"))()', "reads table 'other'"),
    ],
)
def test_an_undeclared_read_is_refused_on_loading_with_the_declared_names(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(CodeError, match=says):
        loaded(tmp_path, line, "return {}")


@pytest.mark.parametrize(
    "line",
    [
        'rows = slice["pos"].join(slice.table("kept"), "id")',
        'name = "other"; rows = slice.table(name)',
        'row = {"x": 1}["x"]',
        'other = (lambda slice: slice["x"])({"x": 1})',
        'slice["pos"].table("x")',
    ],
)
def test_declared_computed_and_unrelated_reads_are_left_to_the_slice(tmp_path: Path, line: str) -> None:
    loaded(tmp_path, line, "return {}")


def test_an_error_about_a_missing_table_names_those_of_the_epoch() -> None:
    versions = {"tables/rewards": ("/x", 1), "outputs/moves": ("/y", 1)}
    snapshot = object.__new__(Snapshot)
    for name, value in (("versions", versions), ("epoch", 3), ("topology", "a.b")):
        object.__setattr__(snapshot, name, value)
    with pytest.raises(UnknownTableError, match=r"'reward'\. Its tables: rewards; its outputs: moves"):
        snapshot.place("reward")
