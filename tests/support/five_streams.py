"""The page of streams that everybody writes: its texts, and for each stream some records with what they give."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from kappa.testing import Input
from kappa.topology import Topology
from support.changes import LEFT, sent

_DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (_DOCS / "five-streams.md").read_text()
CDC = "A database's table joined with a stream"
SECTIONS = {section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
SECTIONS[CDC] = (_DOCS / "change-data-capture.md").read_text()
VISITS, UNPAID = "Visits with their pages", "Orders, payments, and an alert"
REVENUE, TOP = "Daily revenue with corrections", "The top ten of each hour"
_MINUTE = 60_000


def fence(title: str, language: str) -> str:
    """The text of a stream."""
    (text,) = re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", SECTIONS[title], re.MULTILINE | re.DOTALL)
    return str(text)


def topology_of(title: str) -> Topology:
    """The stream itself."""
    namespace: dict[str, Any] = {}
    exec(compile(fence(title, "python"), f"<{title}>", "exec"), namespace)
    assert isinstance(namespace["topology"], Topology)
    return namespace["topology"]


def record(topic: str, value: Mapping[str, Any] | None, minute: float = 0, key: str | None = None) -> Input:
    return Input(topic=topic, value=value, key=key, timestamp_ms=int(minute * _MINUTE))


def _click(visitor: str, minute: int, page: str) -> Input:
    return record("clicks", {"visitor": visitor, "page": page, "at": minute * _MINUTE}, minute)


def _sale(key: str, amount: str, day: str) -> Input:
    return record("sales", {"category": "books", "day": day, "amount": amount}, key=key)


def _customer(operation: str, minute: int, lsn: int, **row: Any) -> Input:
    change = sent(operation, {"id": 1}, row or None, lsn=lsn, topic="shop.public.customers")
    return replace(change, timestamp_ms=minute * _MINUTE)


def _order(name: str, minute: int) -> Input:
    return record("orders", {"order": name, "customer": 1, "amount": 5}, minute)


def _view(page: str, minute: int) -> Input:
    return record("views", {"page": page, "at": minute * _MINUTE}, minute)


#: Records of each stream.
LOGS = {
    VISITS: [_click("ada", 0, "/"), _click("ada", 20, "/cart"), _click("ada", 16, "/"), _click("bob", 90, "/")],
    UNPAID: [
        record("orders", {"order_id": "a", "amount": "9.00"}, 0),
        record("orders", {"order_id": "b", "amount": "5.00"}, 1),
        record("payments", {"order_id": "a", "paid": "9.00"}, 14),
        record("payments", {"order_id": "b", "paid": "5.00"}, 17),
        record("orders", {"order_id": "z", "amount": "1.00"}, 60),
        record("payments", {"order_id": "y", "paid": "1.00"}, 60),
    ],
    REVENUE: [
        _sale("a", "10.00", "2026-11-27"),
        _sale("b", "5.00", "2026-11-27"),
        _sale("a", "12.50", "2026-11-28"),
        record("sales", None, key="b"),
        _sale("c", "1.00", "2026-11-28"),
    ],
    CDC: [
        _customer("r", 1, lsn=1, name="Ada", tier="gold", credit="BNI="),
        _order("a", 2),
        _customer("u", 3, lsn=3, name="Ada L", tier=LEFT, credit=None),
        _customer("u", 4, lsn=2, name="old", tier="old", credit=None),
        _order("b", 5),
        _customer("d", 6, lsn=5),
        _order("c", 7),
    ],
    TOP: [*(_view(f"/{page:02}", page * 3 + n) for page in range(12) for n in range(page + 1)), _view("/end", 70)],
}
#: Where the rows are, their columns, and what they hold in any order.
RESULTS: Mapping[str, tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    VISITS: ("visits", ("visitor", "clicks", "pages"), [("ada", 3, 2)]),
    UNPAID: ("matched", ("order_id", "paid"), [("a", Decimal("9.00")), ("b", None)]),
    REVENUE: ("revenue", ("day", "revenue", "orders"), [(date(2026, 11, 28), Decimal("13.50"), 2)]),
    CDC: (
        "named",
        ("order", "name", "tier", "credit"),
        [("a", "Ada", "gold", Decimal("12.34")), ("b", "Ada L", "gold", None), ("c", None, None, None)],
    ),
    TOP: ("top", ("place", "page", "views"), [(place, f"/{12 - place:02}", 13 - place) for place in range(1, 11)]),
}


def picked(title: str, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The columns of the result, in the order of :data:`RESULTS`."""
    _, columns, _ = RESULTS[title]
    return sorted((tuple(row[column] for column in columns) for row in rows), key=lambda row: row[:1])
