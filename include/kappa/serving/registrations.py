"""Statements that register a published table in an engine, once for all. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Engine(StrEnum):
    """An engine that reads Delta tables by path."""

    SPARK = "spark"
    DATABRICKS = "databricks"
    TRINO = "trino"
    DUCKDB = "duckdb"
    POLARS = "polars"
    SNOWFLAKE = "snowflake"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How an engine registers a table that is there already.

    Attributes:
        is_run: whether a test of Kappa runs the statements.
        notes: what they need, line by line.
        begin: statements before those of the tables, by the name of the schema.
        table: the statement of a table, by the names of schema and table and by path.
        comment: how a line of the engine's language begins that is not run.
    """

    is_run: bool
    table: Callable[[str, str, str], str]
    begin: Callable[[str], tuple[str, ...]] = lambda schema: ()
    notes: tuple[str, ...] = ()
    comment: str = "--"


def statements(engine: Engine, topology: str, paths: Mapping[str, str]) -> list[str]:
    """The lines that register tables, with what to know of them as comments.

    Args:
        engine: the engine.
        topology: name of the topology; its schema has ``_`` for each dot, and so have tables.
        paths: table -> path of the published table.

    Examples:
        >>> statements(Engine.POLARS, "retail.loyalty", {"rewards": "/lake/retail.loyalty/rewards"})[-2:]
        ['import polars as pl', "rewards = pl.scan_delta('/lake/retail.loyalty/rewards')"]
    """
    dialect, schema = DIALECTS[engine], _word(topology)
    origin = "Tests of Kappa run these statements." if dialect.is_run else "No test of Kappa runs these statements."
    notes = [f"{dialect.comment} {note}" for note in (origin, *dialect.notes)]
    return [*notes, *dialect.begin(schema), *(dialect.table(schema, _word(name), path) for name, path in paths.items())]


def _word(name: str) -> str:
    return name.replace(".", "_")


def _spark(schema: str, name: str, path: str) -> str:
    location = re.sub("^s3://", "s3a://", path)
    return f"CREATE TABLE `{schema}`.`{name}` USING DELTA LOCATION {_escaped(location)};"


def _databricks(schema: str, name: str, path: str) -> str:
    return f"CREATE TABLE `{schema}`.`{name}` USING DELTA LOCATION {_escaped(path)};"


def _trino(schema: str, name: str, path: str) -> str:
    values = ", ".join(
        f"{parameter} => {_doubled(value)}"
        for parameter, value in (("schema_name", schema), ("table_name", name), ("table_location", path))
    )
    return f"CALL delta.system.register_table({values});"


def _duckdb(schema: str, name: str, path: str) -> str:
    return f'CREATE VIEW "{schema}"."{name}" AS SELECT * FROM delta_scan({_doubled(path)});'


def _polars(schema: str, name: str, path: str) -> str:
    return f"{name} = pl.scan_delta({path!r})"


def _snowflake(schema: str, name: str, path: str) -> str:
    base = re.sub("^s3://[^/]*/", "", path).removeprefix("/")
    return (
        f"CREATE ICEBERG TABLE \"{schema}\".\"{name}\" EXTERNAL_VOLUME = '<volume>' CATALOG = '<integration>' "
        f"BASE_LOCATION = {_escaped(base)};"
    )


def _escaped(text: str) -> str:
    """A literal of a language whose literals have escapes."""
    escaped = re.sub(r"[\\']", r"\\\g<0>", text)
    return f"'{escaped}'"


def _doubled(text: str) -> str:
    """A literal of standard SQL."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


_NESTED = "Unity Catalog refuses a table whose path is within that of another: register these paths, none below them."

DIALECTS: Mapping[Engine, Dialect] = {
    Engine.SPARK: Dialect(
        is_run=True, begin=lambda schema: (f"CREATE SCHEMA IF NOT EXISTS `{schema}`;",), table=_spark
    ),
    Engine.DATABRICKS: Dialect(
        is_run=False,
        begin=lambda schema: (f"CREATE SCHEMA IF NOT EXISTS `{schema}`;",),
        table=_databricks,
        notes=("The bucket is an external location of the workspace.", _NESTED),
    ),
    Engine.TRINO: Dialect(
        is_run=False,
        begin=lambda schema: (f'CREATE SCHEMA IF NOT EXISTS delta."{schema}";',),
        table=_trino,
        notes=("delta is the catalog; its file has delta.register-table-procedure.enabled=true.",),
    ),
    Engine.DUCKDB: Dialect(
        is_run=True,
        begin=lambda schema: ("INSTALL delta;", "LOAD delta;", f'CREATE SCHEMA IF NOT EXISTS "{schema}";'),
        table=_duckdb,
        notes=("A connection to a lake on S3 needs a secret: CREATE SECRET (TYPE s3, PROVIDER credential_chain);",),
    ),
    Engine.POLARS: Dialect(
        is_run=True,
        begin=lambda schema: ("import polars as pl",),
        table=_polars,
        notes=("polars 2.1 finds no files below a path with a blank or an accent.",),
        comment="#",
    ),
    Engine.SNOWFLAKE: Dialect(
        is_run=False,
        begin=lambda schema: (f'CREATE SCHEMA IF NOT EXISTS "{schema}";',),
        table=_snowflake,
        notes=(
            "<integration> is a catalog integration: CATALOG_SOURCE = OBJECT_STORE, TABLE_FORMAT = DELTA.",
            "<volume> is an external volume of the bucket: BASE_LOCATION is relative to it.",
        ),
    ),
}
