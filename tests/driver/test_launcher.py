"""Law 11, the platform's half: a driver imports the platform that its epoch recorded, and not what is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

import kappa
from kappa.config import Config
from kappa.driver.processes import launcher
from kappa.environments import interpreters
from kappa.errors import CodeError
from kappa.presence import heartbeat
from kappa.record import code

TOPOLOGY = """
from kappa.topology import Append, Source, Topology
t = Topology(
    name="a.b",
    version="1",
    sources=[Source(topic="in", schema="a STRING")],
    outputs=[Append(name="rows", schema="a STRING")],
    step=lambda s: {},
)
"""
JOB = """
import json, os
import kappa, kappa.clock, kappa.driver.driver
from kappa.config import Config
Config.from_env()
files = [kappa.__file__, kappa.driver.driver.__file__]
print(json.dumps([*files, kappa.clock.WHICH, os.environ["KAPPA_TOPOLOGIES"]]), flush=True)
"""


def test_law_11_a_driver_runs_the_platform_of_its_epoch_after_another_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A driver reads no settings file, whatever the process that starts it reads.
    monkeypatch.setenv("KAPPA_SETTINGS", str(tmp_path / "gone.toml"))
    earlier, topologies = tmp_path / "earlier", tmp_path / "topologies"
    shutil.copytree(Path(kappa.__file__).parent, earlier / "kappa", ignore=shutil.ignore_patterns("*.pyc"))
    with (earlier / "kappa" / "clock.py").open("a") as file:
        file.write('\nWHICH = "the platform of the epoch"\n')
    settings = earlier / "kappa" / "config.py"
    settings.write_text(settings.read_text().replace("    rejected_hours: float = 72.0\n", ""))
    (earlier / "kappa" / "driver" / "__main__.py").write_text(JOB)
    topologies.mkdir()
    (topologies / "mine.py").write_text(TOPOLOGY)
    config = Config.from_env(
        {
            "KAPPA_HOME": str(tmp_path / "home"),
            "KAPPA_LAKE": str(tmp_path / "lake"),
            "KAPPA_TOPOLOGIES": str(topologies),
        }
    )
    stored = code.store(config.lake, topologies, "a.b", platform=earlier)
    assert code.store(config.lake, topologies, "a.b") != stored, "what is installed now is another platform"

    process = launcher.launch(config, "a.b", 1, stored, 0)

    log, deadline = launcher.log_file(config, "a.b", 1), time.monotonic() + 200
    while heartbeat.process_start(process):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    root = config.home / "code" / stored
    platform, driver, which, folder = json.loads(log.read_text().splitlines()[-1])
    assert (platform, driver) == (
        str(root / "include" / "kappa" / "__init__.py"),
        str(root / "include" / "kappa" / "driver" / "driver.py"),
    )
    assert which == "the platform of the epoch"
    assert folder == str(root / "topologies")


def settings(folder: Path, **variables: str) -> Config:
    """Settings below a folder."""
    places = {"KAPPA_HOME": "home", "KAPPA_LAKE": "lake", "KAPPA_TOPOLOGIES": "topologies"}
    return Config.from_env({name: str(folder / place) for name, place in places.items()} | variables)


def environ_of_driver(config: Config, folder: Path, environment: str = "") -> str:
    """Variables, each ended by a zero, of a driver whose code is of an earlier Kappa with fewer settings."""
    config.topologies.mkdir()
    (config.topologies / "mine.py").write_text(TOPOLOGY)
    driver = folder / "earlier" / "kappa" / "driver"
    driver.mkdir(parents=True)
    for package in (driver, driver.parent):
        (package / "__init__.py").touch()
    text = Path(kappa.__file__).with_name("config.py").read_text()
    before = "\n".join(line for line in text.splitlines() if not line.startswith("    SETTINGS: "))
    assert before != text
    (driver.parent / "config.py").write_text(before)
    release = folder / "release"
    os.mkfifo(release)
    (driver / "__main__.py").write_text(f"open({str(release)!r}).read()")
    stored = code.store(config.lake, config.topologies, "a.b", platform=folder / "earlier")

    process = launcher.launch(config, "a.b", 1, stored, 0, environment=environment)

    while not (environ := Path(f"/proc/{process}/environ").read_bytes()):
        pass  # its program is being loaded
    with release.open("w"):  # once the driver reads it, and ends
        pass
    return environ.decode()


@pytest.mark.parametrize(
    ("master", "workers", "home", "left"),
    [
        ("local[2]", "{own}/bin/python3", "{own}/lib/python3/site-packages/pyspark", set()),
        ("local[2]", "/opt/workers/bin/python", "/opt/spark", {"SPARK_HOME"}),
        ("spark://h:7077", "/opt/workers/bin/python", "/opt/spark", {"PYSPARK_PYTHON", "SPARK_HOME"}),
        ("spark://h:7077", "{own}/bin/python3", "{other}/lib/python3/site-packages/pyspark", {"SPARK_HOME"}),
    ],
)
def test_a_driver_of_another_interpreter_gets_no_python_of_spark_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, workers: str, home: str, left: set[str]
) -> None:
    config = settings(tmp_path, KAPPA_ENVIRONMENTS=f"{tmp_path}/other/bin/python", KAPPA_SPARK_MASTER=master)
    venv.create(tmp_path / "other", symlinks=True, with_pip=False)
    places = {"own": Path(sys.executable).parents[1], "other": tmp_path / "other"}
    values = {"PYSPARK_PYTHON": workers, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_HOME": home}
    for name, value in values.items():
        monkeypatch.setenv(name, value.format(**places))
    (other,) = interpreters.others(config)
    environ = environ_of_driver(config, tmp_path, other.environment.id)
    assert {line.partition("=")[0] for line in environ.split("\0")} & values.keys() == left


def test_a_driver_of_this_interpreter_has_the_python_of_spark_that_somebody_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/workers/bin/python")
    assert "PYSPARK_PYTHON=/opt/workers/bin/python" in environ_of_driver(settings(tmp_path), tmp_path).split("\0")


def test_a_driver_gets_no_variable_of_the_airflow_that_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "AIRFLOW__CORE__FERNET_KEY": "s3cret-fernet",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:s3cret-db@postgres/airflow",
        "AIRFLOW__API_AUTH__JWT_SECRET_CMD": "cat s3cret-jwt",
        "AIRFLOW_CONN_KAPPA_KAFKA": "s3cret-connection",
        "AIRFLOW_VAR_TOKEN": "s3cret-variable",
        "_AIRFLOW_PROCESS_CONTEXT": "s3cret-context",
        "__AIRFLOW_SUPERVISOR": "s3cret-token",
    }
    inherited = {"KAPPA_MASK_KEY": "of-the-driver", "MINE": "of-the-step", "KAPPA_SETTINGS": "/srv/kappa.toml"}
    for name, value in {**secrets, **inherited}.items():
        monkeypatch.setenv(name, value)
    config = settings(tmp_path, KAPPA_MASK_KEY="of-the-driver")
    environ = environ_of_driver(config, tmp_path)
    assert "s3cret" not in environ and "AIRFLOW" not in environ
    assert {"KAPPA_MASK_KEY=of-the-driver", "MINE=of-the-step"} <= set(environ.split("\0"))
    assert "KAPPA_SETTINGS" not in environ, "to code of before it is an unknown setting"


STARTING = """
import os, threading
from pathlib import Path
from kappa.config import Config
from kappa.driver.processes import launcher
from kappa.spark.gateway import start_jvm

