"""What shipped topologies without event time must make of a history, in plain Python: dicts and loops."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from support.drawn_histories import History, Record
from support.oracle_histories import Expected, money


def retail_loyalty(history: History) -> Expected:
    """Points of each PRIME invoice with the balance after it, in the total order."""
    balances: dict[str, Decimal] = {}
    notifications = []
    for invoice in history.of("pos"):
        card = invoice["CustomerCardNo"]
        if invoice["CustomerType"] != "PRIME" or card is None:
            continue
        total = money(invoice["TotalAmount"])
        assert total is not None
        earned = total * Decimal("0.02")
        balances[card] = balances.get(card, Decimal(0)) + earned
        notifications.append(
            {
                "InvoiceNumber": invoice["InvoiceNumber"],
                "CustomerCardNo": card,
                "TotalAmount": total,
                "EarnedLoyaltyPoints": earned,
                "TotalLoyaltyPoints": balances[card],
                **invoice.place,
            }
        )
    rewards = [{"CustomerCardNo": card, "TotalLoyaltyPoints": points} for card, points in balances.items()]
    return Expected(tables={"rewards": rewards}, outputs={"notifications": notifications})


def retail_revenue(history: History) -> Expected:
    """Totals less taxes by way of payment, and the same by partition."""
    parts: dict[tuple[str, int], list[Decimal]] = {}
    for invoice in history.of("pos"):
        if not invoice.has("PaymentMethod"):
            continue
        taxes = sum(money(invoice[name]) or Decimal(0) for name in ("CGST", "SGST", "CESS"))
        total = money(invoice["TotalAmount"])
        assert total is not None
        parts.setdefault((invoice["PaymentMethod"], invoice.partition), []).append(total - taxes)
    whole: dict[str, list[Decimal]] = {}
    for (method, _), amounts in parts.items():
        whole.setdefault(method, []).extend(amounts)
    by_part = [
        {"PaymentMethod": method, "part": part, "Invoices": len(amounts), "Revenue": sum(amounts)}
        for (method, part), amounts in parts.items()
    ]
    by_method = [
        {"PaymentMethod": method, "Invoices": len(amounts), "Revenue": sum(amounts)}
        for method, amounts in whole.items()
    ]
    return Expected(tables={"revenue": by_method, "revenue_parts": by_part})


def stocks_latest(history: History) -> Expected:
    """The last tick of each bank; a null value ends its key."""
    latest: dict[str, Record] = {}
    for tick in history.of("ticks"):
        symbol = tick["symbol"] if tick.value is not None else tick.key
        if symbol in {"AXISBANK", "HDFCBANK", "ICICIBANK", "KOTAKBANK", "SBIN"}:
            latest[symbol] = tick
    columns = ("symbol", "CreatedTime", "price", "volume")
    rows = [{name: tick[name] for name in columns} for tick in latest.values() if tick.value is not None]
    return Expected(tables={"latest": rows})


def logs_page_counts(history: History) -> Expected:
    """Views by people, and the thousandth of each page."""
    counts: Counter[str] = Counter()
    popular = []
    for view in history.of("page-views"):
        if not view.has("page") or (view["agent"] or "").endswith("Bot"):
            continue
        counts[view["page"]] += 1
        if counts[view["page"]] == 1000:
            popular.append({"page": view["page"], "views": 1000, "threshold": 1000, **view.place})
    rows = [{"page": page, "views": views} for page, views in counts.items()]
    return Expected(tables={"counts": rows}, outputs={"popular": popular})


def logs_captcha(history: History) -> Expected:
    """Actions since a browser's last captcha; from the fifth on it is asked for one."""
    passes: Counter[str] = Counter()
    actions: dict[str, tuple[int, int]] = {}
    questions = []
    for record in history.records:
        browser = record["browser"]
        if record.topic == "captcha":
            passes[browser] += bool(record["passed"])
        elif browser is not None:
            passed, acted = actions.get(browser, (0, 0))
            acted = acted + 1 if passed == passes[browser] else 1
            actions[browser] = (passes[browser], acted)
            if acted >= 5:
                questions.append({"browser": browser, "actions": acted, **record.place})
    return Expected(
        tables={
            "passes": [{"browser": browser, "passes": many} for browser, many in passes.items() if many],
            "actions": [
                {"browser": browser, "passes": passed, "actions": acted} for browser, (passed, acted) in actions.items()
            ],
        },
        outputs={"asked": questions},
    )


