"""Python workers are reached by Unix sockets, results come by TCP."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kappa.spark import unix_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDTH, ROWS, TIMES = 1_000, 20_000, 4


def families(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The kinds of sockets that this worker has open."""
    names = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(link.name))) as one:
                    names.add(one.family.name)
    yield from [pa.RecordBatch.from_pydict({"family": sorted(names)}) for _ in batches]


def more(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row several times: what comes back is more than what went out, and neither fits a socket."""
    for batch in batches:
        yield from [batch] * TIMES


@pytest.fixture(autouse=True, scope="module")
def shipped() -> Iterator[None]:
    """Pickles the functions of this file by value: workers cannot import it."""
    from pyspark import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.spark
def test_a_worker_is_reached_by_a_private_unix_socket(spark: SparkSession) -> None:
    rows = spark.range(2, numPartitions=2).mapInArrow(families, "family string").toArrow()
    assert set(rows["family"].to_pylist()) == {"AF_UNIX"}
    folder = Path(unix_sockets.private_folder())
    assert list(folder.glob(".*.sock")), "the socket of the worker's daemon"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.spark
def test_rows_that_fill_the_sockets_both_ways_arrive(spark: SparkSession) -> None:
    wide = spark.range(ROWS, numPartitions=1).selectExpr("id", f"repeat('x', {WIDTH}) AS text")
    sums = wide.mapInArrow(more, "id long, text string").selectExpr("sum(id) AS ids", "sum(length(text)) AS bytes")
    assert sums.toArrow().to_pylist() == [{"ids": TIMES * ROWS * (ROWS - 1) // 2, "bytes": TIMES * ROWS * WIDTH}]


@pytest.mark.spark
def test_results_leave_nothing_behind_in_the_jvm(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    hook_files = jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
    hook_files.setAccessible(True)

    def paths() -> set[str]:
        return {str(path) for path in hook_files.get(None) if str(path).endswith(".sock")}

    before = paths()
    for _ in range(3):
        assert spark.range(3).toArrow().num_rows == 3
        assert len(spark.range(3).collect()) == 3
    assert paths() == before


SCRIPT = f"""
from __future__ import annotations
import contextlib, os, socket
from pathlib import Path
import pyarrow as pa
from kappa.spark import unix_sockets
from kappa.testing import local_session

{inspect.getsource(families)}

spark = local_session("sockets")
found = spark.range(1).mapInArrow(families, "family string").toArrow()
is_made = unix_sockets._made_folder.cache_info().currsize
print(found["family"].to_pylist(), unix_sockets.private_folder() if is_made else None, sep="\\n")
spark.stop()
"""


def outcome(tmp_path: Path, **conf: str) -> list[str]:
    """The output of a process whose temporary folder has a path too long for a socket."""
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    env = {**os.environ, "TMPDIR": str(deep), "KAPPA_HOME": str(tmp_path), "KAPPA_SPARK_MASTER": "local[1]"}
    env["KAPPA_SPARK_CONF"] = json.dumps({"spark.driver.memory": "700m", **conf})
    process = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
    return process.stdout.splitlines()[-2:]


@pytest.mark.spark
def test_a_temporary_folder_with_a_long_path_is_skipped_without_leftovers(tmp_path: Path) -> None:
    kinds, folder = outcome(tmp_path)
    assert kinds == "['AF_UNIX']"
    assert folder.startswith("/tmp/kappa-")
    assert not Path(folder).exists()


@pytest.mark.spark
def test_tcp_is_used_where_the_settings_say_so(tmp_path: Path) -> None:
    assert outcome(tmp_path, **{unix_sockets.ENABLED: "false"}) == ["['AF_INET']", "None"]


TWICE = """
import sys, tempfile
from kappa.spark import unix_sockets
for tempfile.tempdir in sys.argv[1:]:
    print(unix_sockets.private_folder())
"""


def test_a_short_temporary_folder_is_used_once_per_process(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as short:
        places = [short, str(tmp_path / ("d" * 60))]
        process = subprocess.run([sys.executable, "-c", TWICE, *places], capture_output=True, text=True, check=True)
        first, second = process.stdout.split()
        assert Path(first).parent == Path(short)
        assert second == first
