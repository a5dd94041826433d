"""The wheel: what is in it, and what each part of it needs."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from support import environments
from support.live_lake import NAME, live_lake

import kappa

pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def reader(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> environments.Environment:
    """An environment with the wheel and without any extra."""
    return environments.environment(tmp_path_factory.mktemp("reader") / "venv", wheel)


def run(environment: environments.Environment, *words: str, folder: Path, **variables: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the environment's ``kappa``, or of its Python after ``-c``."""
    program = environment.python if words[0] == "-c" else environment.command
    call = subprocess.run(
        [program, *words],
        cwd=folder,
        env={"PATH": os.defpath, "HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return call.returncode, call.stdout, call.stderr


def test_the_wheel_has_each_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = environments.tracked("include")
    examples = "include/topologies/"
    assert names == {name.removeprefix("include/") for name in packages if not name.startswith(examples)}


def test_one_place_says_the_version(reader: environments.Environment, wheel: Path, tmp_path: Path) -> None:
    assert run(reader, "--version", folder=tmp_path) == (0, f"kappa {kappa.__version__}\n", "")
    assert wheel.name.startswith(f"kappa_replay-{kappa.__version__}-")
    compose = (environments.ROOT / "docker-compose.yaml").read_text()
    assert f"image: kappa:{kappa.__version__}\n" in compose


def test_a_reader_of_tables_needs_neither_spark_nor_airflow(
    reader: environments.Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = {"pyspark", "delta-spark", "apache-airflow", "pandas", "fastapi"}
    assert not heavy & reader.distributions
    lake = live_lake(tmp_path, monkeypatch)
    settings = {"KAPPA_LAKE": lake.lake, "KAPPA_HOME": str(tmp_path / "elsewhere")}
    query = f"SELECT COUNT(*) AS n FROM {NAME}.rewards"

    program = f"""
from kappa import serving
from kappa.config import Config
config = Config.from_env()
snapshot = serving.snapshot(config, "{NAME}")
print(snapshot.epoch, snapshot.seq, snapshot.arrow("rewards").num_rows, serving.sql(config, "{query}").to_pylist())
"""
    assert run(reader, "-c", program, folder=tmp_path, **settings) == (0, "1 2 2 [{'n': 2}]\n", "")
    code, output, errors = run(reader, "query", NAME, "rewards", "--json", folder=tmp_path, **settings)
    assert (code, errors) == (0, "") and "3.0000" in output
    for words in (("sql", query), ("path", NAME, "rewards"), ("history", NAME)):
        code, _, errors = run(reader, *words, folder=tmp_path, **settings)
        assert (code, errors) == (0, ""), words


def test_a_command_names_the_extra_that_it_lacks(
    reader: environments.Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = live_lake(tmp_path, monkeypatch)
    code, output, errors = run(reader, "ui", folder=tmp_path, KAPPA_LAKE=lake.lake)
    assert (code, output) == (2, "")
    assert errors.startswith("ConfigError: This command needs the package uvicorn, which is not installed here. ")
    assert errors.endswith(f" Install it: pip install 'kappa-replay[web]=={kappa.__version__}'\n")


@pytest.mark.parametrize(
    ("extras", "packages"),
    [
        (("driver",), ("kappa",)),
        (("web",), ("kappa_web",)),
        (("airflow",), ("kappa", "kappa_web", "kappa_airflow")),
        (("local",), ("kappa", "kappa_web", "kappa_airflow", "kappa_local")),
    ],
)
def test_an_extra_brings_what_its_modules_import(
    extras: tuple[str, ...], packages: tuple[str, ...], wheel: Path, tmp_path: Path
) -> None:
    environment = environments.environment(tmp_path / "venv", wheel, extras)
    program = f"""
import importlib, pkgutil
for name in {packages}:
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print("imported")
"""
    code, output, errors = run(
        environment, "-c", program, folder=tmp_path, AIRFLOW_HOME=str(tmp_path / "airflow"), PYTHONWARNINGS="ignore"
    )
    assert code == 0 and output.endswith("imported\n"), errors
