"""A table's rows before the next slice, without reading Delta anew for every slice.

What the step sees equals what the ledger's last row names: a merged version of the table and the changes since. The
driver wrote the changes and still has them. It brings them into the rows of a small table itself, which Spark is then
given anew for each slice. A larger one is made of a base, kept in Spark's memory from its second slice on, and of the
changes of the slices since. Where the driver has a table's rows, a merge writes them and reads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.delta import queries, table_files
from kappa.record.merge_on_read import Contents, changed, read_table
from kappa.slices.rows.effects import stored_type
from kappa.spark.session import ONE_TASK_ROWS, broadcast_bytes, frame_of
from kappa.topology import Table
from kappa.topology.ddl import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Largest table that is read into the driver's memory, and the most bytes of its files; Spark reads larger ones, which
#: takes it half as long again for a slice.
ARROW_ROWS, ARROW_BYTES = 2_000_000, 128 << 20
#: Largest table, in bytes of Arrow, whose rows stay in the driver's memory after Spark was given them.
KEPT_BYTES = 64 << 20
#: Largest table, in bytes of Arrow, whose rows the tasks of a join hash.
HASHED_BYTES = 128 << 20
#: Number of keys of a table from which those of a small slice are looked up in it before a join.
LARGE_ROWS = 250_000
#: Largest table, in bytes of Arrow, into which the driver brings the changes: to give all its rows to Spark for each
#: slice costs less than a join of the table with what changed in it.
SMALL_BYTES = 2 << 20
#: Changed keys that are kept beside the base, as a share of it, before it is made anew, and the least and the most of
#: them: they are in the driver's memory.
OVERLAY_SHARE = 0.1
OVERLAY_ROWS, MOST_OVERLAY_ROWS = 20_000, 500_000


class TableState:
    """The rows of one table before the next slice.

    Args:
        table: its declaration.
    """

    def __init__(self, session: SparkSession, table: Table) -> None:
        self._session = session
        self._table = table
        self._type = stored_type(table.columns)
        self._at: Contents | None = None
        self._rows: pa.Table | None = None
        self._held: pa.Table | None = None
        self._merged: dict[int, pa.Table] = {}
        self._base: DataFrame | None = None
        self._base_rows = 0
        self._base_bytes: int | None = None
        self._overlay: pa.Table | None = None

    @property
    def is_large(self) -> bool:
        """Whether the table has so many keys that those of a small slice are sought among them."""
        if self._rows is not None:
            return bool(self._rows.num_rows >= LARGE_ROWS)
        return self._base_rows + (0 if self._overlay is None else self._overlay.num_rows) >= LARGE_ROWS

    def frame(self, at: Contents) -> DataFrame:
        """The rows as of a commit, in the table's columns."""
        from pyspark.sql import functions as F

        if self._at != at:
            self._load(at)
        elif self._base is not None and not self._base.is_cached:
            # Only once it serves a second slice: large slices change so much that each begins with another base.
            self._base.persist()
        if self._rows is not None:
            return self._hinted(self._frame_of(self._rows))
        assert self._base is not None
        if self._overlay is None:
            return self._hinted(self._base)
        key, names = list(self._table.key), self._names
        changed = frame_of(self._session, self._overlay.select(key))
        newest = frame_of(self._session, self._overlay.filter(_is_present(self._overlay)).select(names), self._type)
        unchanged_rows = self._base.join(F.broadcast(changed), on=key, how="left_anti").selectExpr(*quoted(names))
        return self._hinted(unchanged_rows.unionByName(newest))

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
        if changes.num_rows and self._rows is not None:
            merged = self._merged.get(after.version)
            self._rows = self._changed(self._rows, self._of_table(changes)) if merged is None else merged
            if self._rows.nbytes > SMALL_BYTES:
                self.forget()
                return
        elif changes.num_rows:
            self._overlay = newest(self._overlay, self._of_table(changes), self._table.key)
            if self._overlay.num_rows > most_changes(self._base_rows):
                self.forget()
                return
        self._at, self._merged = after, {}

    def after(self, before: Contents, changes: pa.Table) -> pa.Table | None:
        """The table's rows after the slice at hand; None where the driver does not have those before it.

        Args:
            before: what the table holds before the slice.
            changes: the slice's changes.
        """
        rows = self._held if self._rows is None else self._rows
        if self._at != before or rows is None:
            return None
        if self._overlay is not None:
            rows = self._changed(rows, self._overlay)
        return self._changed(rows, self._of_table(changes))

    def written(self, rows: pa.Table, version: int) -> None:
        """The rows were written as a Delta version of the table: a :meth:`frame` that begins with it reads nothing."""
        self._merged = {version: rows}

    def forget(self) -> None:
        """Free what is held; the next :meth:`frame` reads the table."""
        if self._base is not None and self._base.is_cached:
            self._base.unpersist()
        self._rows, self._held, self._base, self._overlay, self._at = None, None, None, None, None

    def _load(self, at: Contents) -> None:
        self.forget()
        rows, self._merged = self._merged.get(at.version), {}
        if rows is None:
            self._base_rows, size = table_files.rows_and_bytes(at.path, at.version)
        else:
            self._base_rows, size = rows.num_rows, 0
        self._base_bytes = None
        changes = changed(at)
        overlay = self._of_table(changes) if changes is not None and changes.num_rows else None
        if self._base_rows > ARROW_ROWS or size > ARROW_BYTES:
            self._base, self._overlay = read_table(self._session, at.path, at.version), overlay
        else:
            if rows is None:
                rows = queries.query(at.path, at.version).select(self._names)
            if rows.nbytes + (0 if overlay is None else overlay.nbytes) <= SMALL_BYTES:
                self._rows = rows if overlay is None else self._changed(rows, overlay)
            else:
                self._base, self._base_bytes, self._overlay = self._frame_of(rows), rows.nbytes, overlay
                self._held = rows if rows.nbytes <= KEPT_BYTES else None
        self._at = at

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self._table.columns]

    def _frame_of(self, rows: pa.Table) -> DataFrame:
        frame = frame_of(self._session, rows, self._type)
        return (
            frame if rows.num_rows <= ONE_TASK_ROWS else frame.coalesce(self._session.sparkContext.defaultParallelism)
        )

    def _changed(self, rows: pa.Table, changes: pa.Table) -> pa.Table:
        """The rows with changes brought in."""
        import numpy as np
        import pyarrow as pa

        marked = rows.append_column("_deleted", pa.array(np.zeros(rows.num_rows, dtype=bool)))
        # Not the other way round: a change that removes a key has nulls where the table may have none.
        both = newest(marked.cast(changes.schema), changes, self._table.key)
        return both.filter(_is_present(both)).select(self._names)

    def _hinted(self, rows: DataFrame) -> DataFrame:
        """The rows as a frame of the slice's own, with how they are best joined: Spark does not see how many they are.

        While they are few enough they are sent to every task. Of more each task makes a hash of its own part, which
        spares the sort of both sides. A table that Spark reads is sorted, which takes no more memory than there is.
        """
        from pyspark.sql import functions as F

        if self._rows is not None:
            size = self._rows.nbytes
        elif self._base_bytes is not None:
            size = self._base_bytes + (0 if self._overlay is None else self._overlay.nbytes)
        else:
            return rows.select("*")
        if size <= broadcast_bytes(self._session):
            return F.broadcast(rows)
        return rows.hint("shuffle_hash") if size <= HASHED_BYTES else rows.select("*")

    def _of_table(self, changes: pa.Table) -> pa.Table:
        return changes.select([*self._names, "_deleted"])


def most_changes(rows: int) -> int:
    """The number of changed keys that are kept beside a base of some rows before both become one."""
    return min(MOST_OVERLAY_ROWS, max(OVERLAY_ROWS, int(OVERLAY_SHARE * rows)))


def newest(rows: pa.Table | None, later: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows of both, per key the later. Each has at most one row per key."""
    import numpy as np
    import pyarrow as pa

    if rows is None:
        return later
    later = later.cast(rows.schema)
    # The keys alone, since a join takes no nested column along, and by numbers: it takes a name that begins with a dot
    # for a path.
    numbers = [str(number) for number, _ in enumerate(key)]
    own, others = (side.select(list(key)).rename_columns(numbers) for side in (rows, later))
    own = own.append_column("row", pa.array(np.arange(rows.num_rows)))
    is_left = np.zeros(rows.num_rows, dtype=bool)
    is_left[own.join(others, keys=numbers, join_type="left anti")["row"].to_numpy()] = True
    return pa.concat_tables([rows.filter(pa.array(is_left)), later])


def _is_present(rows: pa.Table) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    return pc.invert(rows["_deleted"])
