"""The demo from the wheel, with the lowest and with the highest versions that its requirements permit.

Nightly: it downloads an environment for each. The broker is the one whose jars Kappa fetches. The highest versions have
the highest Python of the range that is on the path: ``PATH=/path/to/python3.12/bin:$PATH make nightly`` names one.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from support import environments
from support.environments import call

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.e2e]

UV = Path(sys.prefix) / "bin" / "uv"


@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
def test_the_demo_runs_with_the_versions_at_either_end_of_the_ranges(
    resolution: str, tmp_path: Path, wheel: Path
) -> None:
    assert UV.is_file(), "scripts/bootstrap installs uv into the environment"
    environment = tmp_path / "venv"
    lock = tmp_path / "lock.txt"
    resolve = ("--extra", "local", "--resolution", resolution, "--no-emit-package", environments.NAME, "-o", lock)
    project = wheel.parent / "source" / "pyproject.toml"
    base = Path(sys.executable) if resolution == "lowest-direct" else highest_python(project, tmp_path)
    call(UV, "pip", "compile", "--quiet", "--python", base, project, *resolve, folder=tmp_path)
    call(UV, "venv", "--quiet", "--python", base, environment, folder=tmp_path)
    python = environment / "bin" / "python"
    call(UV, "pip", "install", "--quiet", "--python", python, "--requirement", lock, folder=tmp_path)
    call(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel, folder=tmp_path)

    repository = tmp_path / "repository"  # with the examples and the DAGs, and without the packages
    for name in environments.tracked("kappa.toml", "dags", "plugins", "scripts", "include/topologies"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(environments.ROOT / name, repository / name)
    shown = call(
        python, repository / "scripts" / "demo.py", "--exit", folder=repository, KAPPA_HOME=str(tmp_path / "home")
    )
    versions = re.findall(r"^(apache-airflow|delta-spark|deltalake|pyspark)==(.*)$", lock.read_text(), re.MULTILINE)
    print(resolution, call(python, "--version", folder=tmp_path).strip(), dict(versions))
    assert re.findall(r"^(PROVED|FAILED) ", shown, re.MULTILINE) == ["PROVED"] * 5, shown[-3000:]


def highest_python(project: Path, folder: Path) -> Path:
    """The highest Python on the path that a project takes.

    Args:
        project: its pyproject.toml.
        folder: where to ask.
    """
    versions = SpecifierSet(tomllib.loads(project.read_text())["project"]["requires-python"])
    listing = json.loads(call(UV, "python", "list", "--only-installed", "--output-format", "json", folder=folder))
    pythons = {Version(one["version"]): Path(one["path"]) for one in listing if one["version"] in versions}
    return pythons[max(pythons)]
