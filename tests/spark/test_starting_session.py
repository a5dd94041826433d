"""Spark starts beside a driver's own work: the driver gets the session or the error, and no JVM outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from kappa.config import Config
from kappa.errors import ConfigError
from kappa.spark import session
from kappa.spark.session import StartingSession

MARK = "OF_TEST"
CODE = """
import sys, threading, time
from kappa.config import Config
from kappa.spark.session import StartingSession

starting = StartingSession(Config.from_env(), "beside")
"""


def started(rest: str, mark: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, MARK: mark, "KAPPA_SPARK_MASTER": "local[2]", "TMPDIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", CODE + rest], env=environment, stdout=subprocess.PIPE, text=True)


def marked(mark: str) -> list[psutil.Process]:
    """The processes that inherited a mark."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return processes


@pytest.mark.spark
def test_the_session_that_started_in_a_thread_is_the_session_of_the_process(tmp_path: Path) -> None:
    rest = """
spark = starting.session()
assert starting.session() is spark
from pyspark.sql import SparkSession, functions as F
assert SparkSession.builder.getOrCreate() is spark
assert "starting-spark" not in {thread.name for thread in threading.enumerate()}
double = F.udf(lambda n: 2 * n, "BIGINT")
print(spark.range(3).select(F.sum(double("id"))).first()[0], spark.conf.get("spark.sql.session.timeZone"))
spark.stop()
"""
    process = started(rest, str(uuid.uuid4()), tmp_path)
    assert process.communicate(timeout=300)[0].split() == ["6", "UTC"]
    assert process.returncode == 0


@pytest.mark.e2e
@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("killed", [False, True])
def test_no_jvm_outlives_a_process_that_ends_while_spark_starts(seconds: float, killed: bool, tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    process = started(f"time.sleep({60 if killed else seconds})", mark, tmp_path)
    if killed:
        time.sleep(1 + seconds)
        process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    assert process.returncode == (-signal.SIGKILL if killed else 0)
    deadline = time.monotonic() + 60
    while (survivors := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [" ".join(one.cmdline())[:100] for one in survivors] == []
    assert killed or not list(tmp_path.glob("kappa-spark-*")), "Spark's settings, secrets among them"


def test_a_failed_start_of_spark_is_raised_where_the_session_is_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java(*_: object) -> None:
        raise ConfigError("There is no Java.")

    monkeypatch.setattr(session, "build_session", no_java)
    starting = StartingSession(Config.from_env({}), "beside")
    for _ in range(2):
        with pytest.raises(ConfigError, match="no Java"):
            starting.session()


REPLACED = """
import os, signal
from types import SimpleNamespace
from kappa.config import Config
from kappa.driver.lazy_engines import LazyEngines
from kappa.spark.session import LazySession

def is_dead(session):
    return LazyEngines.is_spark_dead(SimpleNamespace(opened_session=session))

with LazySession(config=Config.from_env(), name="replaced") as lazy:
    first = lazy.session
    cached = first.range(3).cache()
    assert cached.count() == 3 and lazy.session is first
    process = first.sparkContext._gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    second = lazy.session
    print(second.range(4).count(), second.sql("SELECT 'text' AS word").first()[0], lazy.session is second)
    print(is_dead(first), is_dead(second))
    second.sparkContext._jsc.sc().stop()  # as the master of a cluster does that takes an application away
    print(second.sparkContext._gateway.proc.poll(), is_dead(second))
    os.kill(second.sparkContext._gateway.proc.pid, signal.SIGKILL)
print("stopped")
"""


@pytest.mark.spark
def test_a_session_whose_jvm_was_killed_or_stopped_is_not_used_again(tmp_path: Path) -> None:
    env = {**os.environ, "KAPPA_SPARK_MASTER": "local[1]", "TMPDIR": str(tmp_path)}
    process = subprocess.run([sys.executable, "-c", REPLACED], env=env, capture_output=True, text=True, check=False)
    words = process.stdout.split()
    assert words[:3] + words[-1:] == ["4", "text", "True", "stopped"], process.stderr
    assert words[3:5] == ["True", "False"] and words[5:7] == ["None", "True"], "a new driver gets a new JVM"
    assert process.returncode == 0
