"""A table's rows before the next slice, without reading Delta anew for every slice.

What the step sees equals what the ledger's last row names: a merged version of the table and the changes since. It is
made of a base, kept in Spark's memory from its second slice on, and the changes of the slices since, which the driver
wrote and still has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.lake import queries, table_files
from kappa.lake.merge_on_read import Contents, changed, read_table
from kappa.spark.session import broadcast_bytes, frame_of
from kappa.topology import Table
from kappa.topology.ddl import ddl_of, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Largest table that is read into the driver's memory; Spark reads larger ones.
ARROW_ROWS = 1_000_000
#: Keys of a table from which on those of a small slice are sought in it, before both are joined.
LARGE_ROWS = 250_000
#: Changed keys that are kept beside the base, as a share of it, before it is made anew; and at least so many.
OVERLAY_SHARE = 0.1
OVERLAY_ROWS = 20_000


class TableState:
    """The rows of one table before the next slice.

    Args:
        table: its declaration.
    """

    def __init__(self, session: SparkSession, table: Table) -> None:
        self._session = session
        self._table = table
        self._ddl = ddl_of(table.columns)
        self._at: Contents | None = None
        self._base: DataFrame | None = None
        self._base_rows = 0
        self._base_bytes: int | None = None
        self._overlay: pa.Table | None = None

    @property
    def is_large(self) -> bool:
        """Whether so many keys were read that those of a small slice are sought among them."""
        return self._base_rows + (0 if self._overlay is None else self._overlay.num_rows) >= LARGE_ROWS

    def frame(self, at: Contents) -> DataFrame:
        """The rows as of a commit, in the table's columns."""
        from pyspark.sql import functions as F

        if self._base is None or self._at != at:
            self._load(at)
        elif not self._base.is_cached:
            # Only once it serves a second slice: large slices change so much that each begins with another base.
            self._base.persist()
        assert self._base is not None
        if self._overlay is None:
            return self._hinted(self._base)
        key, names = list(self._table.key), [column.name for column in self._table.columns]
        changed = frame_of(self._session, self._overlay.select(key))
        newest = frame_of(self._session, self._overlay.filter(_kept(self._overlay)).select(names), self._ddl)
        kept = self._base.join(F.broadcast(changed), on=key, how="left_anti").selectExpr(*quoted(names))
        return self._hinted(kept.unionByName(newest))

    def advance(self, changes: pa.Table | None, before: Contents, after: Contents) -> None:
        """Go on to the next commit. Whether its changes were merged into the table makes no difference here.

        Args:
            changes: the slice's changes if the driver has them; None makes the next :meth:`frame` read the table.
            before: what the table held before the slice.
            after: what it holds after it.
        """
        if self._at != before or changes is None:
            self.forget()
            return
        if changes.num_rows:
            self._overlay = newest(self._overlay, self._of_table(changes), self._table.key)
            if self._overlay.num_rows > most_changes(self._base_rows):
                self.forget()
                return
        self._at = after

    def forget(self) -> None:
        """Free what is held; the next :meth:`frame` reads the table."""
        if self._base is not None and self._base.is_cached:
            self._base.unpersist()
        self._base, self._overlay, self._at = None, None, None

    def _load(self, at: Contents) -> None:
        self.forget()
        self._base_rows = table_files.count(at.path, at.version)
        if self._base_rows <= ARROW_ROWS:
            rows = queries.query(at.path, at.version).select([column.name for column in self._table.columns])
            tasks = self._session.sparkContext.defaultParallelism
            self._base, self._base_bytes = frame_of(self._session, rows, self._ddl).coalesce(tasks), rows.nbytes
        else:
            self._base, self._base_bytes = read_table(self._session, at.path, at.version), None
        overlay = changed(at)
        self._overlay = self._of_table(overlay) if overlay is not None and overlay.num_rows else None
        self._at = at

    def _hinted(self, rows: DataFrame) -> DataFrame:
        """The rows, sent to every task of a join while they are few enough: Spark does not see how many they are."""
        from pyspark.sql import functions as F

        if self._base_bytes is None:
            return rows
        size = self._base_bytes + (0 if self._overlay is None else self._overlay.nbytes)
        return F.broadcast(rows) if size <= broadcast_bytes(self._session) else rows

    def _of_table(self, changes: pa.Table) -> pa.Table:
        return changes.select([*(column.name for column in self._table.columns), "_deleted"])


def most_changes(rows: int) -> int:
    """How many changed keys are kept beside so many rows before both are made one."""
    return max(OVERLAY_ROWS, int(OVERLAY_SHARE * rows))


def newest(rows: pa.Table | None, later: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows of both, of those with one key the later."""
    import pyarrow as pa

    if rows is None:
        return later
    both = pa.concat_tables([rows, later.cast(rows.schema)])
    numbered = both.append_column("_n", pa.array(range(both.num_rows), pa.int64()))
    return both.take(numbered.group_by(list(key)).aggregate([("_n", "max")])["_n_max"])


def _kept(rows: pa.Table) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    return pc.invert(rows["_deleted"])
