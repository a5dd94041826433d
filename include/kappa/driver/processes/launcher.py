"""Starts drivers detached from the process that asked for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kappa.config import Config
from kappa.driver.processes import launches
from kappa.environments.interpreters import matches
from kappa.errors import CodeError, KappaError
from kappa.names import epoch_word
from kappa.record.code import extract
from kappa.setting_layers import PREFIX
from kappa.spark import gateway
from kappa.spark.session import local_cores

# Run in a process of its own, which ends at once: the driver is then an orphan, and a task runner, a shell or a
# web server that ends its children does not end it. Prints the driver's process id.
_DETACH = """
import subprocess, sys
log = open(sys.argv[1], "ab")
nothing = subprocess.DEVNULL
driver = subprocess.Popen(sys.argv[2:], stdin=nothing, stdout=log, stderr=log, start_new_session=True, cwd="/")
print(driver.pid)
"""

# An Airflow task starts drivers with its own environment. What Airflow keeps there (its database's address, the keys of
# its passwords and tokens, connections, variables) is none of a topology's business.
_OF_AIRFLOW = re.compile(r"_*AIRFLOW", re.IGNORECASE)


#: Names of folders that packages of an environment are in.
_PACKAGES = {"site-packages", "dist-packages"}


def launch(config: Config, topology: str, epoch: int, code: str, last_claim: int, *, environment: str = "") -> int:
    """Start the driver of an epoch with the code that the epoch recorded, on this host, in a session of its own.

    It has the environment of the caller without the variables of Airflow, and without those that the caller's own JVM
    starts with. Not idempotent by itself: the driver's claim
    decides when two are started.

    Args:
        config: the settings.
        topology: its name.
        epoch: the epoch.
        code: content hash of its code.
        last_claim: number of the claim that was the last in its ledger when the launch was decided on, 0 for none: a
            driver that comes up after another one's claim ends.
        environment: id of the environment in which it is to run: with the interpreter of this host that has it, or
            that of this process where none has.

    Returns:
        The driver's process id.

    Raises:
        CodeError: the lake does not hold that code, or it was stored before Kappa 0.1.0.
    """
    root = extract(config.lake, code, config.home)
    if not (root / "include" / "kappa" / "driver" / "__main__.py").is_file():
        raise CodeError(
            f"Code {code} of {topology!r} was stored before Kappa 0.1.0, and no driver of it can be started. Build an "
            f"epoch with the code that is deployed: kappa replay {topology}",
            code=code,
        )
    # Otherwise glibc keeps what is freed in up to eight places a core, in Python and in the JVM.
    inherited = {name: value for name, value in gateway.inherited().items() if not _OF_AIRFLOW.match(name)}
    env = {"MALLOC_ARENA_MAX": "2", **inherited, **config.to_env(), "KAPPA_TOPOLOGIES": str(root / "topologies")}
    for name in config.to_env().keys() - _settings_of(root):
        env.pop(name, None)
    python = launches.python(config, environment)
    for name in _of_other_interpreters(env, python, config):
        env.pop(name)
    env["PYTHONPATH"] = os.pathsep.join([str(root / "include"), *filter(None, [env.get("PYTHONPATH")])])
    arguments = {"topology": topology, "epoch": epoch, "code": code, "claim": last_claim}
    words = (word for name, value in arguments.items() for word in (f"--{name}", str(value)))
    # Not what lies in the working folder.
    command = [python, "-P", "-m", "kappa.driver", *words]
    file = log_file(config, topology, epoch)
    file.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.run(
        [sys.executable, "-P", "-c", _DETACH, str(file), *command], env=env, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise KappaError(f"The driver of {topology!r} did not start: {process.stderr.strip()}")
    return int(process.stdout)


def _of_other_interpreters(env: Mapping[str, str], python: str, config: Config) -> set[str]:
    """Variables by which Spark would run the Python or the packages of another environment than the driver's.

    On a cluster the Python of workers is a path on other hosts, which stays unless it is that of an interpreter of this
    one. ``spark.pyspark.python`` is a setting, which stays.
    """
    is_other = python != sys.executable
    others = {Path(one).parent for one in (sys.executable, *matches(config.environments))} - {Path(python).parent}
    workers, home = env.get("PYSPARK_PYTHON", ""), Path(env.get("SPARK_HOME", ""))
    names = set()
    if workers == sys.executable:  # a driver set it for its own workers
        names.add("PYSPARK_PYTHON")
    if is_other and (local_cores(config.spark_master) is not None or Path(workers).parent in others):
        names.add("PYSPARK_PYTHON")
    if is_other:
        names.add("PYSPARK_DRIVER_PYTHON")
    # A package pyspark is of one environment; Spark from an archive is of none.
    if is_other and _PACKAGES & set(home.parts) and not home.is_relative_to(Path(python).parent.parent):
        names.add("SPARK_HOME")
    return names & env.keys()


def _settings_of(root: Path) -> set[str]:
    """Variables that the code of an epoch knows: a setting that came later is an error to it."""
    fields = re.findall(r"^    (\w+): ", (root / "include" / "kappa" / "config.py").read_text(), re.MULTILINE)
    return {PREFIX + name.upper() for name in fields}


def log_file(config: Config, topology: str, epoch: int) -> Path:
    """Log of an epoch's driver on this host."""
    return config.home / "logs" / f"{topology}.{epoch_word(epoch)}.log"
