"""Files of rows: of a log, and of what was rolled up of it, beside it: of a ledger, or of the record of epochs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kappa.errors import LedgerError
from kappa.replay import stored
from kappa.store.store import absent
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
        FileNotFoundError: there is no such file.
        NewerFormatError: newer code wrote a row in a format that this code does not read.
    """
    path = f"{folder}/{name}.parquet"
    return read(path, store_of(folder).get(path), format=format, what=what, origin=folder).sort_by("n")


def read(path: str, content: bytes | None, *, format: int, what: str, origin: str) -> pa.Table:
    """The rows in the content of a file; otherwise as :func:`table`.

    Args:
        path: the file.
        content: its bytes; None where there is no such file.
        format: the newest number of a row's format that this code reads.
        what: what a row is called.
        origin: where the rows are from, for messages.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if content is None:
        raise absent(path)
    rows = pq.ParquetFile(pa.BufferReader(content)).read()
    if "format" in rows.column_names:
        stored.check_format(pc.max(rows["format"]).as_py(), format, what=what, where=origin)
    return rows


def where(rows: pa.Table, column: str, value: str) -> pa.Table:
    """The rows with a value in a column."""
    import pyarrow.compute as pc

    return rows.filter(pc.equal(rows[column], value))
