"""Files of ledger rows that were rolled up, beside the ledger. The running product writes them and never opens one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def keep(folder: str, name: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write a new file. A crash leaves none, or one that no roll-up names: readers go by the roll-ups' names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows), schema=schema)
    if "://" in folder:
        pq.write_table(table, f"{folder}/{name}.parquet", compression="zstd")
        return
    Path(folder).mkdir(exist_ok=True)  # the epoch's folder is there, or the epoch was removed
    with Path(folder, f"{name}.parquet").open("xb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())


def read(folder: str, name: str) -> list[dict[str, Any]]:
    """The rows of a file, by number."""
    rows: list[dict[str, Any]] = table(folder, name).to_pylist()
    return rows


def table(folder: str, name: str) -> pa.Table:
    """The same in Arrow, for callers that need only some of them."""
    import pyarrow.parquet as pq

    place = f"{folder}/{name}.parquet"
    rows = pq.read_table(place) if "://" in place else pq.ParquetFile(place).read()
    return rows.sort_by("n")


def of_kind(rows: pa.Table, kind: str) -> pa.Table:
    """The rows of one kind."""
    import pyarrow.compute as pc

    return rows.filter(pc.equal(rows["kind"], kind))
