"""Files of rows: of a log, and of what was rolled up of it, beside it: of a ledger, or of the record of epochs."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from kappa.delta.damage import damaged
from kappa.errors import DamagedTableError, LedgerError
from kappa.replay import stored
from kappa.store.stores import store_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


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
    path: str,
    content: bytes | None,
    *,
    format: int,
    what: str,
    origin: str,
    without: str | None = None,
    only: tuple[str, str] | None = None,
) -> pa.Table:
    """The rows in the content of a file; otherwise as :func:`table`.

    Args:
        path: the file.
        content: its bytes; None where there is no such file.
        format: the newest number of a row's format that this code reads.
        what: what a row is called.
        origin: where the rows are from, for messages.
        without: a column that is not read.
        only: a column, and the value of the rows that are wanted; None for all rows.
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
        groups = range(file.num_row_groups) if only is None else _groups(file, *only)
        # Most files are small: threads would take longer to share one.
        rows = file.read_row_groups(list(groups), names, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise damaged(origin, [f"{path.removeprefix(f'{origin}/')} is torn"]) from error
    if "format" in rows.column_names:
        stored.check_format(pc.max(rows["format"]).as_py(), format, what=what, where=origin)
    return rows if only is None else where(rows, *only)


def _groups(file: pq.ParquetFile, column: str, value: str) -> Iterator[int]:
    """The parts of a file in which there may be rows with a value in a column."""
    at = file.schema_arrow.get_field_index(column)
    for number in range(file.num_row_groups):
        ends = file.metadata.row_group(number).column(at).statistics
        if ends is None or not ends.has_min_max or ends.min <= value <= ends.max:
            yield number


def where(rows: pa.Table, column: str, value: str) -> pa.Table:
    """The rows with a value in a column."""
    import pyarrow.compute as pc

    # By a pattern: for a value, Arrow would import pandas.
    return rows.filter(pc.match_substring_regex(rows[column], rf"\A{re.escape(value)}\z"))


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows; Arrow's own way to one imports pandas."""
    import pyarrow as pa

    return pa.Table.from_batches([], schema)


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows with times in UTC: Arrow would import pandas for a time zone, which takes a command longer than its work."""
    import pyarrow as pa

    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type) and field.type.tz == "UTC"]
    for name in times:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, rows[name].cast(pa.timestamp(rows.schema.field(name).type.unit)))
    dicts: list[dict[str, Any]] = rows.to_pylist()
    for row in dicts:
        row.update({name: row[name].replace(tzinfo=UTC) for name in times if row[name] is not None})
    return dicts


class LateRows:
    """Rows of a log that are read when somebody asks for those with a value in a column.

    May be used by several threads. The files are kept as they are on the disk, also after others took their place.

    Args:
        origin: the log.
        column: the column.
        format: the newest number of a row's format that this code reads.
        what: what a row is called.
    """

    def __init__(self, origin: str, column: str, *, format: int, what: str) -> None:
        self._origin, self._column, self._format, self._what = origin, column, format, what
        self._files: dict[str, bytes] = {}

    def emptied(self) -> LateRows:
        """The same without any."""
        return LateRows(self._origin, self._column, format=self._format, what=self._what)

    def update(self, contents: Mapping[str, bytes]) -> None:
        """Take in files."""
        self._files = {**self._files, **contents}

    def sizes(self) -> list[int]:
        """The bytes of each file."""
        return [len(content) for content in self._files.values()]

    def of(self, value: str) -> list[dict[str, Any]]:
        """The rows with a value in the column, in order of ``n``.

        Raises:
            DamagedTableError: a file is torn.
            NewerFormatError: newer code wrote a row in a format that this code does not read.
        """
        only = self._column, value
        rows = []
        for name, content in self._files.items():
            place = f"{self._origin}/{name}"
            own = read(place, content, format=self._format, what=self._what, origin=self._origin, only=only)
            rows += python_rows(own)
        return sorted(rows, key=lambda row: int(row["n"]))


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
