"""The JVM of a session: its settings reach it, and nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

SECRET = "s3cr3t=with:all #kinds\\of !signs ü"
SCRIPT = """
import sys
from kappa.config import Config
from kappa.spark.session import build_session

session = build_session(Config.from_env(), "secrets")
conf = session.sparkContext._jsc.sc().conf()
print(conf.get("spark.hadoop.fs.s3a.secret.key"), conf.get("spark.driver.memory"), sep="\\n", flush=True)
jvm = session.sparkContext._jvm
print(jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20, flush=True)
sys.stdin.readline()
session.stop()
"""

NAMES = """
import sys
from kappa.config import Config
from kappa.spark.session import build_session

session = build_session(Config.from_env(), "names")
frame = session.createDataFrame([("ä", 1)], "city STRING, n INT")
frame.write.format("delta").partitionBy("city").save(sys.argv[1])
print(session.read.format("delta").load(sys.argv[1]).first(), flush=True)
session.stop()
"""


FAKE = """#!/bin/sh
printf '%s\\n' "$@" > "$OUT/words"
cp "$2" "$OUT/read" && stat -c %a "$2" > "$OUT/mode"
exit 1
"""
START = """
import sys
from kappa.spark.gateway import start_jvm
try:
    start_jvm({"spark.hadoop.fs.s3a.secret.key": sys.stdin.read()})
except Exception as error:
    print(error)
"""


def test_settings_go_in_a_private_file_removed_even_if_no_jvm_starts(tmp_path: Path) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(FAKE)
    submit.chmod(0o755)
    env = {**os.environ, "SPARK_HOME": str(tmp_path), "OUT": str(tmp_path), "TMPDIR": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", START], env=env, input=SECRET, capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith("Spark's JVM ended before it answered.")
    words = (tmp_path / "words").read_text()
    assert "s3cr3t" not in words and words.endswith("--load-spark-defaults\npyspark-shell\n")
    assert (tmp_path / "mode").read_text() == "600\n"
    assert (
        tmp_path / "read"
    ).read_text() == "spark.hadoop.fs.s3a.secret.key=s3cr3t\\=with\\:all\\ \\#kinds\\\\of\\ \\!signs\\ ü\n"
    assert not list(tmp_path.glob("kappa-spark-*"))


@pytest.mark.spark
def test_names_in_every_language_are_the_same_to_both_engines_whatever_the_locale(tmp_path: Path) -> None:
    (scratch := tmp_path / "for scratch").mkdir()
    words = {"LC_ALL": "C", "TMPDIR": str(scratch), "KAPPA_HOME": str(tmp_path), "KAPPA_SPARK_MASTER": "local[1]"}
    table = tmp_path / "ströme"
    answer = subprocess.check_output(
        [sys.executable, "-c", NAMES, str(table)], env={**os.environ, **words}, encoding="utf-8"
    )
    assert "Row(city='ä', n=1)" in answer
    assert DeltaTable(table).to_pyarrow_table().to_pylist() == [{"city": "ä", "n": 1}]


@pytest.mark.spark
def test_spark_settings_reach_the_jvm_without_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAPPA_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("KAPPA_SPARK_MASTER", "local[1]")
    conf = {"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.driver.memory": "700m"}
    monkeypatch.setenv("KAPPA_SPARK_CONF", json.dumps(conf))
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert [process.stdout.readline().rstrip("\n") for _ in range(2)] == [SECRET, "700m"]
        assert 600 < int(process.stdout.readline()) <= 700, "the JVM itself was started with them"
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):  # a child that has ended shows no command line any more
                assert not any("s3cr3t" in word for word in member.cmdline())
        java = next(member for member in family if member.name() == "java")
        assert any("org.apache.spark" in word for word in java.cmdline()), "command lines were read"
        assert not list(tmp_path.glob("kappa-spark-*")), "the file is gone once the JVM runs"
    finally:
        process.communicate("\n")
    assert process.returncode == 0
