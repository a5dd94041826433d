"""A table's rows before the next slice, without reading Delta anew for every slice.

What the step sees equals the Delta table as of the version that the ledger names. It is made of a base, kept in Spark's
memory, and the changes of the slices since, which the driver wrote itself and still has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.runtime import tables
from kappa.runtime.session import frame_of
from kappa.schema import ddl_of
from kappa.topology import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Largest table that is read into the driver's memory; Spark reads larger ones.
ARROW_ROWS = 1_000_000
#: Changed keys that are kept beside the base, as a share of it, before it is made anew; and at least so many.
OVERLAY_SHARE = 0.1
OVERLAY_ROWS = 20_000


class TableState:
    """The rows of one table as of the ledger's version.

    Args:
        session: Spark.
        path: the Delta table.
        table: its declaration.
    """

    def __init__(self, session: SparkSession, path: str, table: Table) -> None:
        self._session = session
        self._path = path
        self._table = table
        self._ddl = ddl_of(table.columns)
        self._at: int | None = None
        self._base: DataFrame | None = None
        self._base_rows = 0
        self._overlay: pa.Table | None = None

    def frame(self, delta_version: int) -> DataFrame:
        """The rows as of a Delta version, in the table's columns."""
        from pyspark.sql import functions as F

        if self._base is None or self._at != delta_version:
            self._load(delta_version)
        assert self._base is not None
        if self._overlay is None:
            return self._base
        key, names = list(self._table.key), [column.name for column in self._table.columns]
        changed = frame_of(self._session, self._overlay.select(key))
        newest = frame_of(self._session, self._overlay.filter(_kept(self._overlay)).select(names), self._ddl)
        return self._base.join(F.broadcast(changed), on=key, how="left_anti").select(*names).unionByName(newest)

    def advance(self, changes: pa.Table | None, before: int, after: int) -> None:
        """Go on to the Delta version after a slice.

        Args:
            changes: the slice's changes if the driver has them; None makes the next :meth:`frame` read the table.
            before: Delta version before the slice.
            after: Delta version after it.
        """
        if self._at != before or changes is None:
            self.forget()
            return
        if changes.num_rows:
            kept = changes.select([*(column.name for column in self._table.columns), "_deleted"])
            self._overlay = newest(self._overlay, kept, self._table.key)
            if self._overlay.num_rows > max(OVERLAY_ROWS, OVERLAY_SHARE * self._base_rows):
                self.forget()
                return
        self._at = after

    def forget(self) -> None:
        """Let go of what is held; the next :meth:`frame` reads the table."""
        if self._base is not None:
            self._base.unpersist()
        self._base, self._overlay, self._at = None, None, None

    def _load(self, delta_version: int) -> None:
        self.forget()
        self._base_rows = tables.count(self._path, delta_version)
        if self._base_rows <= ARROW_ROWS:
            rows = tables.query(self._path, delta_version)
            frame = frame_of(self._session, rows.select([column.name for column in self._table.columns]), self._ddl)
        else:
            frame = self._session.read.format("delta").option("versionAsOf", delta_version).load(self._path)
        self._base = frame.persist()
        self._at = delta_version


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
