"""What shipped topologies must make of a history, in plain Python: dicts and loops, by the definition of each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from support.drawn_histories import History, Record
from support.oracle_histories import Expected, Late, moment, money

_SECOND = 1000
_MINUTE = 60_000
_HOUR = 3_600_000


def stocks_stats(history: History) -> Expected:
    """Hopping windows of 5 s / 1 s; closed ones are kept for an hour."""
    ticks = [record for record in history.of("ticks") if record.has("symbol")]
    windows, late = _windows(ticks, "symbol", size=5 * _SECOND, every=_SECOND)
    frontier = history.frontiers["ticks"]
    rows, final = [], []
    for (symbol, start), members in windows.items():
        end = start + 5 * _SECOND
        prices = [Decimal(str(member["price"])) for member in members]
        row = {
            "symbol": symbol,
            "window_start": moment(start),
            "window_end": moment(end),
            "trades": len(prices),
            "lowest": min(prices),
            "highest": max(prices),
            "average": _mean(prices, digits=6),
        }
        is_closed = _is_reached(end, frontier)
        if is_closed:
            final.append({**row, **_place(members, final_at=end)})
        if not _is_reached(end + _HOUR, frontier):
            rows.append({**row, "is_closed": is_closed})
    return Expected(tables={"windows": rows}, outputs={"stats": final}, late=late)


def logs_browser_windows(history: History) -> Expected:
    """Hopping windows of 5 s / 2 s; closed ones leave the table."""
    events = [record for record in history.of("logs") if record.has("browser")]
    more = {record: {"error": record["action"] if record["level"] == "ERROR" else None} for record in events}
    windows, late = _windows(events, "browser", size=5 * _SECOND, every=2 * _SECOND, more=more)
    rows, final = [], []
    for (browser, start), members in windows.items():
        end = start + 5 * _SECOND
        row = {
            "browser": browser,
            "window_start": moment(start),
            "window_end": moment(end),
            "events": len(members),
            "errors": sum(more[member]["error"] is not None for member in members),
            "actions": len({member["action"] for member in members if member.has("action")}),
        }
        if _is_reached(end, history.frontiers["logs"]):
            final.append({**row, **_place(members, final_at=end)})
        else:
            rows.append(row)
    return Expected(tables={"windows": rows}, outputs={"visits": final}, late=late)


def inventory_orders(history: History) -> Expected:
    """Runs of an order's events with no gap above half an hour; an order without a cancellation in its run stands."""
    pending, standing, late = [], [], []
    runs: dict[str, list[Record]] = {}
    for event in history.of("order-events"):
        if not event.has("orderID"):
            continue
        assert event.frontier is not None
        if event.at < event.frontier:
            kind = {"PLACED": "placed", "CANCELLED": "cancelled"}.get(event["type"])
            late.append(
                Late(
                    record=event,
                    operator="session_window",
                    reason="its time is before the frontier",
                    more={} if kind is None else {kind: event["CreatedTime"]},
                )
            )
            continue
        runs.setdefault(event["orderID"], []).append(event)
    frontier = history.frontiers["order-events"]
    for order, events in runs.items():
        for run in _runs(events, gap=30 * _MINUTE):
            row = {
                "orderID": order,
                **{name: _least(event[name] for event in run) for name in ("customerID", "sku", "quantity")},
                "CreatedTime": _least(event["CreatedTime"] for event in run if event["type"] == "PLACED"),
            }
            cancellations = sum(event["type"] == "CANCELLED" for event in run)
            first, last = min(event.at for event in run), max(event.at for event in run)
            if frontier is None or last + 30 * _MINUTE >= frontier:
                bounds = {"session_start": moment(first), "session_end": moment(last)}
                pending.append({**row, **bounds, "cancellations": cancellations})
            elif row["CreatedTime"] is not None and not cancellations:
                decided = last + 30 * _MINUTE
                standing.append({**row, "DecidedTime": decided, **_place(run, final_at=decided)})
    demand = [
        {
            "sku": sku,
            "orders": sum(row["sku"] == sku for row in standing),
            "quantity": sum(row["quantity"] or 0 for row in standing if row["sku"] == sku),
        }
        for sku in {row["sku"] for row in standing} - {None}
    ]
    return Expected(tables={"pending": pending, "demand": demand}, outputs={"orders": standing}, late=late)


def inventory_enriched(history: History) -> Expected:
    """Orders that both frontiers have passed, with the version of their product that was valid at their time."""
    versions = [record for record in history.of("products") if _sku(record) is not None]
    by_sku = {sku: _greatest_so_far(_of_sku(versions, sku)) for sku in {_sku(one) for one in versions}}
    own, others = history.frontiers["orders"], history.frontiers["products"]
    since = None if own is None or others is None else min(own, others)
    waiting, rows, late = [], [], []
    for order in history.of("orders"):
        if not order.has("orderID"):
            continue
        assert order.frontier is not None
        names = ("orderID", "customerID", "sku", "quantity", "CreatedTime", "DecidedTime")
        columns = {name: order[name] for name in names}
        if order.at < order.frontier:
            reason = "the left row is before its frontier"
            late.append(Late(record=order, operator="table_join", reason=reason))
        elif since is None or order.at >= since:
            waiting.append(columns)
        else:
            valid_from, greatest = by_sku.get(order["sku"], ([], []))
            began = bisect_right(valid_from, order.at)
            seen = greatest[began - 1] if began else None
            price = None if seen is None else money(seen["price"])
            quantity = order["quantity"]
            amount = None if price is None or quantity is None else price * quantity
            name = None if seen is None else seen["name"]
            rows.append({**columns, "name": name, "price": price, "amount": amount, **order.final_at(order.at)})
    products = [
        {"sku": sku, "name": one["name"], "price": money(one["price"])}
        for sku in by_sku
        for one in _asked_for(_of_sku(versions, sku), since)
    ]
    return Expected(tables={"waiting": waiting, "products": products}, outputs={"enriched": rows}, late=late)


