"""Final orders: placed, and not cancelled before half an hour without a further event of the order.

Events never change. A cancellation is one more event, which undoes the order; it may even come before the order. The
aggregates ignore the sequence of events, so that neither tables nor outputs depend on it. Final orders go to topic
`orders`, which `inventory.enriched` reads: each epoch has its own, and a replay fills it. ``DecidedTime`` is the time
at which an order became final: rows are sorted by that time, and not by ``CreatedTime``, since a further event keeps an
order open.
"""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import agg, aggregate, session_window

ORDER = "orderID STRING NOT NULL, customerID STRING, sku STRING, quantity INT, CreatedTime BIGINT NOT NULL"
EVENT = f"{ORDER}, type STRING NOT NULL"
DECISION = {name: agg.min(name) for name in ("customerID", "sku", "quantity")}
DECISION |= {"CreatedTime": agg.min("placed"), "cancellations": agg.count("cancelled")}

order_events = Source(topic="order-events", schema=EVENT, time="CreatedTime", grace="5 minutes")
decisions = session_window(
    order_events,
    rows=f"{EVENT}, placed BIGINT, cancelled BIGINT",
    key="orderID",
    gap="30 minutes",
    aggregates=DECISION,
    table="pending",
)
totals = {"orders": agg.count(), "quantity": agg.sum("quantity")}
demand = aggregate(decisions.final, key="sku", aggregates=totals, table="demand")


def decide(slice: Slice) -> Effects:
    """Orders that can no longer be cancelled, and the demand for each product."""
    events = slice["order-events"].selectExpr(
        "*",
        "IF(type = 'PLACED', CreatedTime, NULL) AS placed",
        "IF(type = 'CANCELLED', CreatedTime, NULL) AS cancelled",
    )
    decided = decisions(slice, events).final
    standing = decided.where("CreatedTime IS NOT NULL AND cancellations = 0")
    demand(slice, standing)
    return {"orders": standing.selectExpr("*", "unix_millis(session_end + INTERVAL 30 MINUTES) AS DecidedTime")}


orders = Topology(
    name="inventory.orders",
    version="2",
    sources=[order_events],
    operators=[decisions, demand],
    outputs=[
        Append(name="orders", schema=f"{ORDER}, DecidedTime BIGINT NOT NULL"),
        Topic(name="orders", of="orders", key="orderID", time="DecidedTime", on_replay="versioned"),
    ],
    step=decide,
)
