"""Orders as they are placed: a cancellation changes nothing."""

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

demand = aggregate(rows=ORDER, key="sku", aggregates={"orders": agg.count(), "quantity": agg.sum("quantity")})


def decide(slice: Slice) -> Effects:
    """Each order that is placed, and what is wanted of each product."""
    placed = slice["order-events"].where("type = 'PLACED'").selectExpr("*", "CreatedTime AS DecidedTime")
    return {"orders": placed, "demand": demand(placed, before=slice.table("demand")).changes}


orders = Topology(
    name="inventory.orders",
    version="1",
    sources=[Source(topic="order-events", schema=EVENT)],
    tables=[demand.table("demand")],
    outputs=[
        Append(name="orders", schema=ORDER),
        Topic(name="orders", of="orders", key="orderID", time="DecidedTime", on_replay="versioned"),
    ],
    step=decide,
)
