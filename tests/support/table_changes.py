"""Changes of a small table, made by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from kappa.delta import queries
from kappa.topology.ddl import columns_of

COLUMNS = columns_of("id STRING NOT NULL, total DECIMAL(12,2)", "test")
ARROW = pa.schema({"id": pa.string(), "total": pa.decimal128(12, 2), "_deleted": pa.bool_(), "_seq": pa.int64()})


def changes(seq: int, *rows: tuple[str, str | None]) -> pa.Table:
    """Changes of a slice: key and total, None for one that is removed."""
    items = [{"id": i, "total": None if t is None else Decimal(t), "_deleted": t is None, "_seq": seq} for i, t in rows]
    return pa.Table.from_pylist(items, schema=ARROW)


def rows(path: str) -> Any:
    """What a table holds now, by key."""
    return sorted(queries.query(path, None).to_pylist(), key=lambda row: row["id"])
