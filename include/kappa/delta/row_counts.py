"""How many rows a slice wrote, by the log of a Delta table alone: no data is read, and nothing is opened."""

from __future__ import annotations

import json
from typing import Any

from kappa.delta.log_entries import actions_of
from kappa.delta.tables import APP

#: How far back from a version the commit of a slice is looked for: upkeep may lie between the two.
LOOK_BACK = 16


def rows_of_slice(path: str, version: int, seq: int) -> int:
    """Rows that a slice's commit added to a table.

    Args:
        path: the table.
        version: one that has the slice's rows, at or shortly after its commit.
        seq: the slice.

    Returns:
        How many; 0 where its commit is not among the last ones up to that version.
    """
    for number in range(version, max(-1, version - LOOK_BACK), -1):
        actions = actions_of(path, number) or []
        if any(
            action["txn"] == {**action["txn"], "appId": APP, "version": seq} for action in actions if "txn" in action
        ):
            return sum(_rows(action["add"]) for action in actions if "add" in action)
    return 0


def _rows(added: dict[str, Any]) -> int:
    return int(json.loads(added.get("stats") or "{}").get("numRecords", 0))
