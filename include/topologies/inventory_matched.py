"""Orders with the payments that came within ten minutes of them, and orders that were not paid in that time.

While no payments come at all, orders go on: ``idle_after`` tells the join that none is under way.
"""

from kappa import Append, Slice, Source, Topic, Topology
from kappa.operators import interval_join

EVENT = """
    orderID STRING NOT NULL, type STRING NOT NULL, CreatedTime BIGINT NOT NULL,
    customerID STRING, sku STRING, quantity INT
"""
ORDER = "orderID STRING NOT NULL, customerID STRING, sku STRING, quantity INT, CreatedTime BIGINT NOT NULL"
PAYMENT = "paymentID STRING NOT NULL, orderID STRING NOT NULL, amount DECIMAL(12,2) NOT NULL"

order_events = Source(topic="order-events", schema=EVENT, time="CreatedTime", grace="1 minute")
payments = Source(
    topic="payments",
    schema=f"{PAYMENT}, CreatedTime BIGINT NOT NULL",
    time="CreatedTime",
    grace="1 minute",
    idle_after="5 minutes",
)
paid = interval_join(
    order_events,
    payments,
    left_rows=ORDER,
    right_rows=PAYMENT,
    key="orderID",
    within="10 minutes",
    how="left",
    tables=("orders", "payments"),
)


def match(slice: Slice) -> None:
    """A row for each payment of an order; one without a payment when none can come any more."""
    paid(slice, slice["order-events"].where("type = 'PLACED'"))


matched = Topology(
    name="inventory.matched",
    version="2",
    sources=[order_events, payments],
    operators=[paid],
    outputs=[
        Append(name="matched", of=paid.rows),
        Topic(name="matched-orders", of="matched", key="orderID", time="CreatedTime"),
    ],
    step=match,
)
