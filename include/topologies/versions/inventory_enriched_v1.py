"""Orders with the product as it was when they stood; an order of a product that is not known is left out."""

from kappa import Append, Effects, Slice, Source, Topic, Topology
from kappa.operators import table_join, tombstones

ORDER = """
    orderID STRING NOT NULL, customerID STRING, sku STRING, quantity INT, CreatedTime BIGINT NOT NULL,
    DecidedTime BIGINT NOT NULL
"""
PRODUCT = "sku STRING NOT NULL, name STRING, price DECIMAL(12,2) NOT NULL"

priced = table_join(left=ORDER, table=PRODUCT, key="sku", how="inner")


def enrich(slice: Slice) -> Effects:
    """Each order with name and price of its product."""
    joined = priced(
        slice["orders"],
        tombstones(slice["products"], key="sku"),
        waiting_before=slice.table("waiting"),
        versions_before=slice.table("products"),
        left_frontier=slice.frontier("orders"),
        table_frontier=slice.frontier("products"),
    )
    return {
        "enriched": joined.rows,
        "waiting": joined.waiting_changes,
        "products": joined.version_changes,
        "late_records": joined.late,
    }


enriched = Topology(
    name="inventory.enriched",
    version="1",
    sources=[
        Source(topic="orders", schema=ORDER, of="inventory.orders", time="DecidedTime", grace="10 minutes"),
        Source(
            topic="products",
            schema=f"{PRODUCT}, CreatedTime BIGINT NOT NULL",
            key_schema="sku STRING",
            tombstones=True,
            time="CreatedTime",
            grace="1 minute",
        ),
    ],
    tables=[priced.waiting_table("waiting"), priced.versions_table("products")],
    outputs=[
        Append(name="enriched", schema=priced.schema),
        Topic(name="enriched-orders", of="enriched", key="orderID", time="CreatedTime"),
    ],
    step=enrich,
)
