"""`kappa explain` draws a topology, or explains the plan in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from kappa.cli import app
from kappa.errors import UnknownTopologyError, UsageError

Run = Callable[..., Result]

FILE = """
from kappa import Append, Source, Topology
print("imported")
topology = Topology(name="a.b", version="1", sources=[Source(topic="in", format="string")],
    outputs=[Append(name="rows", schema="id STRING")], step=lambda slice: {"rows": slice["in"]})
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "topologies"
    folder.mkdir()
    (folder / "one.py").write_text(FILE)

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, ["explain", *words], env={"KAPPA_TOPOLOGIES": str(folder)})

    return invoke


def test_a_deployed_topology_is_drawn_as_text_or_json(run: Run) -> None:
    result = run("a.b")
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith("a.b version 1\n\nsource in"), "what its file prints goes to standard error"
    assert '"kind": "step"' in run("a.b", "--json").stdout


def test_an_unknown_name_is_refused_with_the_nearest(run: Run) -> None:
    result = run("a.bb")
    assert isinstance(result.exception, UnknownTopologyError) and "Did you mean 'a.b'?" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["plans/none.json"], "There is no file plans/none.json."), (["README"], "This is not a plan")],
)
def test_what_cannot_be_explained_is_refused(run: Run, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "README").write_text("no plan")
    result = run(*words)
    assert isinstance(result.exception, UsageError) and message in str(result.exception)


def test_a_name_that_is_also_a_file_is_the_topology(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.b").write_text("no plan")
    assert run("a.b").stdout.startswith("a.b version 1")
    assert "This is not a plan" in str(run("./a.b").exception)
