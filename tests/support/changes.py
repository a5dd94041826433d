"""Records of changes as Debezium writes them, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kappa.testing import Input

Row = Mapping[str, Any] | None


def change(operation: str, after: Row, *, lsn: int, at: int | None = None, **source: Any) -> dict[str, Any]:
    """The payload of a change in PostgreSQL."""
    block = {"connector": "postgresql", "ts_ms": lsn * 1000 if at is None else at, "lsn": lsn, **source}
    return {"before": None, "after": after, "source": block, "op": operation, "ts_ms": 0}


def sent(
    operation: str, key: Row, after: Row = None, *, lsn: int, partition: int = 0, topic: str = "changes", **source: Any
) -> Input:
    """A change as a record of a topic; of a deletion the key alone."""
    row = {**(key or {}), **after} if after is not None else None
    value = json.dumps(change(operation, row, lsn=lsn, **source))
    return Input(
        topic=topic, key=None if key is None else json.dumps(key), value=value, partition=partition, timestamp_ms=lsn
    )
