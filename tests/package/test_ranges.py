"""The demo from the wheel, with the lowest and with the highest versions that its requirements permit.

Nightly: it downloads an environment for each. The broker is the one whose jars Kappa fetches.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
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
    call(UV, "pip", "compile", "--quiet", wheel.parent / "source" / "pyproject.toml", *resolve, folder=tmp_path)
    call(sys.executable, "-m", "venv", "--without-pip", environment, folder=tmp_path)
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
    print(resolution, dict(versions))
    assert re.findall(r"^(PROVED|FAILED) ", shown, re.MULTILINE) == ["PROVED"] * 5, shown[-3000:]
