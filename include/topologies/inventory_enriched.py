"""Orders with their product at the time at which they became final.

The products come from a compacted topic and are kept with the stream, so no other system is queried. A changed product
affects only later orders, in whatever order its new row and the orders arrive. If its row comes late, it is valid from
then on.
"""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import table_join

TIMES = "CreatedTime BIGINT NOT NULL, DecidedTime BIGINT NOT NULL"
ORDER = f"orderID STRING NOT NULL, customerID STRING, sku STRING, quantity INT, {TIMES}"
PRODUCT = "sku STRING NOT NULL, name STRING, price DECIMAL(12,2) NOT NULL"
CHANGE = f"{PRODUCT}, CreatedTime BIGINT NOT NULL"

orders = Source(topic="orders", schema=ORDER, of="inventory.orders", time="DecidedTime", grace="10 minutes")
products = Source(
    topic="products", schema=CHANGE, key_schema="sku STRING", tombstones=True, time="CreatedTime", grace="1 minute"
)
priced = table_join(orders, products, version_rows=PRODUCT, key="sku", how="left", tables=("waiting", "products"))


def enrich(slice: Slice) -> Effects:
    """Each order with the name and price of its product and its amount; nulls if there is no such product."""
    return {"enriched": priced(slice).rows.selectExpr("*", "quantity * price AS amount")}


enriched = Topology(
    name="inventory.enriched",
    version="2",
    sources=[orders, products],
    operators=[priced],
    outputs=[
        Append(name="enriched", schema=f"{priced.schema}, amount DECIMAL(23,2)"),
        Topic(name="enriched-orders", of="enriched", key="orderID", time="CreatedTime"),
    ],
    step=enrich,
)
