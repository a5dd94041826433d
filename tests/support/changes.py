"""Records of changes as Debezium writes them, for tests."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
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
    rows: dict[Any, dict[str, Any]] = {}
    for _, payload, at in _in_order(records, key):
        if payload["op"] == "t":
            rows.clear()
        elif payload["op"] == "d":
            rows.pop(at, None)
        else:
            rows[at] = _resolved(payload["after"], rows.get(at, {}))
    return rows


def histories(records: Iterable[Input], key: str) -> list[tuple[Any, ...]]:
    """All rows that records describe: their values, from when to when they held, and whether they still do.

    Args:
        records: as above.
        key: the key column.
    """
    events: dict[Any, list[tuple[Any, dict[str, Any]]]] = {}
    changes = list(_in_order(records, key))
    keys = {at for _, payload, at in changes if payload["op"] != "t"}
    for place, payload, at in changes:
        for one in keys if payload["op"] == "t" else {at}:
            own_events = events.setdefault(one, [])
            if own_events and own_events[-1][0][:2] == place[:2]:
                own_events.pop()  # it came twice
            own_events.append((place, payload))
    held = []
    for own_events in events.values():
        row: dict[str, Any] = {}
        for number, (_, payload) in enumerate(own_events):
            row = _resolved(payload["after"], row) if payload["op"] in ("c", "u", "r") else {}
            later = _time(own_events[number + 1][1]) if number + 1 < len(own_events) else None
            if row:
                held.append((*row.values(), _time(payload), later, number + 1 == len(own_events)))
    return held


def _in_order(records: Iterable[Input], key: str) -> list[tuple[Any, dict[str, Any], Any]]:
    """Changes with their places and keys, sorted by place."""
    offsets: dict[int, int] = {}
    changes = []
    for record in records:
        offset = offsets[record.partition] = offsets.get(record.partition, -1) + 1
        assert isinstance(record.value, str | None) and isinstance(record.key, str | None)
        payload = json.loads(record.value or "null")
        if payload is not None:
            place = (payload["source"]["lsn"], payload["op"] != "r", record.partition, offset)
            changes.append((place, payload, None if record.key is None else json.loads(record.key)[key]))
    return sorted(changes, key=lambda change: change[0])


def _resolved(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {name: before.get(name) if value == LEFT else value for name, value in after.items()}


def _time(payload: dict[str, Any]) -> datetime | None:
    millis = payload["source"]["ts_ms"]
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)


def drawn_changes(
    seed: int, *, keys: int, length: int, partitions: int
) -> tuple[list[Input], dict[Any, dict[str, Any]]]:
    """The log of a table that lived, as a connector that starts again and again sends it, and what is in the table.

    Records of a key lie in any partition, in any order; some come twice, and some have no time of the source. Columns:
    ``name``, ``note`` (large), ``n``.
    """
    draw = random.Random(seed)
    rows: dict[int, dict[str, Any]] = {}
    log: list[Input] = []

    def send(operation: str, at: int | None, after: Row, lsn: int) -> None:
        key = None if at is None else {"id": at}
        at_ms = None if draw.random() < 0.2 else lsn
        log.append(sent(operation, key, after, lsn=lsn, partition=draw.randrange(partitions), ts_ms=at_ms))

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
    log += [replace(one, partition=draw.randrange(partitions)) for one in draw.sample(log, len(log) // 3)]
    draw.shuffle(log)
    return [replace(one, timestamp_ms=0) for one in log], rows
