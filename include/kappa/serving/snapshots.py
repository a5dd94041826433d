"""A snapshot: the tables and append outputs of an epoch after one slice, read here or handed to another engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kappa.errors import UnknownEpochError, UnknownTableError
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import Contents, batches, contents_of, query, row_of
from kappa.serving import engines
from kappa.serving.hidden_columns import hidden_in, hidden_of, named_in, refusal
from kappa.topology.shapes import Shape

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The exact Delta version of every table and output after one slice.

    Attributes:
        seq: the slice.
        position: the offsets of the log up to which the rows go.
        versions: ``tables/<name>`` or ``outputs/<name>`` -> path and Delta version; of a table that of its last merge.
        tables: table -> the parts of its rows: the merged version, and the changes of slices since.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> before = serving.snapshot(Config.from_env(), "retail.loyalty", seq=1)
        >>> before.rows("rewards", "TotalLoyaltyPoints > 1", select="CustomerCardNo").to_pylist()
        [{'CustomerCardNo': 'c1'}]
        >>> before.position.to_json()
        '{"pos":{"0":1}}'
    """

    topology: str
    epoch: int
    seq: int
    position: Offsets
    versions: Mapping[str, tuple[str, int]]
    lake: str = ""
    tables: Mapping[str, Contents] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether the epoch has a table or append output of that name."""
        return f"tables/{name}" in self.versions or f"outputs/{name}" in self.versions

    def place(self, name: str) -> tuple[str, int]:
        """Path and Delta version of a table or append output.

        Of a table, the rows at that version may lack the changes of the last slices: :meth:`rows` has them,
        :meth:`merged` gives the slice up to which they are there.

        Raises:
            UnknownTableError: the epoch has none of that name.
        """
        for kind in ("tables", "outputs"):
            if f"{kind}/{name}" in self.versions:
                return self.versions[f"{kind}/{name}"]
        tables, outputs = (
            ", ".join(sorted(place.partition("/")[2] for place in self.versions if place.startswith(f"{kind}/")))
            or "none"
            for kind in ("tables", "outputs")
        )
        raise UnknownTableError(
            f"Epoch {self.epoch} of {self.topology!r} has no table or output {name!r}. Its tables: {tables}; its "
            f"outputs: {outputs}. What a topology keeps and emits is listed by: kappa topologies",
            name=name,
        )

    def merged(self, name: str) -> int:
        """The slice up to which the own Delta version of a table or append output, as of :meth:`place`, has all rows.

        Raises:
            UnknownTableError: the epoch has none of that name.
        """
        self.place(name)
        return self.tables[name].merged if name in self.tables else self.seq

    def rows(
        self,
        name: str,
        where: str | None = None,
        *,
        select: str = "*",
        order_by: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Rows of a table or append output, by an SQL condition.

        Rows of a table that an operator keeps have the columns of its results.

        Raises:
            UnknownTableError: the epoch has none of that name.
            UsageError: the SQL names a column that an operator keeps for itself.
        """
        return self._read(name, partial(query, select=select, where=where, order_by=order_by, limit=limit))

    def row(self, name: str, key: str) -> pa.Table:
        """The row of one key of a table, or none; faster than :meth:`rows` where changes are not merged yet.

        Args:
            name: the table.
            key: SQL condition with the value of each key column.

        Raises:
            UnknownTableError: the epoch has no table of that name.
        """
        self.place(name)
        if name not in self.tables:
            raise UnknownTableError(
                f"{name!r} of epoch {self.epoch} of {self.topology!r} is an append output, which has no key. Read its "
                f"rows: kappa query {self.topology} {name}",
                name=name,
            )
        return self._read(name, partial(row_of, key=key))

    def batches(self, name: str) -> pa.RecordBatchReader:
        """All rows of a table or append output as a stream of Arrow batches, in no order; memory does not grow.

        Raises:
            UnknownTableError: the epoch has none of that name.
        """
        return self._batches(name)

    def arrow(self, name: str) -> pa.Table:
        """All rows of a table or append output, in no order.

        Raises:
            UnknownTableError: the epoch has none of that name.
        """
        return self._batches(name).read_all()

    def polars(self, name: str) -> pl.LazyFrame:
        """All rows of a table or append output as a lazy frame: each ``collect`` reads the columns it needs.

        Raises:
            UnknownTableError: the epoch has none of that name.
            UsageError: polars is not installed.
        """
        return engines.polars_frame(partial(self._batches, name), self._schema(name))

    def duckdb(self, name: str, connection: DuckDBPyConnection, view: str | None = None) -> DuckDBPyRelation:
        """A view of a connection of DuckDB over a table or append output: each query reads the rows of this slice.

        Args:
            name: the table or append output.
            connection: the connection; another view of that name in it is replaced.
            view: name of the view; None for the table's own.

        Raises:
            UnknownTableError: the epoch has none of that name.
            UsageError: DuckDB is not installed.
        """
        return engines.duckdb_view(partial(self._batches, name), self._schema(name), connection, view or name)

    def spark(self, name: str, session: SparkSession) -> DataFrame:
        """A DataFrame over a table or append output, of which Spark reads the files when it runs.

        Raises:
            UnknownTableError: the epoch has none of that name.
            UsageError: the session has no Delta.
        """
        return self._read(name, partial(engines.spark_frame, session))

    def contents(self, name: str) -> Contents:
        """The parts of the rows of a table or append output."""
        path, version = self.place(name)
        whole = Contents(path=path, version=version, merged=self.seq, seq=self.seq, changes="", changes_version=0)
        return self.tables.get(name, whole)

    def _batches(
        self, name: str, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        return self._read(name, partial(batches, columns=columns, limit=limit))

    def _schema(self, name: str) -> pa.Schema:
        return self._batches(name, None, 0).schema

    def _read(self, name: str, read: Callable[[Contents], _T]) -> _T:
        contents = self.contents(name)
        try:
            return read(contents)
        except Exception as error:
            column = named_in(error, contents.hidden)
            if column is not None:
                raise refusal(column, self.topology, name) from error
            now = self.contents_now(name)
            if now == contents:
                raise
            return read(now)

    def contents_now(self, name: str) -> Contents:
        """The present parts of the rows: where a merged version has gone, an older one with more changes.

        Raises:
            UnknownEpochError: the files of the slice were cleaned up.
        """
        if name not in self.tables:
            return self.contents(name)
        paths = EpochPaths(lake=self.lake, topology=self.topology, epoch=self.epoch)
        state = Ledger(paths.ledger).state()
        row = state.commit(self.seq)
        if row is None:
            raise UnknownEpochError(
                f"The files of slice {self.seq} of epoch {self.epoch} of {self.topology!r} were cleaned up while they "
                "were read. Take a new snapshot.",
                epoch=self.epoch,
                seq=self.seq,
                savepoints=sorted(state.savepoints),
            )
        return replace(contents_of(paths, state.resolved(row), name), hidden=self.tables[name].hidden)


def snapshot_of(paths: EpochPaths, row: LedgerRow, shapes: Mapping[str, Shape] | None = None) -> Snapshot:
    """The cut of an epoch at one of its commits.

    Args:
        paths: where the epoch is.
        row: the commit.
        shapes: shapes of its tables; None to read them from its ledger.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> from kappa.record.ledger import Ledger
        >>> from kappa.names import EpochPaths
        >>> paths = EpochPaths(lake=Config.from_env().lake, topology="retail.loyalty", epoch=1)
        >>> serving.snapshot_of(paths, serving.commit_of(paths, Ledger(paths.ledger).state(), 1)).seq
        1
    """
    hidden = hidden_in(paths) if shapes is None else hidden_of(shapes)
    return Snapshot(
        topology=paths.topology,
        epoch=paths.epoch,
        seq=row.seq,
        position=ranges_end(row.ranges),
        lake=paths.lake,
        versions={
            name: (paths.place(name), version)
            for name, version in row.delta_versions.items()
            if name.startswith(("tables/", "outputs/"))
        },
        tables={
            name: replace(contents_of(paths, row, name), hidden=hidden.get(name, ()))
            for kind, _, name in (place.partition("/") for place in row.delta_versions)
            if kind == "tables"
        },
    )
