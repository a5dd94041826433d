"""Orders with their product at the time at which they became final; orders of unknown products are left out."""

from kappa import Append, Source, Topic, Topology
from kappa.operators import table_join

ORDER = """
    orderID STRING NOT NULL, customerID STRING, sku STRING, quantity INT, CreatedTime BIGINT NOT NULL,
    DecidedTime BIGINT NOT NULL
"""
PRODUCT = "sku STRING NOT NULL, name STRING, price DECIMAL(12,2) NOT NULL"

orders = Source(topic="orders", schema=ORDER, of="inventory.orders", time="DecidedTime", grace="10 minutes")
products = Source(
    topic="products",
    schema=f"{PRODUCT}, CreatedTime BIGINT NOT NULL",
    key_schema="sku STRING",
    tombstones=True,
    time="CreatedTime",
    grace="1 minute",
)
priced = table_join(orders, products, version_rows=PRODUCT, key="sku", how="inner", tables=("waiting", "products"))

enriched = Topology(
    name="inventory.enriched",
    version="1",
    sources=[orders, products],
    operators=[priced],
    outputs=[
        Append(name="enriched", of=priced.rows),
        Topic(name="enriched-orders", of="enriched", key="orderID", time="CreatedTime"),
    ],
)
