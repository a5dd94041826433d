"""`kappa new` writes two files, or says what it would write, and overwrites nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from kappa.cli import app
from kappa.errors import RefusedError, TopologyError, UsageError
from kappa.topology import registry


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project like Airflow's: topologies in include/topologies."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "include" / "topologies"


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["new", *words], env={"KAPPA_TOPOLOGIES": str(folder)})


def test_a_dry_run_names_both_files_and_writes_none(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "retail.refunds", "--shape", "running-total")
    assert result.output.splitlines() == [
        "Would write tests/topologies/test_retail_refunds.py.",
        "Would write include/topologies/retail_refunds.py.",
        "Nothing was changed. To do it: kappa new retail.refunds --shape running-total --execute",
    ]
    assert not list(tmp_path.iterdir())


def test_it_writes_both_files_and_says_how_to_run_the_test(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "retail.refunds", "--shape", "stateless", "--execute")
    assert result.output.splitlines() == [
        "Wrote include/topologies/retail_refunds.py and tests/topologies/test_retail_refunds.py.",
        "Run its test: python -m pytest tests/topologies/test_retail_refunds.py",
    ]
    assert registry.load(folder, "retail.refunds").version == "1"
    test = tmp_path / "tests" / "topologies" / "test_retail_refunds.py"
    assert 'FOLDER = "../../include/topologies"' in test.read_text()


def test_another_folder_of_tests_is_named_again_in_the_dry_run(folder: Path, tmp_path: Path) -> None:
    words = ["retail.refunds", "--shape", "window", "--tests", "my tests"]
    assert "--tests 'my tests' --execute" in run(folder, *words).output
    assert "python -m pytest 'my tests/test_retail_refunds.py'" in run(folder, *words, "--execute").output
    assert 'FOLDER = "../include/topologies"' in (tmp_path / "my tests" / "test_retail_refunds.py").read_text()


def test_tests_of_another_folder_lie_beside_it(tmp_path: Path) -> None:
    result = run(tmp_path / "mine", "a.b", "--shape", "join", "--execute")
    assert result.exit_code == 0
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")) == [
        "mine/a_b.py",
        "tests/test_a_b.py",
    ]


@pytest.mark.parametrize("there", ["include/topologies/a_b.py", "tests/topologies/test_a_b.py"])
def test_no_file_is_overwritten_with_or_without_execute(folder: Path, tmp_path: Path, there: str) -> None:
    (tmp_path / there).parent.mkdir(parents=True)
    (tmp_path / there).write_text("mine")
    for words in ([], ["--execute"]):
        result = run(folder, "a.b", "--shape", "join", *words)
        assert isinstance(result.exception, RefusedError)
        assert str(result.exception).startswith(f"No file is overwritten, and {there} would be.")
    assert [path.read_text() for path in tmp_path.rglob("*.py")] == ["mine"]


@pytest.mark.parametrize("words", [[], ["--execute"]])
def test_a_test_among_the_topologies_is_refused(folder: Path, tmp_path: Path, words: list[str]) -> None:
    result = run(folder, "a.b", "--shape", "join", "--tests", "include/../include/topologies", *words)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("include/topologies is the folder of the topologies")
    assert not list(tmp_path.iterdir())


def test_a_name_that_another_file_declares_is_refused(folder: Path) -> None:
    run(folder, "a.b", "--shape", "join", "--execute")
    (folder / "a_b.py").rename(folder / "other.py")
    result = run(folder, "a.b", "--shape", "join", "--tests", "elsewhere")
    assert isinstance(result.exception, RefusedError)
    assert "include/topologies/other.py declares topology 'a.b' already" in str(result.exception)


def test_a_name_or_a_folder_that_cannot_be_is_refused(folder: Path, tmp_path: Path) -> None:
    assert isinstance(run(folder, "Refunds", "--shape", "join").exception, TopologyError)
    assert run(folder, "a.b", "--shape", "round").exit_code == 2
    (tmp_path / "file").write_text("")
    result = run(folder, "a.b", "--shape", "join", "--tests", "file/tests", "--execute")
    assert isinstance(result.exception, UsageError) and "cannot be written" in str(result.exception)
    assert not list(tmp_path.rglob("*.py"))
