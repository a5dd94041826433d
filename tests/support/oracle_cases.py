"""Every shipped topology that keeps state: how its records are drawn, and its oracle."""

from __future__ import annotations

import json
import random
from typing import Any

from support import oracle_tables, oracle_topologies
from support.drawn_histories import KEYS, Feed
from support.oracle_histories import OracleCase

_MINUTE = 60_000
_AMOUNTS = (0, 0.01, 12.34, 9_999_999_999.99, -3.5)
Drawn = tuple[str | None, dict[str, Any]]


def _invoice(chance: random.Random) -> Drawn:
    value = {
        "InvoiceNumber": str(chance.randrange(1000)),
        "CustomerType": chance.choice(["PRIME", "PRIME", "NONPRIME", "prime"]),
        "CustomerCardNo": chance.choice([*KEYS, None]),
        "PaymentMethod": chance.choice(["CARD", "CASH", "", "Größe"]),
        "TotalAmount": chance.choice(_AMOUNTS),
        **{tax: chance.choice([None, 0, 0.05, 9_999_999_999.99]) for tax in ("CGST", "SGST", "CESS")},
    }
    return chance.choice(["STR1", "STR2", None]), value


def _tick(chance: random.Random) -> Drawn:
    symbol = chance.choice(KEYS)
    return symbol, {"symbol": symbol, "price": chance.choice(_AMOUNTS)}


def _bank_tick(chance: random.Random) -> Drawn:
    symbol = chance.choice(["SBIN", "AXISBANK", "HDFCBANK", "HDFCBANK2", "Größe"])
    volume = chance.choice([0, 1, -2_147_483_648])
    return symbol, {
        "symbol": symbol,
        "CreatedTime": chance.randrange(10**12),
        "price": chance.choice(_AMOUNTS),
        "volume": volume,
    }


def _view(chance: random.Random) -> Drawn:
    page = chance.choice(KEYS)
    return page, {"page": page, "agent": chance.choice([None, "Firefox", "Bot", "SomeBot", "Bot 2", "bot"])}


def _action(chance: random.Random) -> Drawn:
    browser = chance.choice(KEYS[:3])
    return browser, {"browser": browser, "action": chance.choice([None, "view"])}


def _captcha(chance: random.Random) -> Drawn:
    browser = chance.choice(KEYS[:3])
    return browser, {"browser": browser, "passed": chance.choice([True, False])}


def _event(chance: random.Random) -> Drawn:
    browser = chance.choice(KEYS)
    level, action = chance.choice(["INFO", "ERROR", None]), chance.choice(["login", "view", "", None])
    return browser, {"browser": browser, "level": level, "action": action}


def _line(chance: random.Random) -> tuple[str | None, str]:
    words = [chance.choice(["a", "B", "Größe", "ÖL", "日本", "🙂", "Kafka_2", "", "'"]) for _ in range(4)]
    return None, chance.choice([" ", ", ", "-", "\n", "\u00a0"]).join(words)


def _item(chance: random.Random) -> Drawn:
    store = chance.choice(KEYS[:4])
    value = {
        "storeID": store,
        "sku": chance.choice(["SKU1", "", "Ж"]),
        "type": chance.choice(["RESTOCK", "SALE", "sale", "Restock", "COUNT", ""]),
        "quantity": chance.choice([0, 1, 5, -3, 2_147_483_647]),
    }
    return store, value


def _rating(chance: random.Random) -> Drawn:
    movie = chance.choice(KEYS)
    return movie, {"movieID": movie, "userID": f"u{chance.randrange(6)}", "rating": chance.choice([1, 2, 5, -7])}


def _play(chance: random.Random) -> Drawn:
    number = chance.randrange(12)
    value = {
        "songID": f"s{number}",
        "name": f"Song {number % 9}" if number else "Ж",
        "genre": ("rock", "jazz", "")[number % 3],
        "duration_ms": chance.choice([0, 29_999, 30_000, 200_000]),
    }
    return chance.choice([*KEYS, None]), value


def _change(chance: random.Random) -> Drawn:
    op = chance.choice(["c", "u", "r", "d"])
    name = chance.choice([None, "", "Größe"])
    after = None if op == "d" else {"first_name": name, "last_name": "日本", "email": chance.choice([None, "a@b"])}
    return json.dumps({"id": chance.randrange(6)}), {"after": after, "op": op, "source": {"table": "customers"}}


def _order_event(chance: random.Random) -> Drawn:
    order, kind = chance.choice([*KEYS, "o1", "o2", "o3"]), chance.choice(["PLACED", "PLACED", "CANCELLED", "?"])
    if kind != "PLACED":
        return order, {"orderID": order, "type": kind}
    sku, quantity = chance.choice(["SKU1", "SKU2", None]), chance.choice([None, 0, 1, 2_147_483_647])
    return order, {"orderID": order, "type": kind, "customerID": "c1", "sku": sku, "quantity": quantity}


