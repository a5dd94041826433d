"""Files of rows: of a log, and of what was rolled up of it, beside it: of a ledger, or of the record of epochs."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kappa.delta.damage import damaged
from kappa.errors import DamagedTableError, LedgerError
from kappa.replay import stored
from kappa.store.stores import store_of

if TYPE_CHECKING:
    import pyarrow as pa


def keep(folder: str, name: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write a new file. A crash leaves none, or one that no roll-up names: readers go by the roll-ups' names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), content, compression="zstd")
    store, path = store_of(folder), f"{folder}/{name}.parquet"
    store.make_folder(folder, with_parents=False)  # the epoch's folder is there, or the epoch was removed
    if not store.create(path, content.getvalue()):
        raise LedgerError(f"{path} is there with other rows.", path=path)


def discard(folder: str, name: str) -> None:
    """Remove a file that no roll-up names."""
    store_of(folder).delete(f"{folder}/{name}.parquet")


def table(folder: str, name: str, *, format: int, what: str) -> pa.Table:
    """The rows of a file, by number.

    Args:
        format: the newest number of a row's format that this code reads.
        what: what a row is called.

    Raises:
        DamagedTableError: there is no such file, or it is torn.
        NewerFormatError: newer code wrote a row in a format that this code does not read.
    """
    path = f"{folder}/{name}.parquet"
    return read(path, store_of(folder).get(path), format=format, what=what, origin=folder).sort_by("n")


def read(
    path: str, content: bytes | None, *, format: int, what: str, origin: str, without: str | None = None
) -> pa.Table:
    """The rows in the content of a file; otherwise as :func:`table`.

    Args:
        path: the file.
        content: its bytes; None where there is no such file.
        format: the newest number of a row's format that this code reads.
        what: what a row is called.
        origin: where the rows are from, for messages.
        without: a column that is not read.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if content is None:
        raise DamagedTableError(
            f"{path} is missing, with rows that were rolled up. Put it back from a backup, or from older versions in "
            "its bucket: docs/restore-a-bucket.md. What is on record without it: kappa status",
            path=path,
            problems=[f"{path} is missing"],
        )
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        names = [name for name in file.schema_arrow.names if name != without]
        rows = file.read(names, use_threads=False)  # most are small: threads would take longer to share one
    except (pa.ArrowException, OSError) as error:
        raise damaged(origin, [f"{path.removeprefix(f'{origin}/')} is torn"]) from error
    if "format" in rows.column_names:
        stored.check_format(pc.max(rows["format"]).as_py(), format, what=what, where=origin)
    return rows


def where(rows: pa.Table, column: str, value: str) -> pa.Table:
    """The rows with a value in a column."""
    import pyarrow.compute as pc

    # By a pattern: for a value, Arrow would import pandas.
    return rows.filter(pc.match_substring_regex(rows[column], rf"\A{re.escape(value)}\z"))


class LateColumn:
    """A column of rows whose values are read when one of them is asked for. May be used by several threads.

    The files are kept as they are on the disk: values that nobody asks for take the place of their compressed bytes.

    Args:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: Numbers that a file's rows may have, and its content.
        self._files: dict[str, tuple[range, bytes]] = {}
        self._last: tuple[dict[int, int], pa.ChunkedArray] | None = None

    def update(self, contents: Mapping[str, bytes], files: Collection[str]) -> None:
        """Take in files whose values may be asked for, and let go of those that were merged into them.

        Args:
            contents: names of new files, and what they hold.
            files: names of all files that there are now.
        """
        new = {name: (numbers, content) for name, content in contents.items() if (numbers := self._numbers(content))}
        self._files = {name: file for name, file in self._files.items() if name in files} | new
        self._last = None

    def value(self, n: int) -> Any:
        """The value of a row.

        Raises:
            LedgerError: no file has the row.
        """
        last = self._last
        if last is None or n not in last[0]:
            files = (self._read(content) for numbers, content in reversed(self._files.values()) if n in numbers)
            last = next((file for file in files if n in file[0]), None)
        if last is None:
            raise LedgerError(f"No file has column {self.name} of row {n}.", n=n)
        self._last = last
        return last[1][last[0][n]].as_py()

    def _numbers(self, content: bytes) -> range:
        """Numbers that the rows of a file may have; none where no row has a value."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        columns = [group.column(at) for group in groups for at in range(group.num_columns)]
        if all(
            column.statistics is not None and column.statistics.null_count == column.num_values
            for column in columns
            if column.path_in_schema == self.name
        ):
            return range(0)
        numbers = [column.statistics for column in columns if column.path_in_schema == "n"]
        if not all(one is not None and one.has_min_max for one in numbers):
            return range(sys.maxsize)
        return range(min(one.min for one in numbers), max(one.max for one in numbers) + 1)

    def _read(self, content: bytes) -> tuple[dict[int, int], pa.ChunkedArray]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pq.ParquetFile(pa.BufferReader(content)).read(["n", self.name], use_threads=False)
        return {n: place for place, n in enumerate(rows["n"].to_pylist())}, rows[self.name]
