"""Readers of a Delta table that know nothing but its path: four engines, and a process that never stops reading."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from deltalake import DeltaTable

from kappa.config import Config
from support import path_watch
from support.s3_server import ensure_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: DuckDB with the extension that reads Delta tables, which comes in a package of its own.
DUCKDB_LOCK = Path(__file__).with_name("duckdb.txt")
_DUCKDB = """
import json, pathlib, sys
import duckdb, duckdb_extension_delta
(extension,) = pathlib.Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
connection = duckdb.connect()
connection.sql("SET enable_progress_bar = false")
connection.sql(f"LOAD '{extension}'")
scan = f"delta_scan('{sys.argv[1]}'" + (f", version={sys.argv[2]})" if len(sys.argv) > 2 else ")")
print(json.dumps(connection.sql(f"SELECT * FROM {scan}").fetchall()))
"""

Rows = list[tuple[Any, ...]]


def rows_of(path: str, version: int | None = None) -> Rows:
    """Rows of a table as ``deltalake`` reads them, sorted."""
    table = DeltaTable(path, version=version).to_pyarrow_table()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def by_engine(path: str, version: int | None = None, session: SparkSession | None = None) -> dict[str, Rows]:
    """What each engine reads of a table, sorted.

    Args:
        version: its Delta version; None for the newest.
        session: Spark, which reads it too.
    """
    python = ensure_python(Config.from_env({}).cache, DUCKDB_LOCK)
    words = [str(python), "-c", _DUCKDB, path, *([] if version is None else [str(version)])]
    duckdb = subprocess.run(words, capture_output=True, text=True, check=False)
    assert duckdb.returncode == 0, duckdb.stderr
    rows: dict[str, Sequence[Any]] = {
        "deltalake": rows_of(path, version),
        "polars": pl.read_delta(path, version=version).rows(),
        "duckdb": json.loads(duckdb.stdout),
    }
    if session is not None:
        reader = session.read.format("delta")
        reader = reader if version is None else reader.option("versionAsOf", version)
        rows["spark"] = reader.load(path).collect()
    return {engine: sorted(map(tuple, lines)) for engine, lines in rows.items()}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the process read once.

    Attributes:
        path: the table.
        version: its Delta version.
        rows: the rows, sorted.
    """

    path: str
    version: int
    rows: Rows


@contextmanager
def watching(folder: Path, *paths: str) -> Iterator[list[Reading]]:
    """Read tables all the time in a process of its own; the readings are there at the end. Any error fails the test."""
    lines, end, readings = folder / "readings", folder / "end", list[Reading]()
    process = subprocess.Popen(
        [sys.executable, path_watch.__file__, lines, end, *paths], stderr=subprocess.PIPE, text=True
    )
    try:
        yield readings
        end.touch()
        _, error = process.communicate()
        assert process.returncode == 0, error
        for fields in map(json.loads, lines.read_text().splitlines()):
            rows = sorted(tuple(row.values()) for row in fields["rows"])
            readings.append(Reading(path=fields["path"], version=fields["version"], rows=rows))
    finally:
        process.kill()
        process.wait()