def _order(chance: random.Random) -> Drawn:
    number, sku = f"o{chance.randrange(50)}", chance.choice([*KEYS[:5], None])
    quantity = chance.choice([None, 0, 1, 2_147_483_647])
    placed = chance.randrange(10**12)  # long before, or long after: the time at which an order stood is its time
    return number, {"orderID": number, "customerID": "c1", "sku": sku, "quantity": quantity, "CreatedTime": placed}


def _product(chance: random.Random) -> Drawn:
    sku = chance.choice(KEYS[:5])
    return sku, {"sku": sku, "name": chance.choice([None, "", "Ж"]), "price": chance.choice([0.01, 9_999_999_999.99])}


def _placed(chance: random.Random) -> Drawn:
    number = chance.choice([*KEYS, "o1", "o2", "o3"])
    kind, quantity = chance.choice(["PLACED", "PLACED", "PLACED", "CANCELLED"]), chance.choice([None, 1])
    return number, {"orderID": number, "type": kind, "customerID": "c1", "sku": "", "quantity": quantity}


def _payment(chance: random.Random) -> Drawn:
    number = chance.choice([*KEYS, "o1", "o2", "o3"])
    payment = f"p{chance.randrange(1000)}"
    return number, {"paymentID": payment, "orderID": number, "amount": chance.choice([0, 0.01, 9_999_999_999.99])}


#: Minutes: the reach of the match is ten of them, the grace of both sides one.
_PACE: dict[str, Any] = {"steps": [0, 30_000, 2 * _MINUTE], "behind": [0, 0, 0, 45_000, 2 * _MINUTE, 15 * _MINUTE]}

CASES: dict[str, OracleCase] = {
    "customers.cache": OracleCase(
        feeds={"customers": Feed(make=_change, is_pinned=True, nulls=0.15)}, oracle=oracle_tables.customers_cache
    ),
    # Minutes: orders may be ten late, products one.
    "inventory.enriched": OracleCase(
        feeds={
            "orders": Feed(
                make=_order,
                steps=[0, 30_000, 2 * _MINUTE],
                behind=[0, 0, 0, _MINUTE, 4 * _MINUTE, 15 * _MINUTE],
                share=2,
            ),
            "products": Feed(
                make=_product, steps=[0, _MINUTE, 4 * _MINUTE], behind=[0, 0, 30_000, 5 * _MINUTE], nulls=0.2
            ),
        },
        oracle=oracle_topologies.inventory_enriched,
    ),
    "inventory.matched": OracleCase(
        feeds={"order-events": Feed(make=_placed, **_PACE), "payments": Feed(make=_payment, **_PACE)},
        oracle=oracle_topologies.inventory_matched,
    ),
    # Minutes: the time to cancel is 30 of them, the grace 5.
    "inventory.orders": OracleCase(
        feeds={
            "order-events": Feed(
                make=_order_event,
                steps=[0, 30_000, 2 * _MINUTE, 5 * _MINUTE],
                behind=[0, 0, 0, _MINUTE, 4 * _MINUTE, 15 * _MINUTE, 40 * _MINUTE],
            )
        },
        oracle=oracle_topologies.inventory_orders,
    ),
    "inventory.stock": OracleCase(feeds={"items": Feed(make=_item)}, oracle=oracle_tables.inventory_stock),
    "logs.browser_windows": OracleCase(
        feeds={"logs": Feed(make=_event)}, oracle=oracle_topologies.logs_browser_windows
    ),
    "logs.captcha": OracleCase(
        feeds={"logs": Feed(make=_action, share=4), "captcha": Feed(make=_captcha)},
        oracle=oracle_tables.logs_captcha,
        cuts="time",
    ),
    "logs.page_counts": OracleCase(
        feeds={"page-views": Feed(make=_view)}, oracle=oracle_tables.logs_page_counts, cuts="time"
    ),
    "movies.ratings": OracleCase(
        feeds={"ratings": Feed(make=_rating, is_pinned=True)}, oracle=oracle_tables.movies_ratings
    ),
    "music.charts": OracleCase(feeds={"plays": Feed(make=_play)}, oracle=oracle_tables.music_charts),
    "retail.loyalty": OracleCase(feeds={"pos": Feed(make=_invoice)}, oracle=oracle_tables.retail_loyalty, cuts="time"),
    "retail.revenue": OracleCase(feeds={"pos": Feed(make=_invoice)}, oracle=oracle_tables.retail_revenue),
    "stocks.latest": OracleCase(
        feeds={"ticks": Feed(make=_bank_tick, is_pinned=True, nulls=0.2)}, oracle=oracle_tables.stocks_latest
    ),
    "stocks.stats": OracleCase(feeds={"ticks": Feed(make=_tick)}, oracle=oracle_topologies.stocks_stats),
    "text.word_count": OracleCase(feeds={"lines": Feed(make=_line)}, oracle=oracle_tables.text_word_count),
}
