"""Readers of a Delta table that know nothing but its path: four engines, and a process that never stops reading.

Tables on S3 are reached with the options that were declared for their lake.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
from deltalake import DeltaTable

from kappa.config import Config
from kappa.store.options import options_of
from support import path_watch
from support.s3_server import ensure_python

#: DuckDB with the extensions that read Delta tables and S3, which come in packages of their own.
DUCKDB_LOCK = Path(__file__).with_name("duckdb.txt")
_DUCKDB = """
import importlib, json, pathlib, sys
import duckdb
connection = duckdb.connect()
connection.sql("SET enable_progress_bar = false")
for name in ("delta", "httpfs"):
    folder = pathlib.Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
    (extension,) = folder.rglob(f"{name}.duckdb_extension")
    connection.sql(f"LOAD '{extension}'")
for statement in json.load(sys.stdin):
    answer = connection.execute(statement)
print(json.dumps(answer.fetchall()))
"""

#: Between two rounds of all engines: each takes a core for seconds, which the drivers need.
_PAUSE_SECONDS = 3.0

Rows = list[tuple[Any, ...]]
#: Runs a statement by Spark.
Query = Callable[[str], Sequence[Any]]


def rows_of(path: str, version: int | None = None) -> Rows:
    """Rows of a table as ``deltalake`` reads them, sorted."""
    table = DeltaTable(path, version=version, storage_options=options_of(path)).to_pyarrow_table()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def by_duckdb(*statements: str) -> list[Any]:
    """Rows of the last of some statements, which one connection of DuckDB runs."""
    python = ensure_python(Config.from_env({}).cache, DUCKDB_LOCK)
    words = [str(python), "-c", _DUCKDB]
    done = subprocess.run(words, input=json.dumps(statements), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def duckdb_login(path: str) -> list[str]:
    """The statements by which DuckDB reaches the lake of a path."""
    options = options_of(path)
    if not options:
        return []
    address = urlsplit(options["aws_endpoint_url"])
    secret = {
        "KEY_ID": options["aws_access_key_id"],
        "SECRET": options["aws_secret_access_key"],
        "REGION": options["aws_region"],
        "ENDPOINT": address.netloc,
        "URL_STYLE": "path",
        "USE_SSL": address.scheme == "https",
    }
    return [f"CREATE SECRET (TYPE s3, {', '.join(f'{name} {value!r}' for name, value in secret.items())})"]


def by_engine(path: str, version: int | None = None, query: Query | None = None) -> dict[str, Rows]:
    """What each engine reads of a table, sorted.

    Args:
        version: its Delta version; None for the newest.
        query: Spark, which reads it too.
    """
    scan = f"delta_scan('{path}'" + (")" if version is None else f", version={version})")
    rows: dict[str, Sequence[Any]] = {
        "deltalake": rows_of(path, version),
        "polars": pl.read_delta(path, version=version, storage_options=options_of(path)).rows(),
        "duckdb": by_duckdb(*duckdb_login(path), f"SELECT * FROM {scan}"),
    }
    if query is not None:
        rows["spark"] = query(
            f"SELECT * FROM delta.`{path}`" + ("" if version is None else f" VERSION AS OF {version}")
        )
    return {engine: sorted(map(tuple, lines)) for engine, lines in rows.items()}


@contextmanager
def engines_reading(path: str, query: Query) -> Iterator[list[dict[str, Rows]]]:
    """Read a table by each engine, again and again; yields what they read, in order. Any error fails the test."""
    readings, errors, ending = list[dict[str, Rows]](), list[BaseException](), threading.Event()

    def read() -> None:
        try:
            while not ending.wait(_PAUSE_SECONDS):
                readings.append(by_engine(path, query=query))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=read, name="engines", daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ending.set()
        thread.join()
    for error in errors:
        raise error


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
    words = [str(lines), str(end), json.dumps(options_of(paths[0])), *paths]
    process = subprocess.Popen([sys.executable, path_watch.__file__, *words], stderr=subprocess.PIPE, text=True)
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
