"""Orders with the payments that came within ten minutes of them, and orders that were not paid in that time.

While no payments come at all, orders go on: ``idle_after`` tells the join that none is under way.
"""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import interval_join

EVENT = """
    orderID STRING NOT NULL, type STRING NOT NULL, CreatedTime BIGINT NOT NULL,
    customerID STRING, sku STRING, quantity INT
"""
ORDER = "orderID STRING NOT NULL, customerID STRING, sku STRING, quantity INT, CreatedTime BIGINT NOT NULL"
PAYMENT = "paymentID STRING NOT NULL, orderID STRING NOT NULL, amount DECIMAL(12,2) NOT NULL"

paid = interval_join(left=ORDER, right=PAYMENT, key="orderID", within="10 minutes", how="left")


def match(slice: Slice) -> Effects:
    """A row for each payment of an order; one without a payment when none can come any more."""
    joined = paid(
        slice["order-events"].where("type = 'PLACED'"),
        slice["payments"],
        left_before=slice.table("orders"),
        right_before=slice.table("payments"),
        left_frontier=slice.frontier("order-events"),
        right_frontier=slice.frontier("payments"),
    )
    return {
        "matched": joined.rows,
        "orders": joined.left_changes,
        "payments": joined.right_changes,
        "late_records": joined.late,
    }


matched = Topology(
    name="inventory.matched",
    version="2",
    sources=[
        Source(topic="order-events", schema=EVENT, time="CreatedTime", grace="1 minute"),
        Source(
            topic="payments",
            schema=f"{PAYMENT}, CreatedTime BIGINT NOT NULL",
            time="CreatedTime",
            grace="1 minute",
            idle_after="5 minutes",
        ),
    ],
    tables=[paid.left_table("orders"), paid.right_table("payments")],
    outputs=[
        Append(name="matched", schema=paid.schema),
        Topic(name="matched-orders", of="matched", key="orderID", time="CreatedTime"),
    ],
    step=match,
)
