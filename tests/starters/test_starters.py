"""What `kappa new` writes runs as it is: the topology loads, is formatted, and its test passes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kappa.drawing import Kind, graph_of
from kappa.errors import TopologyError
from kappa.starters import StarterShape, starter, stem
from kappa.testing import Input, TopologyDriver
from kappa.topology import registry
from kappa_local.generators.draws import Course, Stream
from kappa_local.generators.generator import SCENARIOS
from kappa_local.generators.invoices import Invoices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
#: A name that is longer than most: no line may break elsewhere for it.
LONG = ".".join(["retail", *(f"a_department_with_a_long_name_{number}" for number in (1, 2))])


def write(folder: Path, name: str, shape: StarterShape) -> tuple[Path, Path]:
    texts = starter(name, shape, folder="../topologies")
    file, test = folder / "topologies" / f"{stem(name)}.py", folder / "tests" / f"test_{stem(name)}.py"
    for path, text in ((file, texts.topology), (test, texts.test)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return file, test


@pytest.mark.parametrize("shape", StarterShape)
def test_a_starter_loads_by_name_and_declares_its_shape(tmp_path: Path, shape: StarterShape) -> None:
    write(tmp_path, "retail.class", shape)
    topology = registry.load(tmp_path / "topologies", "retail.class")
    assert topology.version == "1"
    assert [topic.name for topic in topology.topics] == ["retail.class"]
    made_by = [table.made_by.partition("(")[0] for table in topology.tables]
    assert (
        made_by
        == {
            StarterShape.STATELESS: [],
            StarterShape.RUNNING_TOTAL: ["running_total"],
            StarterShape.WINDOW: ["tumbling_window"],
            StarterShape.JOIN: ["interval_join", "interval_join"],
        }[shape]
    )
    assert all(box.details for box in graph_of(topology).center.leads_to)
    assert graph_of(topology).center.kind is Kind.STEP and graph_of(topology).center.details


@pytest.mark.parametrize("name", ["a", LONG], ids=["short", "long"])
def test_written_files_are_formatted_and_lint_clean(tmp_path: Path, name: str) -> None:
    files = [
        path for shape in StarterShape for path in write(tmp_path, f"{name}.{stem(shape).replace('-', '_')}", shape)
    ]
    # They lie outside of the project, whose rules for tests go by path: there `assert` is a finding.
    for command in (["format", "--check"], ["check", "--ignore", "E501,S101"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
        check = subprocess.run([*ruff, *map(str, files)], capture_output=True, text=True, check=False)
        assert check.returncode == 0, check.stdout + check.stderr


@pytest.mark.parametrize("name", ["Retail.refunds", "retail refunds", "retail..x", "x" * 250, "a.e0001", "pos", 'a"b'])
def test_an_invalid_topology_name_is_refused(name: str) -> None:
    with pytest.raises(TopologyError):
        starter(name, StarterShape.JOIN, folder="..")


def test_a_starters_test_finds_the_topology_in_any_folder() -> None:
    texts = starter("a.b", StarterShape.STATELESS, folder='../../odd "folder"\n\\')
    assert r'FOLDER = "../../odd \"folder\"\n\\"' in texts.test
    compile(texts.test, "test", "exec")


@pytest.mark.spark
@pytest.mark.parametrize("shape", StarterShape)
def test_the_test_of_a_starter_passes(tmp_path: Path, spark: SparkSession, shape: StarterShape) -> None:
    _, test = write(tmp_path, "retail.begun", shape)
    tests = functions_of(test)
    assert len(tests) == 2
    for function in tests:
        function(spark)


@pytest.mark.spark
@pytest.mark.parametrize("shape", StarterShape)
def test_a_starter_runs_on_what_kappa_generate_makes(tmp_path: Path, spark: SparkSession, shape: StarterShape) -> None:
    write(tmp_path, "retail.begun", shape)
    topology = registry.load(tmp_path / "topologies", "retail.begun")
    driver = TopologyDriver(topology, spark)
    driver.pipe(
        Input(topic=source.topic, key=key, value=value, timestamp_ms=time)
        for source in topology.sources
        for key, value, time in generated(source.topic).records(0, 1_000)
    )
    assert driver.dead_letters == [] and driver.sent("retail.begun")


@pytest.mark.spark
def test_the_test_of_a_starter_fails_when_its_step_is_broken(tmp_path: Path, spark: SparkSession) -> None:
    file, test = write(tmp_path, "retail.begun", StarterShape.RUNNING_TOTAL)
    text = file.read_text()
    file.write_text(
        text.replace('.where("CustomerCardNo IS NOT NULL")', '.where("CustomerCardNo IS NOT NULL").limit(1)')
    )
    assert file.read_text() != text
    for function in functions_of(test):
        with pytest.raises(AssertionError):
            function(spark)


def generated(topic: str) -> Course:
    """What `kappa generate` sends to a topic."""
    (scenario,) = (one for one in SCENARIOS.values() if one.topic == topic)
    return Invoices() if scenario.make is None else Stream(make=scenario.make, time_step=scenario.time_step)


def functions_of(file: Path) -> list[Callable[[SparkSession], Any]]:
    """The tests in a file, in order."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [value for name, value in vars(module).items() if name.startswith("test_")]
