"""Functions of a topology, pickled as Spark pickles them and called where its files are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import python_functions as functions

from kappa.slices.step import call_step
from kappa.topology import Slice, Topology, registry

#: What Spark does with the functions of a plan: it pickles them while the step runs.
STEP = """

def step(slice):
    from pyspark import cloudpickle
    return {"rows": cloudpickle.dumps([plain.func, by_series.func, by_batch])}


import dataclasses
functions = dataclasses.replace(functions, step=step)
"""
WORKER = """
import json, pickle, sys
import pandas as pd
import pyarrow as pa
plain, by_series, by_batch = pickle.load(sys.stdin.buffer)
batch = pa.RecordBatch.from_pydict({"id": ["a"], "amount": [7], "plain": [1], "by_series": [2]})
print(json.dumps([plain(7), by_series(pd.Series([7])).tolist(), [b.to_pydict() for b in by_batch([batch])]]))
"""


def imported(folder: Path, name: str) -> Topology:
    """As the test of a topology imports it."""
    sys.path.insert(0, str(folder))
    try:
        import functions as module  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(folder))
    del sys.modules["functions"]
    sys.modules["functions"] = module
    topology: Topology = module.functions
    return topology


@pytest.mark.parametrize("load", [registry.load, registry.load_apart, imported])
def test_a_worker_runs_functions_without_the_topology_file(
    tmp_path: Path, load: Callable[[Path, str], Topology]
) -> None:
    functions.write(tmp_path, "a.functions", "pos", beside=f"beside_{load.__name__}_pickled")
    with (tmp_path / "functions.py").open("a") as file:
        file.write(STEP)
    try:
        topology = load(tmp_path, "a.functions")
        pickled = call_step(topology, Slice(seq=1, records={}, tables={}))["rows"]
    finally:
        sys.modules.pop("functions", None)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    worker = subprocess.run(
        [sys.executable, "-c", WORKER],
        input=pickled,
        capture_output=True,
        cwd="/",
        env=env,
        check=False,  # type: ignore[call-overload]
    )
    assert worker.returncode == 0, worker.stderr.decode()
    row = {"id": ["a"], "amount": [7], "plain": [1], "by_series": [2], "by_batch": [21]}
    assert json.loads(worker.stdout) == [7 * 3 + 2000, [3], [row]]
