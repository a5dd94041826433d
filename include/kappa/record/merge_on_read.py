"""The content of a table after a slice: its last merged version, and the changes of the slices since.

A slice's changes are written once (``changes/<table>``) and merged into the table several slices at a time. Until then
a commit's rows are those of the Delta table at the version that its ledger row names, and over them the newest change
of each key. Only this module puts the two together: as Arrow, as a Spark DataFrame, and by condition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kappa.delta import queries
from kappa.names import EpochPaths
from kappa.record.ledger_rows import LedgerRow
from kappa.topology.ddl import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Field of a row's ``detail`` that lists tables whose merge lags behind the row.
MERGED = "merged"

#: Gives a Delta table as of a version.
ReadTable = Callable[["SparkSession", str, int], "DataFrame"]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The rows of a table after a slice, by their parts.

    Attributes:
        path: the Delta table.
        version: its Delta version: the last merged one.
        merged: the slice up to which that version holds all changes.
        seq: the slice after which the rows are read.
        changes: the Delta table of the table's changes.
        changes_version: a Delta version of it that holds those of the slices after ``merged`` up to ``seq``.
        key: the table's key; empty where there is nothing to merge.
        hidden: columns that the rows lack: those that an operator keeps for itself, for readers.
    """

    path: str
    version: int
    merged: int
    seq: int
    changes: str
    changes_version: int
    key: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    @property
    def is_merged(self) -> bool:
        """Whether the Delta table alone has the rows."""
        return self.merged >= self.seq


def contents_of(paths: EpochPaths, row: LedgerRow, name: str) -> Contents:
    """The content of a table after a commit.

    Raises:
        KeyError: the commit has no table of that name.
    """
    entry: Mapping[str, Any] = row.detail.get(MERGED, {}).get(name, {})
    return Contents(
        path=paths.table(name),
        version=row.delta_versions[f"tables/{name}"],
        merged=entry.get("seq", row.seq),
        seq=row.seq,
        changes=paths.changes(name),
        changes_version=row.delta_versions.get(f"changes/{name}", 0),
        key=tuple(entry.get("key", ())),
    )


def frame_at(session: SparkSession, paths: EpochPaths, row: LedgerRow, place: str) -> DataFrame:
    """Rows of ``tables/<name>`` or ``outputs/<name>`` as of a commit."""
    kind, _, name = place.partition("/")
    if kind == "tables":
        return frame(session, contents_of(paths, row, name))
    return read_table(session, paths.place(place), row.delta_versions[place])


def read_table(session: SparkSession, path: str, delta_version: int) -> DataFrame:
    """A Delta table as of a version: a small one from memory, where Spark does not list its files first."""
    from pyspark.sql.types import StructType

    content = queries.small(path, delta_version)
    if content is not None:
        rows, schema = content
        return session.createDataFrame(rows, schema=StructType.fromJson(json.loads(schema)))
    return read_files(session, path, delta_version)


def read_files(session: SparkSession, path: str, delta_version: int) -> DataFrame:
    """A Delta table as of a version, whose files Spark reads itself."""
    return session.read.format("delta").option("versionAsOf", delta_version).load(path)


def frame(session: SparkSession, contents: Contents, read: ReadTable = read_table) -> DataFrame:
    """The rows as Spark has them, in the table's columns.

    Args:
        read: how a Delta table is read.
    """
    base = read(session, contents.path, contents.version)
    if contents.hidden:
        base = base.select(*quoted(name for name in base.columns if name not in contents.hidden))
    if contents.is_merged:
        return base
    key, names = quoted(contents.key), quoted(base.columns)
    newest = newest_changes(session, contents, base.columns, read)
    unchanged = base.join(newest.select(*key), on=list(contents.key), how="left_anti").select(*names)
    return unchanged.unionByName(newest.where("NOT _deleted").select(*names))


def newest_changes(
    session: SparkSession, contents: Contents, columns: Sequence[str], read: ReadTable = read_table
) -> DataFrame:
    """Per key the newest change since the merge as Spark has it: ``_deleted`` and these columns.

    Args:
        read: how a Delta table is read.
    """
    from pyspark.sql import functions as F

    rows = read(session, contents.changes, contents.changes_version).where(_since(contents))
    newest = F.max_by(F.struct("_deleted", *quoted(columns)), F.col("_seq"))
    return rows.groupBy(*quoted(contents.key)).agg(newest.alias("_newest")).select("_newest.*")


def query(
    contents: Contents,
    *,
    select: str = "*",
    where: str | None = None,
    order_by: str | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Rows by an SQL condition on each key's newest row, as :func:`kappa.delta.queries.query` has it."""
    return queries.query(
        contents.path,
        contents.version,
        select=select,
        where=where,
        order_by=order_by,
        limit=limit,
        over=changes_over(contents),
        without=contents.hidden,
    )


def row_of(contents: Contents, key: str) -> pa.Table:
    """The row of one key, or none: the changes are looked up first, and the table only where they do not have the key.

    Args:
        contents: of a table.
        key: SQL condition with the value of each key column.
    """
    if not contents.is_merged:
        where = f"{_since(contents)} AND {key}"
        change = queries.query(
            contents.changes,
            contents.changes_version,
            where=where,
            order_by="_seq DESC",
            limit=1,
            without=contents.hidden,
        )
        if change.num_rows:
            return change.slice(0, 0 if change["_deleted"][0].as_py() else 1).drop_columns(["_seq", "_deleted"])
    return queries.query(contents.path, contents.version, where=key, without=contents.hidden)


def chunks(contents: Contents, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
    """Rows about this many at a time, in no order; see :func:`kappa.delta.queries.chunks`."""
    return queries.chunks(contents.path, contents.version, columns, rows, over=changes_over(contents))


def batches(contents: Contents, columns: Sequence[str] | None = None, limit: int | None = None) -> pa.RecordBatchReader:
    """Rows as a stream, in no order; see :func:`kappa.delta.queries.batches`."""
    return queries.batches(
        contents.path, contents.version, columns, limit=limit, over=changes_over(contents), without=contents.hidden
    )


def changed(contents: Contents) -> pa.Table | None:
    """The newest change of each key since the merge, with ``_deleted``; None where all is merged."""
    over = changes_over(contents)
    return None if over is None else over.newest()


def changed_rows(contents: Contents) -> int:
    """How many changes there are since the merge, several per key included."""
    if contents.is_merged:
        return 0
    count = queries.query(contents.changes, contents.changes_version, select="COUNT(*) AS n", where=_since(contents))
    return int(count["n"][0].as_py())


def changes_over(contents: Contents) -> queries.Changes | None:
    """The changes since the merge; None where all is merged."""
    if contents.is_merged:
        return None
    return queries.Changes(
        path=contents.changes,
        delta_version=contents.changes_version,
        after=contents.merged,
        upto=contents.seq,
        key=contents.key,
    )


def _since(contents: Contents) -> str:
    return f"_seq > {contents.merged} AND _seq <= {contents.seq}"
