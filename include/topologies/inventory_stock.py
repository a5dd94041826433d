"""The stock of each article in each shop: restocked less sold."""

from kappa import Slice, Source, Topic, Topology
from kappa.operators import agg, aggregate

ITEM = "storeID STRING NOT NULL, sku STRING NOT NULL, type STRING NOT NULL, quantity INT NOT NULL"
MOVE = "storeID STRING, sku STRING, moved INT"

items = Source(topic="items", schema=ITEM)
sums = {"quantity": agg.sum("moved"), "movements": agg.count()}
in_stock = aggregate(items, rows=MOVE, key=["storeID", "sku"], aggregates=sums, table="stock")


def move(slice: Slice) -> None:
    """Restocks add and sales subtract, however a till spells them; other movements do not affect the stock."""
    moved = slice["items"].selectExpr(
        "*", "CASE UPPER(type) WHEN 'RESTOCK' THEN quantity WHEN 'SALE' THEN -quantity END AS moved"
    )
    in_stock(slice, moved.where("moved IS NOT NULL"))


stock = Topology(
    name="inventory.stock",
    version="2",
    sources=[items],
    operators=[in_stock],
    outputs=[Topic(name="stock-levels", of="stock", key=("storeID", "sku"), on_replay="reconcile")],
    step=move,
)
