"""Rows of a table as of a commit, handed to another engine: as a stream of Arrow, and to polars, DuckDB and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kappa.errors import UsageError, first_line
from kappa.record import merge_on_read
from kappa.record.merge_on_read import Contents

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

#: Gives the rows anew at each call: of these columns, None for all, and at most this many, None for all.
Read = Callable[[Sequence[str] | None, int | None], "pa.RecordBatchReader"]


class RowStream:
    """Rows that any reader of Arrow's C stream interface takes, each time from the beginning.

    Source: Apache Arrow, "The Arrow PyCapsule Interface".
    """

    def __init__(self, read: Read, schema: pa.Schema) -> None:
        self._read = read
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        """The columns, without a read."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows, in the table's columns; another requested schema is ignored."""
        return self._read(None, None).__arrow_c_stream__()


def polars_frame(read: Read, schema: pa.Schema) -> pl.LazyFrame:
    """A lazy frame that reads when it is collected: the columns that are needed, batch by batch.

    Raises:
        UsageError: polars is not installed.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError as error:
        raise _missing("polars", error) from error

    def batches(
        columns: list[str] | None, where: pl.Expr | None, limit: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        needed = columns
        if columns is not None:
            named = [*columns, *(() if where is None else where.meta.root_names())]
            needed = list(dict.fromkeys(named)) or schema.names[:1]  # rows may be counted alone
        for batch in read(needed, limit):
            frame = pl.DataFrame(batch)
            frame = frame if where is None else frame.filter(where)
            yield frame if columns is None else frame.select(columns) if columns else frame.drop(frame.columns)

    return register_io_source(batches, schema=pl.DataFrame(schema.empty_table()).schema)


def duckdb_view(read: Read, schema: pa.Schema, connection: DuckDBPyConnection, view: str) -> DuckDBPyRelation:
    """A view of a connection of DuckDB, which reads the rows each time that it is queried.

    Raises:
        UsageError: DuckDB is not installed, or the connection is not an open one of its own.
    """
    try:
        import duckdb
    except ImportError as error:
        raise _missing("duckdb", error) from error
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        raise UsageError(
            f"A connection of DuckDB is needed, and {type(connection).__name__} is not one. Make one: duckdb.connect()"
        )
    return connection.register(view, RowStream(read, schema)).view(view)


def spark_frame(session: SparkSession, contents: Contents) -> DataFrame:
    """A DataFrame of Spark, which reads Delta's files itself.

    Raises:
        UsageError: the session has no Delta.
    """
    from pyspark.errors import PySparkException

    try:
        return merge_on_read.frame(session, contents, merge_on_read.read_files)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND":
            raise
        raise UsageError(
            f"The session of Spark cannot read Delta: {first_line(error)}. Start it with Delta's package of its "
            f"version: pyspark --packages io.delta:delta-spark_4.2_2.13:4.4.0"
        ) from error


def _missing(package: str, error: ImportError) -> UsageError:
    return UsageError(
        f"The rows cannot be handed to {package}, which is not installed ({first_line(error)}). Install it: "
        f"python -m pip install {package}",
        package=package,
    )