def text_word_count(history: History) -> Expected:
    """How often each word is written, in small letters."""
    counts = Counter(
        word for line in history.of("lines") for word in re.split(r"\W+", (line["value"] or "").lower()) if word
    )
    return Expected(tables={"counts_store": [{"word": word, "count": many} for word, many in counts.items()]})


def inventory_stock(history: History) -> Expected:
    """What came in, less what was sold."""
    stock: dict[tuple[str, str], list[int]] = {}
    for item in history.of("items"):
        sign = {"RESTOCK": 1, "SALE": -1}.get((item["type"] or "").upper())
        if sign is not None:
            stock.setdefault((item["storeID"], item["sku"]), []).append(sign * item["quantity"])
    rows = [
        {"storeID": store, "sku": sku, "quantity": sum(moved), "movements": len(moved)}
        for (store, sku), moved in stock.items()
    ]
    return Expected(tables={"stock": rows})


def movies_ratings(history: History) -> Expected:
    """The first vote of each viewer for a movie, and their average."""
    first: dict[tuple[str, str], int] = {}
    for vote in history.of("ratings"):
        if vote.has("movieID", "userID"):
            first.setdefault((vote["movieID"], vote["userID"]), vote["rating"])
    by_movie: dict[str, list[int]] = {}
    for (movie, _), rating in first.items():
        by_movie.setdefault(movie, []).append(rating)
    averages = [{"movieID": movie, "count": len(marks), "average": _mean(marks)} for movie, marks in by_movie.items()]
    votes = [{"movieID": movie, "userID": user} for movie, user in first]
    return Expected(tables={"votes": votes, "averages": averages})


def music_charts(history: History) -> Expected:
    """Plays of half a minute, and the five songs that are played most, of each genre and of all."""
    plays = [play for play in history.of("plays") if (play["duration_ms"] or 0) >= 30_000]
    times = Counter((play["songID"], play["name"], play["genre"]) for play in plays)
    most: dict[str, dict[str, int]] = {}
    for (song, _, genre), many in times.items():
        for chart in (genre, "all"):
            songs_of = most.setdefault(chart, {})
            songs_of[song] = max(many, songs_of.get(song, 0))
    charts = [
        {"chart": chart, "songs": [{"by": many, "value": name} for many, name in _five_best(names.items())]}
        for chart, names in most.items()
    ]
    songs = [
        {"songID": song, "name": name, "genre": genre, "times": many} for (song, name, genre), many in times.items()
    ]
    return Expected(tables={"songs": songs, "charts": charts})


def customers_cache(history: History) -> Expected:
    """The newest row of each customer; one that was deleted is none. What is not a change says nothing."""
    newest: dict[int, dict[str, Any] | None] = {}
    for change in history.of("customers"):
        assert change.key is not None
        if change.value is not None and change.has("source") and (change["op"] == "d" or change.has("after")):
            newest[json.loads(change.key)["id"]] = None if change["op"] == "d" else change["after"]
    names = ("first_name", "last_name", "email")
    rows = [
        {"id": id, **{name: after.get(name) for name in names}} for id, after in newest.items() if after is not None
    ]
    deleted = [{"id": id} for id, after in newest.items() if after is None]
    return Expected(tables={"cache": rows, "cache_deleted": deleted, "cache_truncated": []})


def _five_best(songs: Iterable[tuple[str, int]]) -> list[tuple[int, str]]:
    return sorted(((many, name) for name, many in songs), reverse=True)[:5]


def _mean(numbers: list[int]) -> Decimal:
    return (Decimal(sum(numbers)) / len(numbers)).quantize(Decimal("0.0001"), ROUND_HALF_UP)
