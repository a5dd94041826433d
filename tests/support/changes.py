"""Records of changes as Debezium writes them, for tests."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from collections.abc import Iterable, Mapping
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


#: What Debezium sends in place of a large value that a change left as it was.
LEFT = "__debezium_unavailable_value"


def folded(records: Iterable[Input], key: str) -> dict[Any, dict[str, Any]]:
    """The rows that records leave, taken in the order of their positions; in plain Python.

    Args:
        records: with equal timestamps, so that their total order is that of partition and offset.
        key: the key column.
    """
    offsets: dict[int, int] = {}
    changes = []
    for record in records:
        offset = offsets[record.partition] = offsets.get(record.partition, -1) + 1
        payload = json.loads(record.value or "null")
        if payload is not None:
            lsn = payload["source"]["lsn"]
            place = (lsn, payload["op"] != "r", record.partition, offset)
            changes.append((place, payload, None if record.key is None else json.loads(record.key)[key]))
    rows: dict[Any, dict[str, Any]] = {}
    for _, payload, at in sorted(changes, key=lambda change: change[0]):
        if payload["op"] == "t":
            rows.clear()
        elif payload["op"] == "d":
            rows.pop(at, None)
        elif payload["op"] in ("c", "u", "r"):
            before = rows.get(at, {})
            rows[at] = {name: before.get(name) if value == LEFT else value for name, value in payload["after"].items()}
    return rows


def drawn_changes(seed: int, *, keys: int, length: int, partitions: int) -> tuple[list[Input], dict[Any, dict[str, Any]]]:
    """The log of a table that lived, as a connector that starts again and again sends it, and what is in the table.

    Records of a key lie in any partition, in any order; some come twice. Columns: ``name``, ``note`` (large), ``n``.
    """
    draw = random.Random(seed)
    rows: dict[int, dict[str, Any]] = {}
    log: list[Input] = []

    def send(operation: str, at: int | None, after: Row, lsn: int) -> None:
        key = None if at is None else {"id": at}
        log.append(sent(operation, key, after, lsn=lsn, partition=draw.randrange(partitions), at=lsn))

    for lsn in range(1, length + 1):
        at = draw.randrange(keys)
        row = {"name": f"n{lsn}", "note": draw.choice([None, "long", f"long {lsn}"]), "n": draw.choice([None, lsn])}
        if draw.random() < 4 / length:
            rows.clear()
            send("t", None, None, lsn)
        elif at not in rows:
            rows[at] = row
            send(draw.choice("cr"), at, row, lsn)
        elif draw.random() < 0.15:
            del rows[at]
            send("d", at, None, lsn)
        elif draw.random() < 0.1 and (to := draw.randrange(keys)) not in rows:
            del rows[at]
            rows[to] = row
            send("d", at, None, lsn)
            send("c", to, row, lsn)
        else:
            is_left = draw.random() < 0.5
            rows[at] = {**row, "note": rows[at]["note"] if is_left else row["note"]}
            send("u", at, {**row, "note": LEFT} if is_left else row, lsn)
    log += draw.sample(log, len(log) // 10)
    draw.shuffle(log)
    return [replace(one, timestamp_ms=0) for one in log], rows
