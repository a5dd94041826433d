"""Placed orders; a cancellation has no effect."""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import agg, aggregate

EVENT = """
    orderID STRING NOT NULL, type STRING NOT NULL, CreatedTime BIGINT NOT NULL,
    customerID STRING, sku STRING, quantity INT
"""
ORDER = """
    orderID STRING NOT NULL, customerID STRING, sku STRING, quantity INT, CreatedTime BIGINT NOT NULL,
    DecidedTime BIGINT NOT NULL
"""

order_events = Source(topic="order-events", schema=EVENT)
demand = aggregate(
    order_events, key="sku", aggregates={"orders": agg.count(), "quantity": agg.sum("quantity")}, table="demand"
)


def decide(slice: Slice) -> Effects:
    """Each placed order, and the demand for each product."""
    placed = slice["order-events"].where("type = 'PLACED'")
    demand(slice, placed)
    return {"orders": placed.selectExpr("*", "CreatedTime AS DecidedTime")}


orders = Topology(
    name="inventory.orders",
    version="1",
    sources=[order_events],
    operators=[demand],
    outputs=[
        Append(name="orders", schema=ORDER),
        Topic(name="orders", of="orders", key="orderID", time="DecidedTime", on_replay="versioned"),
    ],
    step=decide,
)
