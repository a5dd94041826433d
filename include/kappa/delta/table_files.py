"""What the log of a Delta table says of its files: how many there are, their rows and their bytes."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kappa.delta.access import answers, open_table
from kappa.delta.damage import is_elsewhere
from kappa.store.address import is_remote
from kappa.store.stores import store_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from kappa.store.store import StoredFile


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


def missing(path: str, table: DeltaTable) -> list[str]:
    """Files of an open table at this path that its store does not have, sorted, by their paths in the table.

    Files elsewhere, as those of a shallow clone, are not looked for.
    """
    files = files_of(table)
    names = {unquote(name) for name in files["path"].to_pylist()} if files.num_rows else set()
    inside = {name for name in names if not is_elsewhere(name)}
    return sorted(inside - present(path, inside).keys())


def present(path: str, names: Collection[str]) -> dict[str, StoredFile]:
    """The files of these names that the store of a folder has, by name.

    An object store gives them in one listing. A disk is asked for each: a log may have many entries.
    """
    store = store_of(path)
    places = (f"{path}/{name}" for name in names)
    files = store.files(path) if is_remote(path) else filter(None, map(store.head, places))
    return {name: file for file in files if (name := file.path.removeprefix(f"{path}/")) in names}


def rows_of(table: DeltaTable) -> int | None:
    """Rows of an open table, from the statistics in its log; None where those do not say it.

    They count rows that deletion vectors take away, and ``deltalake`` does not say how many those are.
    """
    if _has_vectors(table):
        return None
    files = files_of(table)
    counts = files["num_records"].to_pylist() if files.num_rows else []
    return None if None in counts else sum(counts)


def read_vectors(path: str, table: DeltaTable) -> None:
    """Read the deletion vectors of an open table at this path: a vacuum may take an earlier one, and leave its file.

    Raises:
        DeltaError: of ``deltalake``: one is gone.
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
    """
    if _has_vectors(table):
        with answers(path):
            for _ in table.deletion_vectors():
                pass


def _has_vectors(table: DeltaTable) -> bool:
    return "deletionVectors" in (table.protocol().reader_features or ())


def files_of(table: DeltaTable) -> pa.Table:
    """What a table's log says of its files."""
    import pyarrow as pa

    files = table.get_add_actions(flatten=True)
    # pa.table() would import pandas, to see whether this is a frame of it.
    return pa.Table.from_arrays([pa.chunked_array(files[name]) for name in files.schema.names], files.schema.names)
