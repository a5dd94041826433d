"""Python functions in a topology run in Spark's workers, in a test of that topology."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support import python_functions as functions

from kappa.testing import Input, TopologyDriver
from kappa.topology import registry


@pytest.mark.spark
@pytest.mark.parametrize("load", [registry.load, registry.load_apart], ids=["load", "load_apart"])
def test_python_functions_run_in_a_test_of_a_topology(tmp_path: Path, spark: SparkSession, load: Any) -> None:
    functions.write(tmp_path, "a.functions", "pos", beside=f"beside_{load.__name__}")
    driver = TopologyDriver(load(tmp_path, "a.functions"), spark)
    driver.pipe(Input(topic="pos", value=functions.value(number)) for number in range(5))
    assert sorted(driver.rows("rows"), key=lambda row: row["amount"]) == functions.expected(range(5))


@pytest.mark.spark
def test_a_topology_imported_as_a_module_of_its_own_runs_python_functions(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.write(tmp_path, "a.functions", "pos", beside="beside_imported")
    monkeypatch.syspath_prepend(str(tmp_path))
    import functions as imported  # type: ignore[import-not-found]

    try:
        driver = TopologyDriver(imported.functions, spark)
        driver.pipe(Input(topic="pos", value=functions.value(number)) for number in range(3))
        assert sorted(driver.rows("rows"), key=lambda row: row["amount"]) == functions.expected(range(3))
    finally:
        del sys.modules["functions"]
