"""Statements that register a published table in an engine, once for all. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, count

from kappa.store.address import is_remote


class Engine(StrEnum):
    """An engine that reads Delta tables by path."""

    SPARK = "spark"
    DATABRICKS = "databricks"
    TRINO = "trino"
    DUCKDB = "duckdb"
    POLARS = "polars"
    SNOWFLAKE = "snowflake"


def _word(name: str) -> str:
    return name.replace(".", "_")


def _python_word(name: str) -> str:
    """A word without two underscores in a row, which join two words to a variable."""
    return re.sub("_+", "_", _word(name)).rstrip("_")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How an engine registers a table that is there already.

    Attributes:
        is_run: whether a test of Kappa runs the statements.
        notes: what they need, line by line.
        begin: statements before those of the tables, by the name of the schema.
        table: the statement of a table, by the names of schema and table and by path.
        word: a name of Kappa's as the engine has it, unless another one is the same there.
        obstacle: why the engine does not read a path; empty if it does.
        comment: how a line of the engine's language begins that is not run.
    """

    is_run: bool
    table: Callable[[str, str, str], str]
    begin: Callable[[str], tuple[str, ...]] = lambda schema: ()
    notes: tuple[str, ...] = ()
    word: Callable[[str], str] = _word
    obstacle: Callable[[str], str] = lambda path: ""
    comment: str = "--"


def statements(
    engine: Engine,
    topology: str,
    paths: Mapping[str, str],
    *,
    topologies: Sequence[str] = (),
    tables: Collection[str] | None = None,
) -> list[str]:
    """The lines that register tables, with what to know of them as comments.

    Names with ``_`` for each dot may be the same in an engine. Then the later one has a number, and a comment says so.

    Args:
        engine: the engine.
        topology: name of the topology; its schema has ``_`` for each dot, and so have tables.
        paths: table -> path of the published table, of all tables of the topology.
        topologies: those of the lake; an earlier one keeps its name. Empty where it is alone.
        tables: those that are registered; None for all.

    Examples:
        >>> statements(Engine.POLARS, "retail.loyalty", {"rewards": "/lake/retail.loyalty/rewards"})[-2:]
        ['import polars as pl', "retail_loyalty__rewards = pl.scan_delta('/lake/retail.loyalty/rewards')"]
    """
    dialect = DIALECTS[engine]
    schemas = _numbered(topologies or [topology], dialect.word)
    words = _numbered(sorted(paths, key=lambda name: ("." in name, name)), dialect.word)
    names = [name for name in paths if tables is None or name in tables]
    origin = "Tests of Kappa run these statements." if dialect.is_run else "No test of Kappa runs these statements."
    notes = [
        origin,
        *dialect.notes,
        *_meaning("topology", topology, schemas, dialect.word),
        *(note for name in names for note in _meaning("table", name, words, dialect.word)),
        *(f"{name}: {obstacle}" for name in names if (obstacle := dialect.obstacle(paths[name]))),
    ]
    return [
        *(f"{dialect.comment} {note}" for note in notes),
        *dialect.begin(schemas[topology]),
        *(dialect.table(schemas[topology], words[name], paths[name]) for name in names),
    ]


def rivals(topology: str, topologies: Iterable[str]) -> list[str]:
    """Topologies whose names are the same as one's in some engine, itself among them."""
    return [name for name in topologies if _python_word(name) == _python_word(topology)]


def _numbered(names: Iterable[str], word: Callable[[str], str]) -> dict[str, str]:
    """Name -> its word; of names with one word the later ones have a number after it."""
    words: dict[str, str] = {}
    for name in names:
        plain = word(name)
        numbered = (f"{plain}_{number}" for number in count(2))
        words[name] = next(one for one in chain([plain], numbered) if one not in words.values())
    return words


def _meaning(kind: str, name: str, words: Mapping[str, str], word: Callable[[str], str]) -> list[str]:
    """Which name a word with a number stands for."""
    plain = word(name)
    if words[name] == plain:
        return []
    other = next(one for one, taken in words.items() if taken == plain)
    return [f"{words[name]} stands for {kind} {name}: {kind} {other} has the name {plain}."]


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
    return f"{schema}__{name} = pl.scan_delta({path!r})"


def _polars_obstacle(path: str) -> str:
    """polars 2.1 looks for a file under the name that its URL has."""
    read = "%" if is_remote(path) else ""
    if not (escaped := sorted({*re.findall(r"""[^!-~]|["#%<>?`{}]""", path)} - {read})):
        return ""
    characters = ", ".join(map(repr, escaped))
    return f"polars 2.1 finds no files below {path}, because of {characters}. Use kappa.serving.snapshot(…).polars(…)."


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
        word=_python_word,
        obstacle=_polars_obstacle,
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