def inventory_matched(history: History) -> Expected:
    """Pairs of an order and a payment at most ten minutes apart; orders without one, once none can come."""
    reach = 10 * _MINUTE
    placed = [event for event in history.of("order-events") if event["type"] == "PLACED"]
    late: list[Late] = []
    orders = _admitted(placed, "left", late)
    payments = _admitted([one for one in history.of("payments") if one.has("orderID")], "right", late)
    by_order: dict[str, tuple[list[int], list[Record]]] = {}
    for one in sorted(payments, key=lambda one: one.at):
        times, own = by_order.setdefault(one["orderID"], ([], []))
        times.append(one.at)
        own.append(one)
    rows: list[dict[str, Any]] = []
    unpaid = []
    for order in orders:
        columns = {name: order[name] for name in ("orderID", "customerID", "sku", "quantity", "CreatedTime")}
        times, own = by_order.get(order["orderID"], ([], []))
        matches = own[bisect_left(times, order.at - reach) : bisect_right(times, order.at + reach)]
        paid = [{"paymentID": one["paymentID"], "amount": money(one["amount"])} for one in matches]
        frontiers = [history.frontiers["payments"], *([] if paid else [history.frontiers["order-events"]])]
        is_over = all(_is_past(order.at + reach, frontier) for frontier in frontiers)
        rows += [{**columns, **payment, **order.place} for payment in paid]
        if not paid and is_over:
            rows.append({**columns, "paymentID": None, "amount": None, **order.final_at(order.at + reach)})
        if not is_over:
            unpaid.append({**columns, "_has_met": bool(matches)})
    open_payments = [
        {"orderID": one["orderID"], "paymentID": one["paymentID"], "amount": money(one["amount"])}
        for one in payments
        if not _is_past(one.at + reach, history.frontiers["order-events"])
    ]
    return Expected(tables={"orders": unpaid, "payments": open_payments}, outputs={"matched": rows}, late=late)


def _windows(
    records: Iterable[Record],
    key: str,
    *,
    size: int,
    every: int,
    more: Mapping[Record, Mapping[str, Any]] | None = None,
) -> tuple[dict[tuple[str, int], list[Record]], list[Late]]:
    """Windows with the records that they took, and the records that a window refused."""
    windows: dict[tuple[str, int], list[Record]] = {}
    late = []
    for record in records:
        assert record.frontier is not None
        starts = [start for start in range(record.at - size + 1, record.at + 1) if start % every == 0]
        taken = [start for start in starts if start + size > record.frontier]
        for start in taken:
            windows.setdefault((record[key], start), []).append(record)
        if len(taken) < len(starts):
            reason = f"{len(starts) - len(taken)} of its {len(starts)} windows are closed"
            extra = {} if more is None else more[record]
            late.append(Late(record=record, operator="hopping_window", reason=reason, more=extra))
    return windows, late


def _runs(events: Iterable[Record], *, gap: int) -> list[list[Record]]:
    runs: list[list[Record]] = []
    for event in sorted(events, key=lambda event: event.at):
        if not runs or event.at - runs[-1][-1].at > gap:
            runs.append([])
        runs[-1].append(event)
    return runs


def _admitted(records: Iterable[Record], side: str, late: list[Late]) -> list[Record]:
    in_time = []
    for record in records:
        assert record.frontier is not None
        if record.at >= record.frontier:
            in_time.append(record)
        else:
            reason = f"the {side} row is before its frontier"
            late.append(Late(record=record, operator="interval_join", reason=reason))
    return in_time


def _sku(version: Record) -> str | None:
    """A null value has it in its key alone."""
    return version.key if version.value is None else version["sku"]


def _valid_from(version: Record) -> int:
    assert version.frontier is not None
    return max(version.at, version.frontier)


def _of_sku(versions: Iterable[Record], sku: str | None) -> list[Record]:
    return [one for one in versions if _sku(one) == sku]


def _greatest_so_far(versions: Iterable[Record]) -> tuple[list[int], list[Record]]:
    """From when versions are valid, and the one with the greatest time of its own among those valid by then."""
    valid_from: list[int] = []
    greatest: list[Record] = []
    for one in sorted(versions, key=_valid_from):
        valid_from.append(_valid_from(one))
        greatest.append(max([*greatest[-1:], one], key=lambda one: (one.at, one.order)))
    return valid_from, greatest


def _asked_for(versions: Iterable[Record], since: int | None) -> list[Record]:
    """Versions that an order at ``since`` or later may see: until one with a greater time of its own is valid."""
    rest = []
    until: int | None = None
    for one in sorted(versions, key=lambda one: (one.at, one.order), reverse=True):
        if until is None or (until > _valid_from(one) and (since is None or until > since)):
            rest.append(one)
        until = _valid_from(one) if until is None else min(until, _valid_from(one))
    return rest


def _is_reached(time: int, frontier: int | None) -> bool:
    return frontier is not None and time <= frontier


def _is_past(time: int, frontier: int | None) -> bool:
    return frontier is not None and time < frontier


def _place(records: Iterable[Record], *, final_at: int) -> dict[str, Any]:
    """Where a row lies that is final at a time: at that time, and at the last record that it is made of."""
    last = max(records, key=lambda record: record.order)
    return {**last.place, "_order_timestamp": moment(final_at)}


def _least(values: Iterable[Any]) -> Any:
    return min((value for value in values if value is not None), default=None)


def _mean(numbers: list[Decimal], *, digits: int) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return (sum(numbers, start=Decimal(0)) / len(numbers)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