starting = threading.Thread(target=start_jvm, args=({{}},))
starting.start()
open({begun!r}).read()
process = launcher.launch(Config.from_env(), "a.b", 1, {code!r}, 0)
while not (environ := Path(f"/proc/{{process}}/environ").read_bytes()):
    pass  # its program is being loaded
print(environ.decode().replace("\\0", "\\n"), flush=True)
for pipe in {ends!r}:
    open(pipe, "w").close()
starting.join()
"""


@pytest.mark.parametrize("arguments", [None, "--verbose pyspark-shell"])
def test_a_driver_gets_no_arguments_of_a_jvm_that_its_starter_is_starting(
    arguments: str | None, tmp_path: Path
) -> None:
    topologies, driver = tmp_path / "topologies", tmp_path / "earlier" / "kappa" / "driver"
    topologies.mkdir()
    (topologies / "mine.py").write_text(TOPOLOGY)
    driver.mkdir(parents=True)
    for package in (driver, driver.parent):
        (package / "__init__.py").touch()
    shutil.copy(Path(kappa.__file__).with_name("config.py"), driver.parent)
    begun, release, answer = (str(tmp_path / name) for name in ("begun", "release", "answer"))
    for pipe in (begun, release, answer):
        os.mkfifo(pipe)
    (driver / "__main__.py").write_text(f"open({release!r}).read()")
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f'#!/bin/sh\nprintf "%s" "$PYSPARK_SUBMIT_ARGS" > {begun}\ncat {answer}\nexit 1\n')
    submit.chmod(0o755)
    folders = {"KAPPA_HOME": "home", "KAPPA_LAKE": "lake", "KAPPA_TOPOLOGIES": "topologies", "SPARK_HOME": ""}
    env = {**os.environ, **{name: str(tmp_path / folder) for name, folder in folders.items()}}
    env.pop("PYSPARK_SUBMIT_ARGS", None)
    env |= {} if arguments is None else {"PYSPARK_SUBMIT_ARGS": arguments}
    stored = code.store(str(tmp_path / "lake"), topologies, "a.b", platform=tmp_path / "earlier")
    script = STARTING.format(begun=begun, code=stored, ends=[release, answer])

    process = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)

    inherited = [line for line in process.stdout.splitlines() if line.startswith("PYSPARK_SUBMIT_ARGS=")]
    assert "HOME=" in process.stdout, process.stderr
    assert inherited == ([] if arguments is None else [f"PYSPARK_SUBMIT_ARGS={arguments}"])


def test_code_without_an_entry_for_a_driver_is_refused_with_a_way(tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path / "home"), "KAPPA_TOPOLOGIES": str(tmp_path / "topologies")})
    config.topologies.mkdir()
    (config.topologies / "mine.py").write_text(TOPOLOGY)
    (tmp_path / "earlier" / "kappa").mkdir(parents=True)
    (tmp_path / "earlier" / "kappa" / "__init__.py").touch()
    stored = code.store(config.lake, config.topologies, "a.b", platform=tmp_path / "earlier")

    with pytest.raises(CodeError, match=rf"Code {stored} of 'a.b' was stored before .*: kappa replay a.b$"):
        launcher.launch(config, "a.b", 1, stored, 0)
