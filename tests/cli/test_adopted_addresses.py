"""The addresses that `kappa adopt` takes: as Spark prints them, and with `@` in a path."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from kappa.cli import app
from kappa.errors import KappaError


def objection(tmp_path: Path, address: str) -> str:
    """Why `kappa adopt` refuses a table, or the query checkpoint that it looks for next, which is not there."""
    (tmp_path / "topologies").mkdir(exist_ok=True)
    names = {"LAKE": "lake", "TOPOLOGIES": "topologies"}
    environ = {"KAPPA_HOME": str(tmp_path), **{f"KAPPA_{name}": str(tmp_path / path) for name, path in names.items()}}
    words = ["adopt", "a.b", "--table", f"t={address}", "--checkpoint", f"file:{tmp_path}/none"]
    error = CliRunner().invoke(app, words, env=environ).exception
    assert isinstance(error, KappaError), error
    return str(error)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
@pytest.mark.parametrize("name", ["orders", "orders@2", "orders@0@0"])
def test_a_table_is_where_spark_says_that_it_is(tmp_path: Path, prefix: str, name: str) -> None:
    write_deltalake(str(tmp_path / name.removesuffix("@0")), pa.table({"id": ["a"]}))
    answer = objection(tmp_path, f"{prefix}{tmp_path}/{name}")
    assert "There is no Delta table" not in answer and f"{tmp_path}/none" in answer and ":/" not in answer


def test_a_version_of_a_table_without_such_a_name_is_looked_up(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "orders"), pa.table({"id": ["a"]}))
    assert "version 7" in objection(tmp_path, f"{tmp_path}/orders@7").lower()
    assert "There is no Delta table" in objection(tmp_path, f"{tmp_path}/orders@x")
