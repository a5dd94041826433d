"""What the log of a Delta table says of its files: how many there are, their rows and their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.delta.access import open_table

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def count(path: str, delta_version: int) -> int:
    """Rows of a table as of a version, from the statistics in its log."""
    return rows_and_bytes(path, delta_version)[0]


def rows_and_bytes(path: str, delta_version: int) -> tuple[int, int]:
    """Rows of a table as of a version and the size of its files in bytes, both from its log."""
    files = files_of(open_table(path, version=delta_version))
    if not files.num_rows:
        return 0, 0
    return sum(files["num_records"].to_pylist()), sum(files["size_bytes"].to_pylist())


def size_bytes(path: str, delta_version: int) -> int:
    """Size of the files of a table as of a version, from its log; 0 where there is no such table."""
    from deltalake.exceptions import TableNotFoundError

    try:
        files = files_of(open_table(path, version=delta_version))
    except TableNotFoundError:
        return 0
    return sum(files["size_bytes"].to_pylist()) if files.num_rows else 0


def rows_of(table: DeltaTable) -> int | None:
    """Rows of an open table, from the statistics in its log; None where those do not say it."""
    files = files_of(table)
    counts = files["num_records"].to_pylist() if files.num_rows else []
    return None if None in counts else sum(counts)


def files_of(table: DeltaTable) -> pa.Table:
    """What a table's log says of its files."""
    import pyarrow as pa

    files = table.get_add_actions(flatten=True)
    # pa.table() would import pandas, to see whether this is a frame of it.
    return pa.Table.from_arrays([pa.chunked_array(files[name]) for name in files.schema.names], files.schema.names)
