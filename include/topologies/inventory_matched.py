"""Orders with the payments that came within ten minutes of them, and orders that were not paid in that time.

While no payments come at all, orders continue: by ``idle_after`` the join knows that none is under way.
"""

from kappa import Append, Slice, Source, Topic, Topology
from kappa.operators import interval_join

ORDER = "orderID STRING NOT NULL, customerID STRING, sku STRING, quantity INT, CreatedTime BIGINT NOT NULL"
EVENT = f"{ORDER}, type STRING NOT NULL"
PAYMENT = "paymentID STRING NOT NULL, orderID STRING NOT NULL, amount DECIMAL(12,2) NOT NULL"
PAID = f"{PAYMENT}, CreatedTime BIGINT NOT NULL"

orders = Source(topic="order-events", schema=EVENT, time="CreatedTime", grace="1 minute")
payments = Source(topic="payments", schema=PAID, time="CreatedTime", grace="1 minute", idle_after="5 minutes")
paid = interval_join(
    orders,
    payments,
    key="orderID",
    within="10 minutes",
    how="left",
    tables=("orders", "payments"),
    left_rows=ORDER,
    right_rows=PAYMENT,
)


def match(slice: Slice) -> None:
    """A row for each payment of an order, and a row without a payment when none can come any more."""
    paid(slice, slice["order-events"].where("type = 'PLACED'"))


matched = Topology(
    name="inventory.matched",
    version="2",
    sources=[orders, payments],
    operators=[paid],
    outputs=[
        Append(name="matched", of=paid.rows),
        Topic(name="matched-orders", of="matched", key="orderID", time="CreatedTime"),
    ],
    step=match,
)
