"""Changes of a database's table of customers, as Debezium writes them.

Source: Debezium's documentation, "Data change events"; without the schema, as ``schemas.enable=false`` gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from kappa_local.generators.draws import Block, Made

CUSTOMERS = "customers"
_FIRST = ("Sally", "George", "Edward", "Anne", "Asha", "Ravi", "Meera", "Jürgen")
_LAST = ("Thomas", "Bailey", "Walker", "Kretchmar", "Nair", "Shah", "Iyer", "Groß")
#: Number of customers that change at a time, and of changes of each.
_LANES, _EVENTS = 50, 6


def changes(block: Block) -> Iterator[Made]:
    """Change events by primary key. A customer is created and changed. One in two is then deleted, and a null value
    follows.

    The first customers come from a snapshot (``op`` is ``r``).
    """
    wave, rest = block.index // (_LANES * _EVENTS), block.index % (_LANES * _EVENTS)
    number = 1_000 + wave * _LANES + rest % _LANES
    columns = (block.index, number, rest // _LANES, block.draw(1, 2, of=number) == 0, wave == 0)
    for time, at, id, event, is_deleted, is_first in zip(block.times, *(c.tolist() for c in columns), strict=True):
        key, before, after = orjson.dumps({"id": id}), _customer(id, event - 1), _customer(id, event)
        if is_deleted and event == _EVENTS - 1:
            yield key, None
        elif is_deleted and event == _EVENTS - 2:
            yield key, _change("d", before, None, time, at)
        elif event == 0:
            yield key, _change("r" if is_first else "c", None, after, time, at)
        else:
            yield key, _change("u", before, after, time, at)


def _change(op: str, before: Any, after: Any, time: int, at: int) -> Mapping[str, Any]:
    source = {"connector": "mysql", "db": "inventory", "table": "customers", "ts_ms": time}
    source |= {"file": "mysql-bin.000001", "pos": at, "row": 0, "snapshot": "true" if op == "r" else "false"}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": time}


def _customer(id: int, version: int) -> Mapping[str, Any]:
    """A customer's row after this many changes of the mail address."""
    first, last = _FIRST[id % len(_FIRST)], _LAST[id // len(_FIRST) % len(_LAST)]
    host = "Example.com" if version % 3 == 2 else "example.com"
    return {"id": id, "first_name": first, "last_name": last, "email": f"{first}.{id}.{version}@{host}"}
